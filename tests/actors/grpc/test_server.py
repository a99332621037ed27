"""ext_proc over real gRPC, with an independent client, on the fast edge and on grpclib's own."""

from __future__ import annotations

import socket
from collections.abc import Generator, Sequence
from typing import Any, ClassVar

import anyio
import pytest
from tests.actors.scripts import Desk, wired
from tests.actors.scripts import body as completion

from pointsman.actors.extproc_server_lane import (
    END_HEADERS,
    GOAWAY,
    HEADERS,
    SETTINGS,
    frame,
    literals,
)
from pointsman.kernel.keys import DataView
from pointsman.kernel.model import Endpoint, RequestEnd
from pointsman.proto import PROCESS, HttpTrailers, ProcessingRequest, ProcessingResponse

from .hosting import (
    LEAN,
    PATIENCE,
    Host,
    body,
    grpc,
    hosted,
    opening,
    response_body,
    response_headers,
)

pytestmark = pytest.mark.long


@pytest.fixture(params=["fast", "plain"])
def host(request: pytest.FixtureRequest) -> Generator[Host]:
    desk = Desk()
    desk.queue(5, 1)
    with hosted(desk, plain=request.param == "plain") as running:
        yield running


@pytest.fixture
def fast() -> Generator[Host]:
    with hosted(Desk()) as running:
        yield running


def chunks(replies: Sequence[ProcessingResponse]) -> bytes:
    """The bodies of streamed replies, joined."""
    joined = b""
    for reply in replies:
        answer = reply.request_body or reply.response_body
        if answer and answer.response and answer.response.body_mutation:
            streamed = answer.response.body_mutation.streamed_response
            joined += streamed.body if streamed else b""
    return joined


def test_a_whole_exchange(host: Host) -> None:
    talk = host.conversation()
    talk.say(opening(), body(completion(), end=False), body(b""))
    decision, passed = talk.hear(2)
    assert decision.request_headers is not None
    assert chunks([passed]) == completion()
    talk.say(response_headers(), response_body(b"one"), response_body(b"two", end=True))
    assert chunks(talk.rest()) == b"onetwo"
    assert talk.code is grpc.StatusCode.OK


def in_flight(host: Host) -> int:
    """What the plugin that counts requests has counted."""
    plugin = host.desk.wiring.installed["inflight-load-producer"].plugin
    return sum(load.requests for _, _, load in plugin.ledger.shares())


@pytest.mark.parametrize("plain", [False, True])
def test_g_04_many_streams_with_one_request_id_each_get_their_own_bytes(plain: bool) -> None:
    """Half of them go on to their response, the others leave before."""
    desk = Desk(wired("plugins: [{type: active-request-scorer}]"))
    with hosted(desk, plain=plain) as host:
        talks = [host.conversation() for _ in range(20)]
        for number, talk in enumerate(talks):
            talk.say(opening(**{"x-request-id": "same"}), body(completion(n=number)))
        assert [chunks(talk.hear(2)) for talk in talks] == [completion(n=n) for n in range(20)]
        assert host.server.open_streams.value == in_flight(host) == 20
        for number, talk in enumerate(talks[:10]):
            talk.say(response_headers(), response_body(b"%d" % number, end=True))
            assert chunks(talk.rest()) == b"%d" % number
        host.until_open(10)
        assert in_flight(host) == 10
        for talk in talks[10:]:
            talk.call.cancel()
        host.until_open(0)
        assert in_flight(host) == 0
    assert not [one.name for one in desk.wiring.installed.values() if one.failures or one.state]


def test_p14_one_message_of_six_mebibytes(host: Host) -> None:
    data = completion(prompt="x" * (6 << 20))
    talk = host.conversation()
    talk.say(opening(), body(data))
    talk.hang_up()
    assert chunks(talk.rest()) == data


def test_an_error_ends_the_stream_properly(host: Host) -> None:
    talk = host.conversation()
    talk.say(opening(), body(b"{"))
    (reply,) = talk.rest()
    assert reply.immediate_response is not None
    assert talk.code is grpc.StatusCode.OK
    host.until_open(0)


def test_a_client_that_leaves_is_noticed_at_any_time(host: Host) -> None:
    steps = [opening(), body(completion()), response_headers(), response_body(b"x")]
    for count in range(len(steps) + 1):
        talk = host.conversation()
        talk.say(*steps[:count])
        host.until_open(1)
        talk.call.cancel()
        host.until_open(0)


def test_a_client_that_half_closes_gets_its_status(host: Host) -> None:
    talk = host.conversation()
    talk.say(opening())
    talk.hang_up()
    assert talk.rest() == []
    assert talk.code is grpc.StatusCode.OK


def test_request_trailers_may_end_the_request(host: Host) -> None:
    talk = host.conversation()
    trailers = ProcessingRequest(request_trailers=HttpTrailers())
    talk.say(opening(), body(completion(), end=False), trailers)
    talk.hang_up()
    replies = talk.rest()
    assert chunks(replies) == completion()
    assert replies[-1].request_trailers is not None


def test_other_methods_are_grpclibs_affair(host: Host) -> None:
    other = host.channel.unary_unary("/other.Service/Method")
    with pytest.raises(grpc.RpcError) as caught:
        other(b"", timeout=5)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


def test_bytes_that_are_no_ext_proc_are_refused_and_nobody_else_suffers(
    fast: Host, caplog: pytest.LogCaptureFixture
) -> None:
    raw = fast.channel.stream_stream(PROCESS)
    for _ in range(3):
        call = raw(iter([b"\xff\xff\xff"]), timeout=5)
        with pytest.raises(grpc.RpcError):
            list(call)
        assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert sum("does not speak ext_proc" in record.message for record in caplog.records) == 1
    talk = fast.conversation()
    talk.say(opening(), body(completion()))
    assert chunks(talk.hear(2)) == completion()
    talk.call.cancel()


def test_p14_a_message_beyond_the_limit_is_refused() -> None:
    with hosted(Desk(), body_limit=100_000) as host:
        talk = host.conversation()
        talk.say(opening(), body(b"x" * 200_000))
        with pytest.raises(grpc.RpcError):
            talk.rest()
        assert talk.code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_slow_reader_is_waited_for() -> None:
    """The client's window is 64 KB: most of the reply has to wait for it."""
    data = completion(prompt="x" * 3_000_000)
    options = [("grpc.http2.lookahead_bytes", 65_536), ("grpc.http2.bdp_probe", 0)]
    with hosted(Desk(), options=options) as host:
        talk = host.conversation()
        talk.say(opening(), body(data))
        talk.hang_up()
        assert chunks(talk.rest()) == data


class Failing:
    """Breaks where nothing is isolated, to see that the client hears of it."""

    type_name: ClassVar = "failing"

    def on_response_end(self, data: DataView, end: RequestEnd) -> None: ...

    def admit(self, data: DataView, endpoints: Sequence[Endpoint]) -> None: ...


def test_p08_an_unexpected_exception_is_a_500_and_others_live_on(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    director = type(host.desk.wiring.director)
    decide = director.decide_now

    def breaking(self: Any, request: Any, parsed: Any, snapshot: Any) -> Any:
        if request.headers.get("x-break"):
            raise RuntimeError("SECRETPROMPT")
        return decide(self, request, parsed, snapshot)

    monkeypatch.setattr(director, "decide_now", breaking)
    broken, sound = host.conversation(), host.conversation()
    broken.say(opening(**{"x-break": "1"}), body(completion()))
    sound.say(opening(), body(completion()))
    (reply,) = broken.rest()
    assert reply.immediate_response is not None
    assert b"SECRETPROMPT" not in reply.immediate_response.body
    assert b'"code": 500' in reply.immediate_response.body
    assert chunks(sound.hear(2)) == completion()
    sound.call.cancel()
    host.until_open(0)


class Slow:
    """A producer that waits for ever, and notices when nobody waits for it any more."""

    type_name: ClassVar = "slow"
    timeout: ClassVar = 60.0
    ended: ClassVar[list[str]] = []

    async def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self.ended.append("ended")


@pytest.mark.parametrize("plain", [False, True])
def test_a_client_that_leaves_ends_what_its_request_waits_for(plain: bool) -> None:
    Slow.ended.clear()
    with hosted(Desk(wired("plugins: [{type: slow}]", Slow)), plain=plain) as host:
        talk = host.conversation()
        talk.say(opening(), body(completion()))
        host.until_open(1)
        talk.call.cancel()
        host.until_open(0)
    assert Slow.ended in (["ended"], [])


@pytest.mark.parametrize("plain", [False, True])
def test_p_18_while_a_server_drains_old_streams_go_on_and_new_ones_are_served(plain: bool) -> None:
    with hosted(Desk(), plain=plain) as host:

        async def drain() -> bool:
            with anyio.move_on_after(5) as scope:
                await host.server.drain(most=60, quiet=0.01)
            return not scope.cancelled_caught

        old = host.conversation()
        old.say(opening(), body(completion()))
        old.hear(2)
        old.say(response_headers(), response_body(b"one"))
        old.hear(2)
        draining = host.portal.start_task_soon(drain)
        new = host.conversation()
        new.say(opening(), body(completion()))
        assert chunks(new.rest()) == completion()  # nobody waits for its response any more
        assert new.code is grpc.StatusCode.OK
        assert not draining.done()
        old.say(response_body(b"two"), response_body(b"end", end=True))
        assert chunks(old.rest()) == b"twoend"
        assert draining.result(timeout=PATIENCE)


def test_draining_ends_when_no_stream_is_open(fast: Host) -> None:
    async def drain() -> bool:
        with anyio.move_on_after(5) as scope:
            await fast.server.drain(most=60, quiet=0)
        return not scope.cancelled_caught

    talk = fast.conversation()
    talk.say(opening())
    fast.until_open(1)
    draining = fast.portal.start_task_soon(drain)
    talk.say(body(completion()))
    assert chunks(talk.hear(2)) == completion()
    talk.call.cancel()
    assert draining.result(timeout=10)


def test_a_drained_server_sends_its_peers_away_and_finishes_what_is_open(fast: Host) -> None:
    async def drain() -> None:
        await fast.server.drain(most=0, quiet=0)

    talk = fast.conversation()
    talk.say(opening())
    fast.until_open(1)
    fast.portal.call(drain)
    talk.say(body(completion()))
    assert chunks(talk.hear(2)) == completion()
    talk.call.cancel()


def test_draining_ends_what_only_waits_for_the_end_of_a_response(fast: Host) -> None:
    """Outside full duplex, where no piece of the response is the picker's to pass on."""

    async def drain() -> None:
        await fast.server.drain(most=0, quiet=0)

    lean, full, late = (fast.conversation() for _ in range(3))
    lean.say(opening(LEAN), body(completion()))
    full.say(opening(), body(completion()))
    late.say(opening(LEAN))
    for talk, count in ((lean, 2), (full, 2), (late, 1)):
        talk.hear(count)
    fast.portal.call(drain)
    assert lean.rest() == []
    late.say(body(completion()))
    (decision,) = late.rest()
    assert decision.request_body is not None
    full.say(response_headers(), response_body(b"one", end=True))
    assert chunks(full.rest()) == b"one"


def test_nobody_waits_for_responses_that_are_of_no_interest() -> None:
    with hosted(Desk(), response_figures=False) as host:
        talk = host.conversation()
        talk.say(opening(), body(completion()))
        decision, passed = talk.rest()
        assert decision.request_headers is not None
        assert chunks([passed]) == completion()


def test_what_counts_requests_in_flight_waits_for_their_end() -> None:
    desk = Desk(wired("plugins: [{type: active-request-scorer}]"))
    with hosted(desk, response_figures=False) as host:
        talk = host.conversation()
        talk.say(opening(), body(completion()))
        talk.hear(2)
        talk.say(response_headers(), response_body(b"one", end=True))
        assert chunks(talk.rest()) == b"one"


def test_what_a_mode_means_for_the_configuration_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    with hosted(Desk()) as host:
        for _ in range(2):
            talk = host.conversation()
            talk.say(opening(), body(completion()))
            talk.hear(2)
            talk.call.cancel()
            host.until_open(0)
    said = [record.message for record in caplog.records if "mode is" in record.message]
    assert said == ["a proxy's mode is full-duplex"]


def test_a_port_that_is_taken_is_an_error() -> None:
    with (
        hosted(Desk()) as host,
        pytest.raises(BaseExceptionGroup) as caught,
    ):
        host.portal.call(host.server.run)
    assert caught.group_contains(OSError)


def raw_connection(port: int) -> socket.socket:
    """A connection that has said what every HTTP/2 client says first."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=5)
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
    return connection


HOSTILE = {
    "a frame that is too large": frame(0, 0, 1, b"x" * 20_000),
    "a header block that cannot be decoded": frame(HEADERS, END_HEADERS, 1, b"\xff" * 40),
    "a length that goes beyond the block": frame(HEADERS, END_HEADERS, 1, b"\x00\x7f\xff\xff"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_peer_that_does_not_speak_http2_loses_its_connection_only(fast: Host, name: str) -> None:
    with raw_connection(fast.port) as connection:
        connection.sendall(HOSTILE[name])
        while connection.recv(65_536):
            pass  # what the server says until it hangs up
    talk = fast.conversation()
    talk.say(opening(), body(completion()))
    assert chunks(talk.hear(2)) == completion()
    talk.call.cancel()


def test_a_peer_that_sends_goaway_still_gets_its_answers(fast: Host) -> None:
    call = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", PROCESS.encode()),
        (b":authority", b"x"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    ]
    with raw_connection(fast.port) as connection:
        connection.sendall(frame(HEADERS, END_HEADERS, 1, literals(call)))
        connection.sendall(frame(GOAWAY, 0, 0, bytes(8)))
        connection.sendall(frame(HEADERS, END_HEADERS | 1, 1, b""))
        heard = b""
        while b"grpc-status" not in heard:
            more = connection.recv(65_536)
            assert more
            heard += more
