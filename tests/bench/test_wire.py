from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from . import wire
from .wire import Framing, Step

pytestmark = pytest.mark.long


def frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Type, flags, stream and payload of every frame in *data*."""
    found: list[tuple[int, int, int, bytes]] = []
    while data:
        high, low, kind, flags, stream = wire.HEAD.unpack_from(data)
        end = wire.HEAD.size + (high << 16 | low)
        found.append((kind, flags, stream, data[wire.HEAD.size : end]))
        data = data[end:]
    return found


def framed(messages: list[bytes]) -> bytes:
    return b"".join(b"\0" + len(one).to_bytes(4, "big") + one for one in messages)


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 50), min_size=1))
def test_messages_are_counted_wherever_the_bytes_are_cut(
    messages: list[bytes], sizes: list[int]
) -> None:
    data, framing = framed(messages), Framing()
    cuts = [0, *(cut for cut in accumulate(sizes) if cut < len(data)), len(data)]
    assert sum(framing.feed(data, *cut) for cut in pairwise(cuts)) == len(messages)


@given(st.lists(st.binary(max_size=40)))
def test_a_stream_is_cut_into_its_messages(messages: list[bytes]) -> None:
    assert wire.messages(framed(messages)) == messages


def test_a_burst_is_written_on_any_stream_by_one_join() -> None:
    burst = wire.burst(Step((b"one", b""), replies=1))
    sent = frames((7).to_bytes(4, "big").join(burst.pieces))
    assert sent == [(wire.DATA, 0, 7, framed([b"one"])), (wire.DATA, 0, 7, framed([b""]))]


def test_a_burst_counts_what_it_takes_of_the_windows() -> None:
    assert wire.burst(Step((b"one", b"four"), replies=1)).size == 5 + 3 + 5 + 4


def test_a_message_longer_than_a_frame_goes_in_several() -> None:
    message = bytes(range(256)) * 200
    sent = frames(b"\0\0\0\1".join(wire.burst(Step((message,), replies=1)).pieces))
    assert [len(payload) for *_, payload in sent] == [16_384, 16_384, 16_384, 5 + 51_200 - 49_152]
    assert b"".join(payload for *_, payload in sent) == framed([message])


def test_settings_are_read_as_they_were_written() -> None:
    values = {wire.SETTINGS_ENABLE_PUSH: 0, wire.SETTINGS_INITIAL_WINDOW_SIZE: 65_536}
    assert wire.read_settings(wire.settings(values)) == values


def test_padding_and_priority_do_not_belong_to_a_header_block() -> None:
    flags = wire.PADDED | wire.PRIORITY
    assert wire.block_of(b"\2" + b"prior" + b"block" + b"\0\0", flags) == b"block"
