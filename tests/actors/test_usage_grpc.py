"""Token counts of vLLM's gRPC answers, read from frames that were cut anywhere."""

from __future__ import annotations

from betterproto2 import Message
from hypothesis import given
from hypothesis import strategies as st
from tests.plugins.parsers.grpc_messages import (
    EmbedResponse,
    GenerateComplete,
    GenerateResponse,
    GenerateStreamChunk,
    framed,
)

from pointsman.actors.usage import UsageReader
from pointsman.actors.usage_grpc import LONGEST, Frames
from pointsman.kernel.model import Usage


def read(*chunks: bytes) -> Usage | None:
    reader = UsageReader()
    for chunk in chunks:
        reader.feed(chunk)
    return reader.usage


def so_far(prompt: int, completion: int, cached: int = 0) -> Message:
    counts = GenerateStreamChunk([1, 70000], prompt, completion, cached)
    return GenerateResponse(chunk=counts)


DONE = GenerateResponse(complete=GenerateComplete([1, 2, 3], "stop", 9, 3, 8))
EMBEDDED = EmbedResponse([0.5] * 100, 9, 100)
STREAM = framed(so_far(9, 1)) + framed(so_far(9, 2)) + framed(DONE)


def test_the_last_answer_counts() -> None:
    assert read(STREAM) == Usage(9, 3, 8)
    assert read(framed(so_far(9, 1)), framed(so_far(9, 2, 8))) == Usage(9, 2, 8)


def test_every_single_cut_gives_the_same() -> None:
    assert all(read(STREAM[:cut], STREAM[cut:]) == Usage(9, 3, 8) for cut in range(len(STREAM)))


def test_single_bytes_give_the_same() -> None:
    assert read(*(STREAM[n : n + 1] for n in range(len(STREAM)))) == Usage(9, 3, 8)


def test_embeddings_only_have_a_prompt() -> None:
    assert read(framed(EMBEDDED)) == Usage(9, None, None)


def test_an_embedding_is_not_taken_for_counts() -> None:
    """Its numbers are bytes of the kind that a chunk is."""
    looks_like = bytes(GenerateStreamChunk(prompt_tokens=5, completion_tokens=4))
    assert read(framed(b"\x0a\x04" + looks_like + b"\x18\x01")) is None


def test_compressed_messages_are_opaque() -> None:
    assert read(framed(so_far(9, 1), flag=0) + framed(DONE, flag=1)) == Usage(9, 1, None)


def test_overlong_messages_pass_by_unread() -> None:
    long = framed(b"\x0a\xff\xff\x7f" + bytes(3 * LONGEST))
    text = framed(so_far(9, 1)) + long + framed(DONE)
    for size in (1000, LONGEST, len(text)):
        chunks = [text[start : start + size] for start in range(0, len(text), size)]
        assert read(*chunks) == Usage(9, 3, 8)


def test_no_more_is_held_than_one_frame() -> None:
    frames = Frames()
    for _ in range(10):
        frames.feed(b"\0\0\0\xff\xff" + bytes(1000))
        assert len(frames._held) <= LONGEST


def test_what_is_no_message_says_nothing() -> None:
    assert read(framed(b"\x0b\x0c") + framed(b"\x0a\x01\x80") + framed(b"")) is None


@given(st.lists(st.binary(max_size=20) | st.sampled_from([framed(DONE), b"\0\0\0\0\x02\x0a\x00"])))
def test_no_bytes_disturb_it(chunks: list[bytes]) -> None:
    read(b"\0", *chunks)
