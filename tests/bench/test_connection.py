"""The client's end of a connection, with a hand-written server at the other end of a socket."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator

import pytest
from attrs import define, field
from hpack import Decoder, Encoder

from . import wire
from .connection import METHOD, Connection
from .load import script
from .stream import Ending, LoadError, Script
from .test_wire import framed, frames
from .wire import Step

pytestmark = pytest.mark.long

ONE = script((Step((b"question",), replies=1),))
TWO = script((Step((b"a",), replies=1), Step((b"b",), replies=1)))


@define(eq=False)
class Count:
    """A tally that only counts."""

    decisions: int = 0
    finishes: int = 0

    def decided(self, due: float) -> None:
        self.decisions += 1

    def finished(self) -> None:
        self.finishes += 1


@define(eq=False)
class Peer:
    """A connection and its server, which is the test."""

    sock: socket.socket
    connection: Connection
    tally: Count = field(factory=Count)

    def open(self, script: Script = ONE) -> None:
        self.connection.open(script, self.tally, due=0.0)

    def send(self, *frames: bytes) -> None:
        """Let the client receive *frames*."""
        self.sock.sendall(b"".join(frames))
        self.connection.receive()

    def received(self) -> list[tuple[int, int, int, bytes]]:
        """What the client has sent since the last time."""
        self.connection.flush()
        try:
            return frames(self.sock.recv(1 << 20))
        except BlockingIOError:
            return []


def data(stream: int, *messages: bytes) -> bytes:
    return wire.frame(wire.DATA, framed(list(messages)), stream)


def settings(values: dict[int, int]) -> bytes:
    return wire.frame(wire.SETTINGS, wire.settings(values))


def trailers(stream: int, **values: str) -> bytes:
    named = [(name.replace("_", "-"), value) for name, value in values.items()]
    block = Encoder().encode(named)
    return wire.frame(wire.HEADERS, block, stream, wire.END_HEADERS | wire.END_STREAM)


@pytest.fixture
def peer() -> Generator[Peer]:
    """A server that has seen the client's greeting."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        connection = Connection(ours)
        connection.greet()
        connection.flush()
        assert theirs.recv(1 << 16).startswith(wire.PREFACE)
        yield Peer(theirs, connection)


def test_a_stream_begins_with_the_headers_of_a_grpc_call(peer: Peer) -> None:
    peer.open()
    (kind, flags, stream, block), *_ = peer.received()
    assert (kind, flags, stream) == (wire.HEADERS, wire.END_HEADERS, 1)
    headers = dict(Decoder().decode(block, raw=True))
    assert headers[b":path"] == METHOD.encode()
    assert headers[b"content-type"] == b"application/grpc"


def test_later_streams_refer_to_the_headers_of_the_first(peer: Peer) -> None:
    decoder = Decoder()
    for _ in range(3):
        peer.open()
    blocks = [payload for kind, *_, payload in peer.received() if kind == wire.HEADERS]
    first, *later = [list(decoder.decode(block)) for block in blocks]
    assert later == [first, first]
    assert len(blocks[1]) < len(blocks[0])
    assert blocks[1] == blocks[2]


def test_a_step_waits_for_the_replies_to_the_one_before(peer: Peer) -> None:
    peer.open(TWO)
    assert framed([b"a"]) in [payload for *_, payload in peer.received()]
    peer.send(data(1, b"reply"))
    assert peer.received() == [(wire.DATA, 0, 1, framed([b"b"]))]


def test_the_last_reply_is_followed_by_a_reset(peer: Peer) -> None:
    peer.open()
    peer.received()
    peer.send(data(1, b"reply"))
    assert peer.received() == [(wire.RST_STREAM, 0, 1, b"\0\0\0\2")]
    assert (peer.tally.decisions, peer.tally.finishes) == (1, 1)


def test_a_half_closed_stream_finishes_with_the_server_s_status(peer: Peer) -> None:
    peer.open(ONE.ending_by(Ending.HALF_CLOSE))
    peer.received()
    peer.send(data(1, b"reply"))
    assert peer.received() == [(wire.DATA, wire.END_STREAM, 1, b"")]
    assert peer.tally.finishes == 0
    peer.send(trailers(1, grpc_status="0"))
    assert peer.tally.finishes == 1


def test_a_held_stream_stays_open(peer: Peer) -> None:
    peer.open(ONE.ending_by(Ending.HOLD))
    peer.received()
    peer.send(data(1, b"reply"))
    assert peer.received() == []
    assert list(peer.connection.streams) == [1]


def test_a_surplus_reply_is_an_error(peer: Peer) -> None:
    peer.open()
    with pytest.raises(
        LoadError, match="stream 1, step 1 of 1, which awaits 1 more replies, got 2"
    ):
        peer.send(data(1, b"reply", b"surplus"))


def test_a_reply_after_the_last_one_is_an_error(peer: Peer) -> None:
    peer.open(ONE.ending_by(Ending.SERVER))
    peer.send(data(1, b"reply"))
    with pytest.raises(LoadError, match="stream 1, which has all its replies, got 1"):
        peer.send(data(1, b"surplus"))


def test_a_stream_that_the_server_ends_too_soon_is_an_error(peer: Peer) -> None:
    peer.open(TWO)
    with pytest.raises(LoadError, match=r"ended stream 1, step 1 of 2, .*grpc-message: no route"):
        peer.send(trailers(1, grpc_status="14", grpc_message="no route"))


def test_a_status_other_than_0_is_an_error(peer: Peer) -> None:
    peer.open(ONE.ending_by(Ending.SERVER))
    with pytest.raises(LoadError, match=r"\(grpc-status: 13\)"):
        peer.send(data(1, b"reply"), trailers(1, grpc_status="13"))


def test_a_reset_by_the_server_is_an_error(peer: Peer) -> None:
    peer.open()
    with pytest.raises(LoadError, match=r"the server reset stream 1, .*\(code 8\)"):
        peer.send(wire.frame(wire.RST_STREAM, b"\0\0\0\x08", 1))


def test_going_away_is_an_error_that_says_why(peer: Peer) -> None:
    peer.open()
    with pytest.raises(LoadError, match="GOAWAY 11 'too_many_pings', with 1 streams open"):
        peer.send(wire.frame(wire.GOAWAY, b"\0\0\0\1\0\0\0\x0btoo_many_pings"))


def test_a_closed_connection_is_an_error_that_names_an_open_stream(peer: Peer) -> None:
    peer.open()
    peer.sock.close()
    with pytest.raises(
        LoadError, match="closed the connection, with 1 streams open, first stream 1"
    ):
        peer.connection.receive()


def test_what_comes_after_a_reset_is_ignored(peer: Peer) -> None:
    peer.open()
    peer.send(data(1, b"reply"))
    peer.send(data(1, b"late"), trailers(1, grpc_status="1"))
    assert peer.tally.finishes == 1


def test_frames_may_come_in_pieces(peer: Peer) -> None:
    peer.open()
    whole = data(1, b"reply")
    for at in range(len(whole)):
        peer.send(whole[at : at + 1])
    assert peer.tally.finishes == 1


def test_pings_and_settings_are_acknowledged(peer: Peer) -> None:
    peer.send(settings({}), wire.frame(wire.PING, b"12345678"))
    assert peer.received() == [
        (wire.SETTINGS, wire.ACK, 0, b""),
        (wire.PING, wire.ACK, 0, b"12345678"),
    ]


def test_the_server_s_limit_of_streams_is_known(peer: Peer) -> None:
    peer.send(settings({wire.SETTINGS_MAX_CONCURRENT_STREAMS: 100}))
    assert peer.connection.limit == 100


def test_headers_are_spelled_out_for_a_server_that_keeps_no_table(peer: Peer) -> None:
    peer.send(settings({wire.SETTINGS_HEADER_TABLE_SIZE: 0}))
    decoder = Decoder()
    decoder.max_allowed_table_size = 0
    peer.open()
    peer.open()
    blocks = [payload for kind, *_, payload in peer.received() if kind == wire.HEADERS]
    first, second = [list(decoder.decode(block)) for block in blocks]
    assert first == second


def test_no_more_is_sent_than_a_stream_s_window_allows(peer: Peer) -> None:
    peer.send(settings({wire.SETTINGS_INITIAL_WINDOW_SIZE: 6}))
    peer.open()
    peer.received()
    peer.send(wire.window_update(4, stream=1))
    assert peer.received() == [(wire.DATA, 0, 1, b"uest")]


def test_no_more_is_sent_than_the_connection_s_window_allows(peer: Peer) -> None:
    peer.send(settings({wire.SETTINGS_INITIAL_WINDOW_SIZE: 1 << 20}))
    peer.open(script((Step((bytes(100_000),), replies=1),)))
    sent = [payload for kind, *_, payload in peer.received() if kind == wire.DATA]
    assert len(b"".join(sent)) == wire.DEFAULT_WINDOW
    peer.send(wire.window_update(100_000))
    rest = [payload for kind, *_, payload in peer.received() if kind == wire.DATA]
    assert b"".join(sent + rest) == framed([bytes(100_000)])


def test_a_larger_initial_window_lets_waiting_streams_go_on(peer: Peer) -> None:
    peer.send(settings({wire.SETTINGS_INITIAL_WINDOW_SIZE: 0}))
    peer.open()
    peer.received()
    peer.send(settings({wire.SETTINGS_INITIAL_WINDOW_SIZE: 100}))
    assert (wire.DATA, 0, 1, framed([b"question"])) in peer.received()


def test_replies_before_the_messages_were_sent_are_an_error(peer: Peer) -> None:
    peer.send(settings({wire.SETTINGS_INITIAL_WINDOW_SIZE: 0}))
    peer.open()
    with pytest.raises(LoadError, match="got all before its messages were sent"):
        peer.send(data(1, b"reply"))


def test_half_of_a_stream_s_window_is_given_back_at_once(peer: Peer) -> None:
    peer.open(script((Step((b"a",), replies=2),)))
    peer.received()
    part = wire.frame(wire.DATA, framed([bytes(16_379)]), 1)
    peer.send(part)
    assert peer.received() == []
    part = wire.frame(wire.DATA, framed([bytes(50_000)])[:16_384], 1)
    peer.send(part)
    assert peer.received() == [(wire.WINDOW_UPDATE, 0, 1, (32_768).to_bytes(4, "big"))]


def test_a_held_stream_can_go_on_with_another_script(peer: Peer) -> None:
    peer.open(ONE.ending_by(Ending.HOLD))
    peer.send(data(1, b"reply"))
    peer.received()
    peer.connection.resume(peer.connection.streams[1], TWO)
    assert peer.received() == [(wire.DATA, 0, 1, framed([b"a"]))]
    peer.send(data(1, b"reply"))
    assert peer.received() == [(wire.DATA, 0, 1, framed([b"b"]))]


def test_what_a_socket_does_not_take_at_once_is_sent_later_and_in_order(peer: Peer) -> None:
    peer.send(settings({wire.SETTINGS_INITIAL_WINDOW_SIZE: 1 << 23}), wire.window_update(1 << 23))
    body = b"".join(number.to_bytes(4, "big") for number in range(1 << 20))
    peer.open(script((Step((body,), replies=1),)))
    peer.connection.flush()
    assert peer.connection.unsent
    sent = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            sent += peer.sock.recv(1 << 20)
            peer.connection.flush()
    payloads = [payload for kind, *_, payload in frames(sent) if kind == wire.DATA]
    assert b"".join(payloads) == framed([body])
