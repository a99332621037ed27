"""What a daemon says, from its start to its end, while a hostile client talks to it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import define
from tests.actors.scripts import body as completion

from pointsman.actors.sim.processes import free_ports

from .hosting import PATIENCE, Conversation, body, grpc, opening

pytestmark = pytest.mark.long

CONFIG = """\
plugins:
- {type: queue-scorer}
- {name: endpoints, type: file-discovery, parameters: {path: PATH}}
dataLayer: {discovery: {pluginRef: endpoints}}
"""
ENDPOINTS = "endpoints: [{name: one, address: 127.0.0.1, port: '9'}]"
FORGED = 'm\n{"level":"error","msg":"forged"}\r\n\u2028\x1b[31m'
SECRETS = ("SECRETPROMPT", "SECRETTOKEN")


@define(eq=False)
class Running:
    process: subprocess.Popen[str]
    channel: Any
    records: list[dict[str, Any]]

    def ask(self, data: bytes, **fields: str) -> Conversation:
        talk = Conversation(self.channel)
        talk.say(opening(authorization="Bearer SECRETTOKEN", **fields), body(data))
        talk.hear()
        talk.call.cancel()
        return talk

    def end(self) -> str:
        """All that the daemon said on stdout; what it logged is in `records` then."""
        self.process.send_signal(signal.SIGTERM)
        said, rest = self.process.communicate(timeout=PATIENCE)
        self.records += map(json.loads, rest.splitlines())
        assert self.process.returncode == 0
        return said

    def named(self, logger: str) -> list[dict[str, Any]]:
        return [r for r in self.records if r["logger"] == f"pointsman.actors.{logger}"]


@contextmanager
def daemon(folder: Path, *flags: str, environment: dict[str, str]) -> Generator[Running]:
    """A daemon that is ready."""
    (folder / "endpoints.yaml").write_text(ENDPOINTS)
    config = CONFIG.replace("PATH", str(folder / "endpoints.yaml"))
    grpc_port, health, admin = free_ports(3)
    command = [
        *(sys.executable, "-m", "pointsman", "serve", f"--config-text={config}"),
        *(f"--grpc-port={grpc_port}", f"--grpc-health-port={health}", f"--metrics-port={admin}"),
        *("--bind-address=127.0.0.1", "--secure-serving=false", "--drain-timeout=0", *flags),
    ]
    with ExitStack() as opened:
        process = opened.enter_context(
            subprocess.Popen(
                command,
                cwd=folder,
                env={"PATH": "", **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        opened.callback(process.kill)
        records = list(until_ready(process))
        channel = opened.enter_context(grpc.insecure_channel(f"127.0.0.1:{grpc_port}"))
        yield Running(process, channel, records)


def until_ready(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stderr is not None
    for line in process.stderr:
        record: dict[str, Any] = json.loads(line)
        yield record
        if record["msg"].startswith("ready: "):
            return
    raise AssertionError("the daemon ended before it was ready")


@pytest.mark.parametrize("verbosity", [2, 4])
def test_z_04_every_line_is_a_record_and_z_03_none_has_a_secret(
    verbosity: int, tmp_path: Path
) -> None:
    with daemon(tmp_path, f"-v={verbosity}", environment={}) as running:
        asked = {"x-request-id": "id\r\n\u2028" * 2000}
        running.ask(completion(model=FORGED, prompt="SECRETPROMPT"), **asked)
        running.ask(b'{"prompt": "SECRETPROMPT", "model":', **asked)
        assert running.end() == ""
    decisions = running.named("decision_log")
    assert [r["msg"] for r in decisions] == (["picked", "refused"] if verbosity == 4 else [])
    for decision in decisions:
        assert len(decision["request_id"]) < 300
    if verbosity == 4:
        assert decisions[0]["model"] == FORGED
    told = json.dumps(running.records)
    assert not [secret for secret in SECRETS if secret in told]
    assert not [r for r in running.records if r["level"] == "error"]


def test_spans_go_to_the_console_if_that_is_wanted(tmp_path: Path) -> None:
    variables = {"OTEL_TRACES_EXPORTER": "console", "OTEL_TRACES_SAMPLER": "always_on"}
    with daemon(tmp_path, environment=variables) as running:
        running.ask(completion(prompt="SECRETPROMPT"))
        said = running.end()
    assert '"name": "gateway.request"' in said
    assert "SECRET" not in said
