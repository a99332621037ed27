"""The package of docs/plugins.md: its plugins, its installation, and the guide that shows it."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.actors.scripts import Desk, body, headers, opening, say, wired

from pointsman.actors.conversation import Event, RequestBody, ResponseBody, ResponseHeaders
from pointsman.kernel.model import REQUEST_HEADERS, EndCause
from pointsman.kernel.testing import Bench, endpoints, make_request

pytestmark = pytest.mark.long

PACKAGE = Path(__file__).parent / "example_package"
GUIDE = Path(__file__).parents[2] / "docs" / "plugins.md"
SHOWN = ("pointsman_pins/__init__.py", "pointsman_pins/second_thoughts.py", "pyproject.toml")


@pytest.fixture
def pins(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, imported from where it stands."""
    cast("Any", monkeypatch).syspath_prepend(str(PACKAGE))
    return importlib.import_module("pointsman_pins")


@pytest.fixture
def second_thoughts(pins: Any) -> Any:
    return importlib.import_module("pointsman_pins.second_thoughts")


@pytest.mark.parametrize(
    ("sent", "default", "pin"),
    [({"x-pin": "b"}, "", "b"), ({}, "a", "a"), ({"x-pin": ""}, "a", "a"), ({}, "", None)],
)
def test_the_pin_comes_from_the_header_or_the_default(
    pins: Any, sent: dict[str, str], default: str, pin: str | None
) -> None:
    producer = pins.PinProducer(pins.PinParameters(default=default))
    request = make_request(headers=sent)
    written = Bench(producer, request=request).produce_now({REQUEST_HEADERS: request.headers})
    assert written.get(pins.PIN) == pin


def test_the_pin_is_honoured(pins: Any) -> None:
    bench = Bench(pins.PinScorer(), endpoints("a", "b"))
    assert bench.score({pins.PIN: "b"}) == [0.0, 1.0]


REQUEST: Sequence[Event] = (
    opening(x_pin="pod-0"),
    RequestBody(body(), end=True),
    ResponseHeaders(headers({":status": "200"}), end=False),
    ResponseBody(b"x", end=False),
    ResponseBody(b"", end=True),
)
CONFIG = """
plugins: [{type: pin-scorer}, {type: second-thoughts}]
schedulingProfiles:
- name: default
  plugins: [{pluginRef: pin-scorer}, {pluginRef: second-thoughts}]
"""


@pytest.mark.parametrize("steps", range(len(REQUEST) + 1))
def test_the_client_may_leave_at_every_step(pins: Any, second_thoughts: Any, steps: int) -> None:
    types = (pins.PinProducer, pins.PinScorer, second_thoughts.SecondThoughts)
    desk = Desk(wired(CONFIG, *types))
    plugin = desk.wiring.installed["second-thoughts"].plugin
    session = desk.session()
    say(session, *REQUEST[:steps])
    scheduled = steps >= 2
    assert plugin.open["followed"] == int(scheduled)
    session.close()
    cause = EndCause.NATURAL if steps == len(REQUEST) else EndCause.CLIENT_DISCONNECT
    assert plugin.open["followed"] == 0
    assert plugin.ended == ({("followed", cause.value): 1} if scheduled else {})
    assert len(desk.wiring.installed["second-thoughts"].state) == 0


def test_a_pin_without_its_endpoint_is_outvoted(pins: Any, second_thoughts: Any) -> None:
    types = (pins.PinProducer, pins.PinScorer, second_thoughts.SecondThoughts)
    desk = Desk(wired(CONFIG, *types))
    say(desk.session(), opening(x_pin="gone"), RequestBody(body(), end=True))
    assert desk.wiring.installed["second-thoughts"].plugin.open == {"outvoted": 1}


def run(*command: str, path: Path | None = None) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(path or "")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a distribution that was built and installed."""
    target = tmp_path_factory.mktemp("site")
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", "install", *options)
    run(*pip, "--target", str(target), str(PACKAGE))
    return target


def test_the_installed_package_is_found_by_its_entry_points(installed: Path) -> None:
    check = (sys.executable, "-m", "pointsman", "check", str(PACKAGE / "demo.yaml"))
    output = run(*check, path=installed)
    assert "scorer pin-scorer, weight 1" in output
    assert "producers, in order: pin-producer" in output


@pytest.mark.parametrize("name", SHOWN)
def test_the_guide_shows_what_runs(name: str) -> None:
    blocks = re.findall(r"```\w+\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert (PACKAGE / name).read_text() in blocks
