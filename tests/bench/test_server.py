"""Starting the daemon, with another program in its place."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest

from . import server
from .measure import Bench, Effort
from .rows import IDLE
from .server import Models, Pointsman, ServerError

pytestmark = pytest.mark.long

# Becomes ready with the second question; then it only accepts.
DAEMON = """
import argparse, http.server, socket
parser = argparse.ArgumentParser()
parser.add_argument("command")
for name in ("grpc-port", "grpc-health-port", "metrics-port"):
    parser.add_argument(f"--{name}", type=int)
for name in ("config-file", "secure-serving", "keep"):
    parser.add_argument(f"--{name}")
options = parser.parse_args()
asked = 0

class Readiness(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global asked
        asked += 1
        if asked == 2 and options.keep:
            open(options.keep, "w").write(open(options.config_file).read())
        self.send_response(200 if self.path == "/readyz" and asked > 1 else 503)
        self.end_headers()

grpc = socket.create_server(("127.0.0.1", options.grpc_port))
http.server.HTTPServer(("127.0.0.1", options.metrics_port), Readiness).serve_forever()
"""
MODELS = Models(["127.0.1.1", "127.0.1.2"], 8000)


@pytest.fixture(autouse=True)
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that runs as ``python -m pointsman``."""
    main = tmp_path / "pointsman" / "__main__.py"
    main.parent.mkdir()
    main.with_name("__init__.py").touch()
    main.write_text(DAEMON)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return main


def test_the_daemon_runs_as_long_as_its_block() -> None:
    with Pointsman().start(MODELS) as started:
        assert Path(f"/proc/{started.pid}").exists()
        socket.create_connection(("127.0.0.1", started.port)).close()
    assert not Path(f"/proc/{started.pid}").exists()


def test_the_daemon_gets_the_two_scorers_and_the_endpoints_file(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with Pointsman(f"--keep {kept}").start(MODELS):
        config = json.loads(kept.read_text())
        discovery = config["plugins"][-1]
        listed = json.loads(Path(discovery["parameters"]["path"]).read_text())["endpoints"]
    (profile,) = config["schedulingProfiles"]
    assert [each["pluginRef"] for each in profile["plugins"]] == list(server.PROFILE)
    assert [(each["address"], each["port"]) for each in listed] == [
        ("127.0.1.1", "8000"),
        ("127.0.1.2", "8000"),
    ]


def test_a_daemon_that_ends_at_once_is_named_with_what_it_said() -> None:
    with (
        pytest.raises(ServerError, match=r"(?s)pointsman ended with status 2: .*--no-such-flag"),
        Pointsman("--no-such-flag").start(MODELS),
    ):
        pass


def test_a_daemon_that_is_never_ready_is_given_up(
    daemon: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.write_text("import time; print('waiting', flush=True); time.sleep(60)")
    monkeypatch.setattr(server, "START", 0.1)
    with pytest.raises(ServerError, match="not ready in time"), Pointsman().start(MODELS):
        pass


def test_an_idle_daemon_is_watched() -> None:
    wanted = re.compile(IDLE)
    (figure,) = Bench(Pointsman(), Effort(idle=0.02), wanted, lambda row, state: None).run()
    assert (figure.name, figure.error, figure.note) == (IDLE, "", "0 scrapes/s")
