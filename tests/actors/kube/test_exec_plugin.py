"""Credentials from programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from pointsman.actors.kube import exec_plugin
from pointsman.actors.kube.access import TlsMaterial
from pointsman.actors.kube.errors import AccessError
from pointsman.actors.kube.exec_plugin import CredentialStatus, ExecPlugin, good_for

VERSION: Final = "client.authentication.k8s.io/v1"
NOW: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)

Program = Callable[..., ExecPlugin]


def credential(**status: str) -> str:
    return json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A plugin that runs these lines of Python."""

    def program(*lines: str, cluster: dict[str, Any] | None = None, **entry: Any) -> ExecPlugin:
        path = tmp_path / "plugin"
        path.write_text("\n".join([f"#!{sys.executable}", "import json, os, sys, time", *lines]))
        path.chmod(0o755)
        config = {"command": "./plugin", "apiVersion": VERSION, **entry}
        return ExecPlugin.read(config, str(tmp_path), cluster or {})

    return program


async def run(plugin: ExecPlugin, authorities: str = "") -> CredentialStatus:
    return await plugin.run("https://api", TlsMaterial(authorities))


async def test_a_token_is_taken(program: Program) -> None:
    plugin = program(f"print({credential(token='t')!r})")
    assert (await run(plugin)).token == "t"


async def test_a_certificate_is_taken_with_its_key(program: Program) -> None:
    text = credential(clientCertificateData="c", clientKeyData="k")
    status = await run(program(f"print({text!r})"))
    assert (status.client_certificate_data, status.client_key_data) == ("c", "k")


async def test_the_program_gets_its_arguments_and_environment(program: Program) -> None:
    plugin = program(
        f"text = {credential(token='T')!r}",
        "print(text.replace('T', sys.argv[1] + os.environ['TENANT']))",
        args=["a-"],
        env=[{"name": "TENANT", "value": "b"}],
    )
    assert (await run(plugin)).token == "a-b"


async def test_the_program_is_told_that_nobody_can_answer_it(program: Program) -> None:
    plugin = program(
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])",
        "info['status'] = {'token': f\"{info['spec']}{sys.stdin.read()}\"}",
        "print(json.dumps(info))",
    )
    assert (await run(plugin)).token == "{'interactive': False}"


async def test_the_program_is_told_of_the_cluster_when_it_wants_to(program: Program) -> None:
    cluster = {
        "server": "https://api/",
        "tls-server-name": "name",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"a": 1}}],
    }
    plugin = program(
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])",
        "info['status'] = {'token': json.dumps(info['spec']['cluster'])}",
        "print(json.dumps(info))",
        cluster=cluster,
        provideClusterInfo=True,
    )
    assert json.loads((await run(plugin, "CA")).token) == {
        "server": "https://api",
        "tls-server-name": "name",
        "certificate-authority-data": "Q0E=",
        "config": {"a": 1},
    }


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["sys.exit('log in first')"], "exit status 1: log in first"),
        (["print('no')"], "its output is no ExecCredential"),
        ([f"print({credential()!r})"], "it gave neither a token"),
        ([f"print({credential(clientCertificateData='c')!r})"], "it gave neither a token"),
        ([f"print({credential(token='t').replace('/v1', '/v2')!r})"], "it speaks"),
    ],
)
async def test_a_program_that_fails_is_an_error(
    program: Program, lines: list[str], reason: str
) -> None:
    with pytest.raises(AccessError, match=rf"exec plugin './plugin': {reason}"):
        await run(program(*lines))


async def test_what_a_program_printed_is_not_in_the_error(program: Program) -> None:
    plugin = program(f"print({credential(token='s3cret').replace('/v1', '/v2')!r})")
    with pytest.raises(AccessError) as caught:
        await run(plugin)
    assert "s3cret" not in str(caught.value)


async def test_a_program_that_is_not_there_is_an_error() -> None:
    entry = {"command": "no-such-plugin", "apiVersion": VERSION, "installHint": "get it"}
    with pytest.raises(AccessError, match=r"'no-such-plugin': No such file or directory\. get it"):
        await run(ExecPlugin.read(entry, "/", {}))


async def test_a_program_that_hangs_is_an_error(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugin, "PATIENCE", 0.3)
    with pytest.raises(AccessError, match="no answer within"):
        await run(program("time.sleep(99)"))


async def test_a_program_is_killed_when_nobody_waits_for_it_any_more(program: Program) -> None:
    with trio.move_on_after(0.2) as scope:
        await run(program("time.sleep(99)"))
    assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({}, "command"),
        ({"command": "x"}, "apiVersion"),
        ({"command": "x", "apiVersion": VERSION, "interactiveMode": "Always"}, "terminal"),
        ("x", "object"),
    ],
)
def test_a_malformed_entry_is_an_error(entry: object, reason: str) -> None:
    with pytest.raises(AccessError, match=reason):
        ExecPlugin.read(entry, "/", {})


@pytest.mark.parametrize(
    ("expires", "seconds"),
    [
        ("2026-11-29T12:10:00Z", 480),
        ("2026-11-29T12:00:01Z", 10),
        ("2026-11-29T11:00:00Z", 10),
        ("2026-11-29T13:10:00+01:00", 480),
    ],
)
def test_a_credential_is_good_for_most_of_its_life(expires: str, seconds: float) -> None:
    status = CredentialStatus("t", expiration_timestamp=datetime.fromisoformat(expires))
    assert good_for(status, NOW) == seconds


def test_a_credential_that_does_not_say_is_good_until_it_is_refused() -> None:
    assert good_for(CredentialStatus("t"), NOW) == float("inf")
