"""Where endpoints come from: the configuration, or the command line."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pointsman.actors.cli import make_parser
from pointsman.actors.discovery import Discovery, make_discovery
from pointsman.actors.file_discovery import FileDiscovery
from pointsman.actors.kube.discovery import KubernetesDiscovery, PoolSettings, SelectorSettings
from pointsman.actors.serve_flags import check_serve_options
from pointsman.kernel.errors import ConfigError
from pointsman.kernel.mailbox import Mailbox
from pointsman.kernel.testing import wired
from pointsman.plugins.sources import FileDiscovery as FileDiscoveryPlugin

FILE = """
plugins: [{name: file, type: file-discovery, parameters: {path: PATH, watchFile: true}}]
dataLayer: {discovery: {pluginRef: file}}
"""


def parsed(*flags: str) -> argparse.Namespace:
    top, parser_of = make_parser()
    options = top.parse_args(["serve", *flags])
    check_serve_options(parser_of("serve"), options)
    return options


@pytest.fixture
def inbox() -> Generator[Mailbox[Any]]:
    with Mailbox[Any].open("datastore", capacity=1) as inbox:
        yield inbox


def made(inbox: Mailbox[Any], *flags: str, config: str = "") -> Discovery:
    wiring = wired(config, FileDiscoveryPlugin)
    return make_discovery(parsed(*flags), wiring, inbox.address, Random(0))


def in_cluster(inbox: Mailbox[Any], *flags: str) -> PoolSettings | SelectorSettings:
    discovery = made(inbox, *flags)
    assert isinstance(discovery, KubernetesDiscovery)
    return discovery.settings


def test_a_file_that_the_configuration_names_comes_first(inbox: Mailbox[Any]) -> None:
    discovery = made(inbox, "--pool-name=p", config=FILE)
    assert isinstance(discovery, FileDiscovery)
    assert (discovery.path, discovery.watch) == (Path("PATH"), True)


def test_c08_without_any_source_the_ways_to_one_are_named(inbox: Mailbox[Any]) -> None:
    with pytest.raises(ConfigError, match="start with --pool-name or --endpoint-selector, or"):
        made(inbox)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("NAMESPACE", "POD_NAME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_a_pool_is_looked_for_in_its_group_and_namespace(inbox: Mailbox[Any]) -> None:
    group = "inference.networking.k8s.io"
    assert in_cluster(inbox, "--pool-name=p") == PoolSettings(
        namespace="default", name="p", group=group
    )
    flags = ("--pool-name=p", "--pool-namespace=n", "--pool-group=g")
    assert in_cluster(inbox, *flags) == PoolSettings(namespace="n", name="p", group="g")


def test_the_namespace_may_come_from_the_environment(
    inbox: Mailbox[Any], environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("NAMESPACE", "from-env")
    assert in_cluster(inbox, "--pool-name=p").namespace == "from-env"
    assert in_cluster(inbox, "--pool-name=p", "--pool-namespace=n").namespace == "n"


@pytest.mark.parametrize(
    ("pod", "name"),
    [("epp-5f6c7-x2x2x", "epp"), ("my-epp-5f-x2", "my-epp"), ("epp", "epp"), ("", "endpoints")],
)
def test_pods_may_be_named_by_a_selector(
    inbox: Mailbox[Any], environment: pytest.MonkeyPatch, pod: str, name: str
) -> None:
    environment.setenv("POD_NAME", pod)
    flags = ("--endpoint-selector=app in (a, b)", "--endpoint-target-ports=8000, 8001,8000")
    assert in_cluster(inbox, *flags) == SelectorSettings(
        namespace="default", name=name, selector="app in (a, b)", ports=(8000, 8001)
    )


async def test_an_api_server_without_a_way_to_it_is_a_mistake(
    inbox: Mailbox[Any], tmp_path: Path
) -> None:
    missing = tmp_path / "kubeconfig"
    discovery = made(inbox, "--pool-name=p", f"--kubeconfig={missing}")
    with pytest.raises(ConfigError, match=r"^Kubernetes: .*kubeconfig"):
        await discovery.prepare()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--pool-name=p", "--endpoint-selector=a"), "exclude each other"),
        (("--endpoint-selector=a",), "go together"),
        (("--endpoint-target-ports=80",), "go together"),
        (("--endpoint-selector=a", "--endpoint-target-ports="), "one to 8 ports"),
        (("--endpoint-selector=a", "--endpoint-target-ports=0"), "one to 8 ports"),
        (("--endpoint-selector=a", "--endpoint-target-ports=1,x"), "'x' is no port number"),
        (
            ("--endpoint-selector=a", "--endpoint-target-ports=1,2,3,4,5,6,7,8,9"),
            "one to 8 ports",
        ),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    flags: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*flags)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
