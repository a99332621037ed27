"""The fast edge frame by frame: what a peer may send, and what it gets to see."""

from __future__ import annotations

import anyio
import pytest
from anyio import CancelScope
from grpclib.const import Status
from h2.events import Event, ResponseReceived, StreamReset, TrailersReceived
from h2.settings import SettingCodes

from pointsman.actors.extproc_server_lane import (
    DATA,
    END_STREAM,
    HEADERS,
    PADDED,
    RST_STREAM,
    frame,
    literals,
)

from .edges import CALL, LIMIT, Pair, data_of, message, on_asyncio

pytestmark = pytest.mark.long


@on_asyncio
async def test_messages_go_in_and_out_whole(pair: Pair) -> None:
    lane = pair.call()
    pair.peer.send_data(1, message(b"one") + message(b"two"))
    pair.send()
    assert await lane.receive() == [b"one", b"two"]
    lane.send([b"a", b"", b"ccc"])
    events = await pair.heard()
    assert isinstance(events[-4], ResponseReceived)
    assert data_of(events) == message(b"a") + message(b"") + message(b"ccc")


@on_asyncio
async def test_a_message_may_be_cut_anywhere(pair: Pair) -> None:
    lane = pair.call()
    for byte in message(b"one") + message(b"two"):
        pair.peer.send_data(1, bytes((byte,)))
    stream = pair.peer.data_to_send()
    for start in range(0, len(stream), 7):
        pair.edge.data_received(stream[start : start + 7])
    assert await lane.receive() == [b"one", b"two"]


@on_asyncio
async def test_the_replies_of_one_turn_leave_in_one_write(pair: Pair) -> None:
    lane, other = pair.call(1), pair.call(3)
    pair.wire.take()
    lane.send([b"a"])
    other.send([b"b", b"c"])
    assert pair.wire.writes == []
    await anyio.lowlevel.checkpoint()
    assert len(pair.wire.writes) == 1


@on_asyncio
async def test_what_the_windows_do_not_take_waits(pair: Pair) -> None:
    lane = pair.call()
    data = b"x" * 200_000
    lane.send([data])
    assert lane.congested
    received = b""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.drained)
        while len(received) < len(message(data)):
            received += data_of(await pair.heard())
            pair.send()
    assert received == message(data)
    assert not lane.congested


@on_asyncio
async def test_small_messages_share_the_connections_window(pair: Pair) -> None:
    """The peer takes offence at a byte too much."""
    pair.peer.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1_000_000})
    pair.send()
    lanes = [pair.call(1), pair.call(3)]
    for _ in range(40):
        for lane in lanes:
            lane.send([b"x" * 995])
    received = 0
    while any(lane.congested for lane in lanes) or received < 80_000:
        received += len(data_of(await pair.heard()))
        pair.send()
    assert received == 80_000


@on_asyncio
async def test_lanes_that_wait_for_nothing_are_left_alone(pair: Pair) -> None:
    """However many are open: a proxy keeps one connection for thousands."""
    idle, busy = pair.call(1), pair.call(3)
    busy.send([b"x" * 200_000])
    assert list(pair.edge._blocked) == [busy]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(busy.drained)
        while busy.congested:
            await pair.heard()
            pair.send()
    assert idle not in pair.edge._blocked
    pair.edge.pause_writing()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(busy.drained)
        await anyio.lowlevel.checkpoint()
        assert list(pair.edge._blocked) == [busy]
        pair.edge.resume_writing()


@on_asyncio
async def test_a_lane_that_leaves_waits_for_nothing_any_more(pair: Pair) -> None:
    lane = pair.call()
    lane.send([b"x" * 200_000])
    pair.peer.reset_stream(1)
    pair.send()
    assert not pair.edge._blocked


@on_asyncio
async def test_a_change_of_the_initial_window_counts_for_open_lanes(pair: Pair) -> None:
    pair.peer.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
    lane = pair.call()
    lane.send([b"x" * 20])
    assert len(data_of(await pair.heard())) == 10
    pair.peer.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 100})
    pair.send()
    assert len(data_of(await pair.heard())) == 15


@on_asyncio
async def test_a_large_message_gets_room_while_it_comes(pair: Pair) -> None:
    """It is larger than the window that the edge announces."""
    pair.edge.message_limit = 20_000_000
    lane = pair.call()
    data = message(b"x" * 9_000_000)
    sent = 0
    while sent < len(data):
        await pair.heard()
        size = min(pair.peer.local_flow_control_window(1), 16_384, len(data) - sent)
        assert size > 0
        pair.peer.send_data(1, data[sent : sent + size])
        sent += size
        pair.send()
    assert [len(one) for one in await lane.receive()] == [9_000_000]


@on_asyncio
async def test_an_ended_lane_says_its_status_last(pair: Pair) -> None:
    lane = pair.call()
    lane.send([b"x" * 100_000])
    lane.finish(Status.OK)
    lane.finish(Status.INTERNAL)
    events: list[Event] = []
    while not any(isinstance(event, TrailersReceived) for event in events):
        events += await pair.heard()
        pair.send()
    (trailers,) = (event for event in events if isinstance(event, TrailersReceived))
    assert (b"grpc-status", b"0") in list(trailers.headers or ())
    assert len(data_of(events)) == 100_005
    assert pair.edge.lanes == {}


@on_asyncio
async def test_a_lane_that_ends_before_it_said_anything_is_a_whole_reply(pair: Pair) -> None:
    pair.call().finish(Status.UNIMPLEMENTED, "no")
    events = await pair.heard()
    (reply,) = (event for event in events if isinstance(event, ResponseReceived))
    assert dict(reply.headers or ())[b"grpc-status"] == b"12"
    assert reply.stream_ended is not None


@on_asyncio
async def test_a_reset_closes_the_lane_and_what_came_before_is_still_read(pair: Pair) -> None:
    lane = pair.call()
    pair.peer.send_data(1, message(b"last"))
    pair.peer.reset_stream(1, error_code=2)
    pair.send()
    assert await lane.receive() == [b"last"]
    assert await lane.receive() == []
    lane.send([b"nobody hears this"])
    assert data_of(await pair.heard()) == b""


@on_asyncio
async def test_a_reset_ends_what_the_handler_waits_for(pair: Pair) -> None:
    lane = pair.call()
    with CancelScope() as scope:
        lane.cancel_on_close(scope)
        pair.peer.reset_stream(1)
        pair.send()
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    with CancelScope() as late:
        lane.cancel_on_close(late)
        await anyio.sleep_forever()
    assert late.cancelled_caught


@on_asyncio
async def test_a_lost_connection_closes_every_lane(pair: Pair) -> None:
    lanes = [pair.call(1), pair.call(3)]
    pair.edge.connection_lost(None)
    assert [await lane.receive() for lane in lanes] == [[], []]
    assert pair.lost == [pair.edge]


@on_asyncio
async def test_padding_is_taken_off(pair: Pair) -> None:
    lane = pair.call()
    padded = b"\x03" + message(b"one") + b"\x00\x00\x00"
    pair.send(frame(DATA, PADDED | END_STREAM, 1, padded))
    assert await lane.receive() == [b"one"]
    assert await lane.receive() == []


@on_asyncio
async def test_the_end_of_the_peers_side_may_come_with_data_or_trailers(pair: Pair) -> None:
    with_data, with_trailers = pair.call(1), pair.call(3)
    pair.peer.send_data(1, message(b"x"), end_stream=True)
    pair.peer.send_headers(3, [("a", "b")], end_stream=True)
    pair.send()
    assert [await with_data.receive(), await with_data.receive()] == [[b"x"], []]
    assert await with_trailers.receive() == []


@on_asyncio
async def test_frames_of_a_lane_that_has_left_do_no_harm(pair: Pair) -> None:
    pair.call().finish(Status.OK)
    await pair.heard()
    late = frame(DATA, 0, 1, b"late") + frame(RST_STREAM, 0, 1, bytes(4))
    pair.send(late + frame(8, 0, 1, b"\x00\x00\x00\x01"))
    lane = pair.call(3)
    pair.peer.send_data(3, message(b"still here"))
    pair.send()
    assert await lane.receive() == [b"still here"]


@on_asyncio
async def test_other_methods_go_to_grpclib(pair: Pair) -> None:
    health = [
        (":path", "/grpc.health.v1.Health/Check") if n == ":path" else (n, v) for n, v in CALL
    ]
    pair.peer.send_headers(1, health)
    pair.peer.send_data(1, message(b"x"), end_stream=True)
    pair.send()
    assert [stream.id for stream in pair.grpclib.streams] == [1]
    assert pair.lanes == []
    lane = pair.call(3)
    pair.peer.send_data(3, message(b"y"))
    pair.send()
    assert await lane.receive() == [b"y"]


@on_asyncio
async def test_odd_header_frames_go_to_grpclib_too(pair: Pair) -> None:
    pair.peer.send_headers(1, CALL, priority_weight=16)
    pair.send()
    assert [stream.id for stream in pair.grpclib.streams] == [1]


@on_asyncio
async def test_header_blocks_that_repeat_are_decoded_once(pair: Pair) -> None:
    for number in range(5):
        pair.call(2 * number + 1)
    assert len(pair.lanes) == 5
    assert len(pair.edge._decoded) == 1


@on_asyncio
async def test_a_block_means_what_the_table_says_now(pair: Pair) -> None:
    """The same bytes, after the table has changed, are other headers."""
    pair.call(1)
    pair.call(3)
    pair.peer.send_headers(5, [*CALL, ("x-new", "entry")])
    pair.send()
    pair.call(7)
    assert len(pair.lanes) == 4


@on_asyncio
async def test_a_message_that_is_too_large_is_refused(pair: Pair) -> None:
    pair.call()
    pair.send(frame(DATA, 0, 1, b"\x00" + (LIMIT + 1).to_bytes(4, "big") + b"x"))
    events = await pair.heard()
    (reply,) = (event for event in events if isinstance(event, ResponseReceived))
    assert dict(reply.headers or ())[b"grpc-status"] == b"8"


@on_asyncio
async def test_a_compressed_message_is_refused(pair: Pair) -> None:
    pair.call()
    pair.send(frame(DATA, 0, 1, b"\x01" + (1).to_bytes(4, "big") + b"x"))
    events = await pair.heard()
    (reply,) = (event for event in events if isinstance(event, ResponseReceived))
    assert dict(reply.headers or ())[b"grpc-status"] == b"12"


@on_asyncio
async def test_a_draining_edge_refuses_new_streams(pair: Pair) -> None:
    pair.call(1)
    await pair.heard()
    pair.edge.go_away()
    goodbye = pair.wire.take()
    await anyio.lowlevel.checkpoint()
    goodbye += pair.wire.take()
    assert goodbye.startswith(b"\x00\x00\x08\x07")
    pair.peer.send_headers(3, CALL)
    pair.send()
    assert len(pair.lanes) == 1
    assert any(isinstance(event, StreamReset) for event in await pair.heard())


@on_asyncio
async def test_a_paused_transport_congests_its_lanes(pair: Pair) -> None:
    lane = pair.call()
    pair.edge.pause_writing()
    assert lane.congested
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.drained)
        await anyio.lowlevel.checkpoint()
        pair.edge.resume_writing()
    assert not lane.congested


@on_asyncio
async def test_room_does_not_make_up_for_a_paused_transport(pair: Pair) -> None:
    lane = pair.call()
    pair.edge.pause_writing()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.drained)
        for number in (None, 1):
            await anyio.lowlevel.checkpoint()
            pair.peer.increment_flow_control_window(1000, number)
            pair.send()
        await anyio.lowlevel.checkpoint()
        assert lane.congested
        pair.edge.resume_writing()


@on_asyncio
async def test_the_connection_window_opens_again(pair: Pair) -> None:
    """More than the connection's window, over many streams that nobody reads from."""
    for number in range(1, 9, 2):
        pair.call(number)
        for _ in range(100):
            await pair.heard()
            pair.peer.send_data(number, b"x" * 16_000)
            pair.send()


@pytest.mark.parametrize("size", [0, 126, 127, 128, 254, 255, 20_000])
def test_literals_are_hpack(size: int) -> None:
    from hpack import Decoder

    headers = [(b":path", b"/x"), (b"x-long", b"v" * size)]
    decoded = Decoder().decode(literals(headers), raw=True)
    assert [(bytes(name), bytes(value)) for name, value in decoded] == headers


def test_a_frame_is_a_frame() -> None:
    from hyperframe.frame import Frame, HeadersFrame

    whole = frame(HEADERS, 0x5, 7, b"abc")
    parsed, length = Frame.parse_frame_header(memoryview(whole[:9]))
    assert isinstance(parsed, HeadersFrame)
    flags = {str(flag) for flag in parsed.flags}
    assert (parsed.stream_id, length, flags) == (7, 3, {"END_STREAM", "END_HEADERS"})
