from __future__ import annotations

import os
import re
import signal
import socket
import sys
from pathlib import Path

import anyio
import pytest
from trio.lowlevel import wait_readable

from pointsman.actors.sim.processes import ChildFailed, Process, answers, child, free_ports

pytestmark = pytest.mark.long

SAYS_HELLO = "import signal; print('hello', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SAYS_HELLO
HELLO = re.compile("^hello$", re.MULTILINE)

SERVES = """
from http.server import BaseHTTPRequestHandler, HTTPServer
import sys

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 503)
        self.end_headers()

HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

STARTS_A_CHILD = f"""
import anyio, re, sys
from pointsman.actors.sim.processes import child

async def main():
    argv = [sys.executable, "-c", {SAYS_HELLO!r}]
    async with child("inner", argv, ready=re.compile("hello")) as process:
        print("inner", process.pid, flush=True)
        await anyio.sleep_forever()

anyio.run(main, backend=sys.argv[1])
"""


def python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-P", "-c", code, *args]


async def run_hello() -> Process:
    async with child("greeter", python(SAYS_HELLO), ready=HELLO) as process:
        assert process.returncode is None
    return process


async def test_a_child_is_terminated_at_the_end_of_its_block() -> None:
    process = await run_hello()
    assert process.returncode == -signal.SIGTERM


def test_children_run_on_asyncio_too() -> None:
    process = anyio.run(run_hello, backend="asyncio")
    assert process.returncode == -signal.SIGTERM


async def test_a_child_that_ignores_the_polite_signal_is_killed_after_its_grace() -> None:
    async with child("mule", python(STUBBORN), ready=HELLO, grace=0.05) as process:
        pass
    assert process.returncode == -signal.SIGKILL


async def test_a_cancelled_block_ends_its_child() -> None:
    seen: list[Process] = []
    with anyio.CancelScope() as scope:
        async with child("greeter", python(SAYS_HELLO), ready=HELLO) as process:
            seen.append(process)
            scope.cancel()
            await anyio.sleep_forever()
    assert [process.returncode for process in seen] == [-signal.SIGTERM]


async def test_an_error_in_the_block_ends_the_child_and_comes_out_as_it_is() -> None:
    seen: list[Process] = []

    async def divide() -> None:
        async with child("greeter", python(SAYS_HELLO), ready=HELLO) as process:
            seen.append(process)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await divide()
    assert [process.returncode for process in seen] == [-signal.SIGTERM]


async def test_an_exit_can_be_waited_for_by_several_tasks() -> None:
    codes: list[int] = []

    async def wait(process: Process) -> None:
        codes.append(await process.wait())

    async with child("brief", python(SAYS_HELLO), ready=HELLO) as process:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, process)
            tasks.start_soon(wait, process)
            await anyio.wait_all_tasks_blocked()
            process.kill()
        process.kill()
    assert codes == [-signal.SIGKILL, -signal.SIGKILL]


async def test_a_child_that_ends_before_it_is_ready_fails_with_its_last_lines() -> None:
    code = "import sys; [print('line', n) for n in range(50)]; sys.exit('port in use')"
    with pytest.raises(ChildFailed) as caught:
        async with child("daemon", python(code), ready=re.compile("never")):
            pytest.fail("the block must not begin")
    said = str(caught.value)
    assert said.startswith("daemon ended with status 1 before it was ready\n")
    assert sys.executable in said
    assert "    port in use" in said
    assert "line 3\n" not in said


async def test_a_child_that_is_not_ready_in_time_fails_and_is_ended() -> None:
    with pytest.raises(ChildFailed, match=r"^sleeper was not ready within 0\.05 s\n"):
        async with child("sleeper", python(SAYS_HELLO), ready=never, ready_within=0.05):
            pytest.fail("the block must not begin")


async def never() -> bool:
    return False


async def test_a_program_that_does_not_exist_is_named() -> None:
    with pytest.raises(ChildFailed, match=r"^ghost cannot be started: No such file"):
        async with child("ghost", ["/nonexistent/ghost"]):
            pytest.fail("the block must not begin")


async def test_a_child_is_ready_when_its_url_answers() -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    async with child("server", python(SERVES, str(port)), ready=answers(f"{url}/ready")):
        assert not await answers(f"{url}/other")()


async def test_a_url_nobody_listens_on_does_not_answer() -> None:
    (port,) = free_ports(1)
    assert not await answers(f"http://127.0.0.1:{port}/")()


async def test_output_is_appended_to_the_log_and_only_the_childs_own_is_shown(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    log.write_text("hello from before\n")
    async with child("greeter", python(SAYS_HELLO), ready=HELLO, log_to=log) as process:
        assert process.output == "hello\n"
    assert log.read_text() == "hello from before\nhello\n"


async def test_variables_are_added_to_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "ours")
    code = "import os; print(os.environ['OURS'], os.environ['THEIRS'])"
    async with child("env", python(code), env={"THEIRS": "theirs"}) as process:
        assert await process.wait() == 0
        assert process.output == "ours theirs\n"


async def test_ctrl_c_at_the_terminal_does_not_reach_children() -> None:
    async with child("greeter", python(SAYS_HELLO), ready=HELLO) as process:
        assert os.getpgid(process.pid) != os.getpgid(0)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_a_killed_parent_leaves_no_child_behind(backend: str) -> None:
    started = re.compile(r"inner (\d+)\n")
    async with child("outer", python(STARTS_A_CHILD, backend), ready=started) as outer:
        found = started.search(outer.output)
        assert found is not None
        inner = os.pidfd_open(int(found[1]))
        try:
            outer.kill()
            await wait_readable(inner)
        finally:
            os.close(inner)


def test_free_ports_differ_and_lie_below_the_range_of_outgoing_connections() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert max(ports) < 32_768


def test_a_port_in_use_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        monkeypatch.setattr(
            "pointsman.actors.sim.processes.BELOW_EPHEMERAL", range(port, port + 50)
        )
        assert port not in free_ports(1)
