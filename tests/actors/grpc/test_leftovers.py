"""What streams leave behind, and what thousands of them cost while they are open.

G-xx and R-xx are the field reports whose fault a test keeps away.
"""

from __future__ import annotations

import gc
import socket
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager, suppress
from threading import Event, Thread

import anyio
import anyio.lowlevel
import pytest
from tests.actors.scripts import Desk, wired
from tests.actors.scripts import body as completion

from pointsman.actors.extproc_server_health import HealthServer
from pointsman.actors.extproc_server_lane import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    literals,
)
from pointsman.actors.sim.processes import free_ports
from pointsman.kernel.channel import Latest
from pointsman.proto import (
    HEALTH_CHECK,
    PROCESS,
    HealthCheckRequest,
    ProcessingRequest,
    ServingStatus,
    encode,
)

from .hosting import PATIENCE, Host, body, hosted, opening, response_body, response_headers

pytestmark = pytest.mark.long

CONFIG = "plugins: [{type: active-request-scorer}, {type: prefix-cache-scorer}]"
STEPS = [opening(), body(completion()), response_headers(), response_body(b"data: {}\n\n")]
ROUND = 20


@pytest.fixture(params=["fast", "plain"])
def host(request: pytest.FixtureRequest) -> Generator[Host]:
    with hosted(Desk(wired(CONFIG)), plain=request.param == "plain") as running:
        yield running


def cancelled_streams(host: Host, steps: int) -> None:
    """Twenty streams that are cancelled by the client after so many of their steps."""
    talks = [host.conversation() for _ in range(ROUND)]
    for talk in talks:
        talk.say(*STEPS[:steps])
    host.until_open(ROUND)
    for talk in talks:
        if steps > 1:
            talk.hear(2 if steps < 3 else steps)
        talk.call.cancel()
        talk.hang_up()
    host.until_open(0)


async def _turns() -> None:
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


SERVERS_OWN = frozenset({"pointsman", "grpclib", "h2", "asyncio", "_asyncio"})


def objects(host: Host) -> int:
    """How many the server has, once nothing goes on any more; the client has none of its kind."""
    host.portal.call(_turns)
    gc.collect()
    modules = (str(type(each).__module__) for each in gc.get_objects())
    return sum(module.partition(".")[0] in SERVERS_OWN for module in modules)


@pytest.mark.parametrize("steps", [1, 4])
def test_g_08_streams_that_are_cancelled_leave_nothing_behind(host: Host, steps: int) -> None:
    cancelled_streams(host, steps)
    before = objects(host)
    for _ in range(3):
        cancelled_streams(host, steps)
    assert objects(host) - before < ROUND
    assert not [one.name for one in host.desk.wiring.installed.values() if one.state]


ACK = 0x1


def call(path: str) -> bytes:
    return literals(
        [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path.encode()),
            (b":authority", b"picker"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
        ]
    )


def raw(port: int) -> socket.socket:
    """A connection after its greetings."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    window = frame(WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big"))
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + window)
    connection.sendall(2 * frame(SETTINGS, ACK, 0))
    return connection


@contextmanager
def proxy(port: int) -> Generator[socket.socket]:
    """A connection that takes whatever it is told and does not look at it."""

    def swallow() -> None:
        while connection.recv(65_536):
            pass

    with raw(port) as connection:
        connection.settimeout(None)
        swallowing = Thread(target=swallow)
        swallowing.start()
        try:
            yield connection
        finally:
            connection.shutdown(socket.SHUT_RDWR)
            swallowing.join()


def piece(stream: int, message: ProcessingRequest) -> bytes:
    data = encode(message)
    return frame(DATA, 0, stream, b"\x00" + len(data).to_bytes(4, "big") + data)


def begun(number: int) -> bytes:
    """A stream that goes as far as its response's headers, and waits for more."""
    stream = 2 * number + 1
    said = [piece(stream, step) for step in STEPS[:3]]
    return frame(HEADERS, END_HEADERS, stream, call(PROCESS)) + b"".join(said)


def test_r_03_more_than_a_thousand_streams_stay_open(host: Host) -> None:
    """And another request is answered as if there were none."""
    with proxy(host.port) as connection:
        for number in range(1050):
            connection.sendall(begun(number))
        host.until_open(1050)
        talk = host.conversation()
        talk.say(*STEPS[:2])
        decision, _ = talk.hear(2)
        assert decision.request_headers is not None
        talk.call.cancel()
        talk.hang_up()
    host.until_open(0)


def test_r_03_a_stream_that_waits_for_its_response_costs_little(host: Host) -> None:
    with proxy(host.port) as connection:
        for number in range(100):
            connection.sendall(begun(number))
        host.until_open(100)
        gc.collect()
        tracemalloc.start()
        for number in range(100, 300):
            connection.sendall(begun(number))
        host.until_open(300)
        objects(host)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert used < 200 * 50_000


def picks(host: Host) -> int:
    return sum(endpoint.identity.picks for endpoint in host.desk.datastore.members.value)


MOST = 1500


def fill(connection: socket.socket) -> tuple[int, bytes]:
    """Open streams as long as there is room while nobody reads; what the last one lacks."""
    number, data = 0, b""
    with suppress(BlockingIOError):
        while data or number < MOST:
            if not data:
                data = begun(number)
                number += 1
            data = data[connection.send(data, socket.MSG_DONTWAIT) :]
    return number, data


def probe(stream: int) -> bytes:
    asked = encode(HealthCheckRequest(service="liveness"))
    data = b"\x00" + len(asked).to_bytes(4, "big") + asked
    return frame(HEADERS, END_HEADERS, stream, call(HEALTH_CHECK)) + frame(
        DATA, END_STREAM, stream, data
    )


@pytest.fixture
def health(host: Host, monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[int, list[int]]]:
    """The port for probes, and what notes how many requests were decided at each."""
    (port,) = free_ports(1)
    noted: list[int] = []
    status = HealthServer._status

    def noting(self: HealthServer, service: str) -> ServingStatus:
        noted.append(picks(host))
        return status(self, service)

    monkeypatch.setattr(HealthServer, "_status", noting)
    serving, _ = host.portal.start_task(HealthServer("127.0.0.1", port, Latest(value=True)).run)
    yield port, noted
    serving.cancel()


def test_r_02_a_probe_is_answered_beside_what_waits_on_the_connections_of_proxies(
    host: Host, health: tuple[int, list[int]]
) -> None:
    """The loop finds hundreds of new requests and the probe at once, after a pause."""
    port, noted = health
    released = Event()
    with proxy(host.port) as connection, raw(port) as prober:
        prober.sendall(probe(1))
        listen(prober, 1)  # from now on the connection is known
        blocked = host.portal.start_task_soon(released.wait, PATIENCE)
        waiting, rest = fill(connection)
        prober.sendall(probe(3))
        released.set()
        connection.sendall(rest)
        assert blocked.result(PATIENCE)
        listen(prober, 3)
        host.until_open(waiting)
        assert picks(host) == waiting
    # How many are decided first is the selector's choice; more than are waiting never are.
    assert noted[0] == 0
    assert noted[1] <= waiting, noted


def listen(prober: socket.socket, stream: int) -> None:
    """Wait for the end of an answer."""
    end = bytes((HEADERS, END_HEADERS | END_STREAM)) + stream.to_bytes(4, "big")
    heard = b""
    while end not in heard:
        more = prober.recv(65_536)
        assert more
        heard += more
