"""Token counts are found in every dialect, however the bytes were cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.usage import LONGEST, MUCH, UsageReader, encoding_of
from pointsman.kernel.model import Usage

from .scripts import headers_of


def read(*chunks: bytes) -> Usage | None:
    reader = UsageReader()
    for chunk in chunks:
        reader.feed(chunk)
    return reader.usage


def sse(*events: object) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


CHAT = json.dumps(
    {
        "choices": [{"message": {"content": 'say "usage": {"prompt_tokens": 99}'}}],
        "usage": {
            "prompt_tokens": 36,
            "total_tokens": 42,
            "completion_tokens": 6,
            "prompt_tokens_details": {"cached_tokens": 32},
        },
    },
    indent=1,
).encode()
STREAM = (
    sse({"choices": [{"delta": {"content": "usage"}}], "usage": None})
    + sse({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
    + b"data: [DONE]\n\n"
)
ANTHROPIC = b"event: message_start\n" + sse(
    {
        "type": "message_start",
        "message": {"usage": {"input_tokens": 11, "cache_read_input_tokens": 8}},
    },
    {"type": "message_delta", "usage": {"output_tokens": 7}},
)
RESPONSES = sse(
    {"type": "response.created", "response": {"usage": None}},
    {
        "type": "response.completed",
        "response": {
            "usage": {
                "input_tokens": 4,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 3,
            }
        },
    },
)
SGLANG = json.dumps(
    {
        "text": 'say "meta_info": {"prompt_tokens": 99}',
        "meta_info": {
            "id": "1",
            "finish_reason": {"type": "length", "length": 8},
            "prompt_tokens": 4,
            "completion_tokens": 8,
            "cached_tokens": 3,
        },
    }
).encode()
SGLANG_STREAM = sse(
    {"text": "a", "meta_info": {"finish_reason": None, "prompt_tokens": 4, "completion_tokens": 1}},
    {
        "text": "ab",
        "meta_info": {
            "finish_reason": {"type": "stop", "matched": 2},
            "prompt_tokens": 4,
            "completion_tokens": 2,
            "cached_tokens": 0,
        },
    },
)
DIALECTS = [
    pytest.param(CHAT, Usage(36, 6, 32), id="chat"),
    pytest.param(STREAM, Usage(5, 2, None), id="stream"),
    pytest.param(ANTHROPIC, Usage(11, 7, 8), id="anthropic"),
    pytest.param(RESPONSES, Usage(4, 3, 0), id="responses"),
    pytest.param(SGLANG, Usage(4, 8, 3), id="sglang"),
    pytest.param(SGLANG_STREAM, Usage(4, 2, 0), id="sglang stream"),
]


@pytest.mark.parametrize(("text", "usage"), DIALECTS)
def test_usage_is_found_in_each_dialect(text: bytes, usage: Usage) -> None:
    assert read(text) == usage


@pytest.mark.parametrize(("text", "usage"), DIALECTS)
def test_every_single_cut_gives_the_same(text: bytes, usage: Usage) -> None:
    assert all(read(text[:cut], text[cut:]) == usage for cut in range(len(text)))


@pytest.mark.parametrize(("text", "usage"), DIALECTS)
def test_single_bytes_give_the_same(text: bytes, usage: Usage) -> None:
    assert read(*(text[n : n + 1] for n in range(len(text)))) == usage


@given(
    st.sampled_from([CHAT, STREAM, ANTHROPIC, RESPONSES, SGLANG, SGLANG_STREAM]),
    st.lists(st.integers(0, 600), max_size=6),
)
def test_any_cuts_give_the_same(text: bytes, cuts: Sequence[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert read(*pieces) == read(text)


ODD = st.text('{}"\\\n:x', max_size=12)


@given(
    st.dictionaries(ODD, ODD | st.dictionaries(ODD, ODD, max_size=2), max_size=5), st.floats(0, 1)
)
def test_a_brace_or_quote_in_a_string_ends_nothing(odd: dict[str, object], cut: float) -> None:
    text = sse({"usage": {**odd, "prompt_tokens": 7}})
    place = round(cut * len(text))
    assert read(text[:place], text[place:]) == Usage(7)


def test_what_was_not_said_later_stays() -> None:
    """Continuous usage: each event has the counts so far."""
    events = [{"usage": {"prompt_tokens": 9}}, {"usage": {"completion_tokens": 1}}]
    assert read(sse(*events, {"usage": {"completion_tokens": 2}})) == Usage(9, 2, None)


def test_b_11_a_count_is_not_replaced_by_0() -> None:
    """Events that only say what was generated may hold a 0 for what was read."""
    events = [{"usage": {"input_tokens": 9, "output_tokens": 0}}, {"usage": {"output_tokens": 4}}]
    assert read(sse(*events, {"usage": {"input_tokens": 0}})) == Usage(9, 4, None)
    assert read(sse({"usage": {"output_tokens": 0}})) == Usage(None, 0, None)


@pytest.mark.parametrize("count", ["7", 7, 7.0])
def test_counts_may_be_written_as_text(count: object) -> None:
    assert read(sse({"usage": {"prompt_tokens": count}})) == Usage(prompt_tokens=7)


NO_DETAILS: list[object] = [0, [], {"cached_tokens": []}]


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        NO_DETAILS,
        "x",
        3,
        *({"prompt_tokens": count} for count in (-1, True, 1.5, 1e300, 2**64, "-1", "1e3", None)),
        *({"prompt_tokens_details": details} for details in NO_DETAILS),
    ],
)
def test_b_10_a_malformed_usage_is_none(usage: object) -> None:
    assert read(sse({"usage": usage})) is None


@pytest.mark.parametrize(
    "usage",
    [b'{"a":' + b"[" * 1900 + b"]" * 1900 + b"}", b'{"prompt_tokens":1e400}', b'{"\xff":1}'],
)
def test_b_10_a_usage_that_cannot_be_read_does_not_disturb_the_next(usage: bytes) -> None:
    text = b'data: {"usage":' + usage + b"}\n\n"
    assert read(text, sse({"usage": {"prompt_tokens": 5}})) == Usage(5)


@pytest.mark.parametrize(
    "text", [b'"usage": {"prompt_tokens": }', b'"usage": {"a": "}', b'"usage"']
)
def test_broken_json_is_no_usage(text: bytes) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    "chunks",
    [
        [b'"usage" ' * 60_000] * 4,
        [b'"usage" x' * 60_000] * 4,
        [b'"usage":{' * 60_000],
        [b'"usage":{"x', *[b'\\"'] * 20_000],
        [b'"usage":', *[b"{"] * 20_000],
        [b'"usage":', *[b" "] * 20_000],
    ],
    ids=["no colons", "no colon, more", "no ends", "a long string", "braces", "a long wait"],
)
def test_r_01_no_response_takes_long_to_look_at(chunks: list[bytes]) -> None:
    started = process_time()
    assert read(*chunks) is None
    assert process_time() - started < 5.0  # of CPU: ten times what it takes


def test_an_object_without_end_is_not_held_for_ever() -> None:
    reader = UsageReader()
    for _ in range(100):
        reader.feed(b'"usage": {"a": "' + b"x" * 1000)
        assert len(reader._held) <= LONGEST + 1100
    reader.feed(sse({"usage": {"prompt_tokens": 1}}))
    assert reader.usage is None or reader.usage == Usage(prompt_tokens=1)


@given(
    st.lists(st.binary(max_size=30) | st.sampled_from([b'"usage"', b":{", b"}", b'"']), max_size=30)
)
def test_no_bytes_disturb_it(chunks: list[bytes]) -> None:
    read(*chunks)


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [(None, ""), ("identity", ""), ("gzip", "gzip"), ("br", "br"), (" GZIP ", "gzip")],
)
def test_compressed_responses_are_opaque(encoding: str | None, expected: str) -> None:
    pairs = [] if encoding is None else [("content-encoding", encoding.encode())]
    assert encoding_of(headers_of(pairs)) == expected


DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("stream", Usage(72, 8, None)),
        ("continuous", Usage(9, 4, None)),
        ("whole", Usage(78, 16, None)),
    ],
)
def test_real_responses_have_their_usage(name: str, usage: Usage) -> None:
    """What vLLM 0.32 wrote."""
    assert read((DATA / f"vllm-chat-{name}.txt").read_bytes()) == usage


def test_of_a_large_piece_the_ends_are_looked_at() -> None:
    first, last = b'{"usage":{"input_tokens":3}}', b'{"usage":{"output_tokens":5}}'
    between = b'"usage":{"input_tokens":99}'
    for place in range(MUCH // 2 - len(between) + 1, MUCH // 2 + 1):  # cut off, or behind it
        reader = UsageReader()
        reader.feed(first + b" " * (place - len(first)) + between + b" " * MUCH + last)
        assert reader.usage == Usage(3, 5, None)
