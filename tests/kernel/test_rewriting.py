"""Only the bytes of the model's name change, wherever the cuts are (B-06, B-13, P-01)."""

from __future__ import annotations

import json
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kernel.rewriting import (
    HELD_LIMIT,
    LOOKED_AT,
    ModelRestorer,
    Span,
    Walk,
    model_place,
    with_model,
)

PRECIOUS = (
    b'{"seed":12345678901234567890123,"temperature":0.10,"top_p":1e0,'
    b'"prompt":"\\u00e9 <>&","k":1,"k":2,"model":"m"}'
)


def test_b06_everything_but_the_name_stays_as_it_was() -> None:
    assert with_model(PRECIOUS, "n") == PRECIOUS.replace(b'"model":"m"', b'"model":"n"')


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{ "model" : "m" , "prompt":"x"}', b'{ "model" : "n" , "prompt":"x"}'),
        (b'{"model":"m"}', b'{"model":"n"}'),
        (b'{"mod\\u0065l":"m"}', b'{"mod\\u0065l":"n"}'),
        (b'{"x":{"mod\\u0065l":1},"model":"m"}', b'{"x":{"mod\\u0065l":1},"model":"n"}'),
        (b'{"x":{"model":1},"mod\\u0065l":"m"}', b'{"x":{"model":1},"mod\\u0065l":"n"}'),
        (b'{"x":{"model":1}}', b'{"model":"n","x":{"model":1}}'),
        (b'{"model":"a","model":"b"}', b'{"model":"a","model":"n"}'),
        (b'{"model":null,"prompt":"x"}', b'{"model":"n","prompt":"x"}'),
        (b'{"prompt":"x"}', b'{"model":"n","prompt":"x"}'),
        (b"{}", b'{"model":"n"}'),
        (b" { } ", b' {"model":"n" } '),
        (b'{"model":"say \\"model\\"","x":1}', b'{"model":"n","x":1}'),
    ],
)
def test_the_name_is_replaced_or_added(body: bytes, expected: bytes) -> None:
    assert with_model(body, "n") == expected


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata":{"model":"m"},"model":"m"}',
        b'{"prompt":"\\"model\\":\\"m\\"","model":"m"}',
        b'{"tools":[{"model":"m"}],"role":"model","model":"m"}',
    ],
)
def test_what_only_looks_like_it_is_left_alone(body: bytes) -> None:
    assert with_model(body, "n") == body[: body.rindex(b'"m"')] + b'"n"' + body[-1:]


names = st.text(min_size=1, max_size=20)
values: Any = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(names, st.just("model")), inner)
    ),
    max_leaves=10,
)


@given(st.dictionaries(names, values, max_size=5), names, names, st.booleans())
def test_every_other_value_is_the_same(
    fields: dict[str, Any], old: str, new: str, ascii_only: bool
) -> None:
    fields["model"] = old
    body = json.dumps(fields, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert json.loads(with_model(body, new)) == {**fields, "model": new}


texts = st.sampled_from(["model", 'x"model', 'model"', "x\\", "mod\\u0065l", "\\", ":", "m"])
odd: Any = st.recursive(
    texts | st.none(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner)
)


@given(st.dictionaries(texts, odd, max_size=5), st.sampled_from([(",", ":"), (" , ", " : ")]))
def test_a_short_cut_leads_where_the_walk_does(
    fields: dict[str, Any], separators: tuple[str, str]
) -> None:
    fields = {name: "m" if name == "model" else value for name, value in fields.items()}
    body = json.dumps(fields, separators=separators).encode()
    walked = [*Walk().model_spans(body)]
    place = model_place(body)
    assert [Span(place.start, place.end)] == walked if walked else place.before == b'"model":'
    assert json.loads(with_model(body, "n")) == {**fields, "model": "n"}


@given(st.binary(max_size=60))
def test_garbage_has_spans_inside_itself(text: bytes) -> None:
    assert all(0 <= span.start <= span.end <= len(text) for span in Walk().model_spans(text))


ANSWER = b'{"id":"1","model": "int","choices":[{"text":"say \\"model\\":\\"int\\"","model":"int"}]}'
RESTORED = ANSWER.replace(b'"model": "int"', b'"model": "pub"', 1)
STREAM = (
    b": comment\r\n"
    b'data: {"id":"1","model":"int","choices":[{"delta":{"content":"\xe6\x98\x8e"}}]}\r\n\r\n'
    b'data:{"model":"int"}\n\n'
    b'data: {"model":"other","x":"int"}\n\n'
    b"data: [DONE]\n\n"
)
STREAM_RESTORED = STREAM.replace(b'"model":"int"', b'"model":"pub"')


def restored(events: bool, *chunks: bytes) -> bytes:
    restorer = ModelRestorer(events, "pub", "int")
    parts = [restorer.feed(chunk, end=False) for chunk in chunks]
    return b"".join(parts) + restorer.feed(b"", end=True)


@pytest.mark.parametrize("cut", range(len(ANSWER) + 1))
def test_b13_an_answer_has_its_name_back_wherever_it_is_cut(cut: int) -> None:
    assert restored(False, ANSWER[:cut], ANSWER[cut:]) == RESTORED


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_b13_a_stream_has_its_name_back_wherever_it_is_cut(cut: int) -> None:
    assert restored(True, STREAM[:cut], STREAM[cut:]) == STREAM_RESTORED


def test_one_byte_at_a_time() -> None:
    assert restored(False, *(ANSWER[i : i + 1] for i in range(len(ANSWER)))) == RESTORED
    assert restored(True, *(STREAM[i : i + 1] for i in range(len(STREAM)))) == STREAM_RESTORED


def test_whole_events_are_passed_on_at_once() -> None:
    restorer = ModelRestorer(True, "pub", "int")
    assert restorer.feed(b'data: {"model":"int"}\n\ndata: {"mo', end=False) == (
        b'data: {"model":"pub"}\n\n'
    )


def test_once_the_name_is_known_an_answer_passes_by() -> None:
    restorer = ModelRestorer(False, "pub", "int")
    assert restorer.feed(b'{"model":"int","choices":', end=False) == b'{"model":"pub","choices":'
    assert restorer.feed(b'[{"model":"int"', end=False) == b'[{"model":"int"'


LONG = 5.0  # seconds of CPU: ten times what it takes, and a fraction of what it took
SLOW = {
    "quotes in a text that is cut off": b'{"x":"' + b'\\"' * 100_000,
    "values without an end": b"{" + b'"model":x' * 20_000,
    "a value without an end": b'{"model":' + b"x" * 200_000,
}


@pytest.mark.parametrize("answer", SLOW.values(), ids=SLOW.keys())
@pytest.mark.parametrize("events", [True, False])
def test_r_01_no_answer_takes_long_to_look_at(answer: bytes, events: bool) -> None:
    text = b"data: " + answer + b"int" if events else answer
    started = process_time()
    assert restored(events, text, b"") == text
    assert process_time() - started < LONG


UNENDING = {
    "strings side by side": b'{"detail":' + b'""' * 100_000,
    "brackets": b"{" * 100_000 + b"[]" * 50_000,
    "one string": b'{"detail":"' + b"\\n" * 100_000,
    "no strings": b'{"detail":' + b" " * 200_000,
    "the name itself": b'{"model":"' + b"x" * 200_000,
}


@pytest.mark.parametrize("answer", UNENDING.values(), ids=UNENDING.keys())
@pytest.mark.parametrize("events", [True, False])
def test_r_01_what_is_held_back_is_not_looked_at_again_for_each_piece(
    answer: bytes, events: bool
) -> None:
    text = b"data: " + answer if events else answer
    started = process_time()
    assert restored(events, *batched_bytes(text, 10)) == text
    assert process_time() - started < LONG


def batched_bytes(text: bytes, size: int) -> list[bytes]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@pytest.mark.parametrize("events", [True, False])
def test_what_never_names_a_model_is_held_back_no_further_than_the_limit(events: bool) -> None:
    restorer = ModelRestorer(events, "pub", "int")
    passed = b""
    for _ in range(100):
        passed += restorer.feed(b"x" * 10_000, end=False)
    assert len(passed) >= 1_000_000 - HELD_LIMIT - 10_000
    assert passed + restorer.feed(b"", end=True) == b"x" * 1_000_000


@pytest.mark.parametrize("answer", [b"no healthy upstream", b"", b"[]", b'{"error":{"code":503}}'])
def test_other_answers_pass_as_they_are(answer: bytes) -> None:
    assert restored(False, answer) == answer
    assert restored(True, answer) == answer


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("answer", [b'{"error":{"a":"}"}}', b"[1,[2]]", b'  {"x":"\\""}', b"{}"])
def test_nothing_is_held_back_of_what_is_complete(answer: bytes, events: bool) -> None:
    restorer = ModelRestorer(events, "asked", "served")
    text = b"data:" + answer if events else answer
    assert restorer.feed(text[:-1], end=False) == b""
    assert restorer.feed(text[-1:], end=False) == text


@pytest.mark.parametrize(
    ("before", "restored"), [(0, True), (LOOKED_AT - 100, True), (LOOKED_AT, False)]
)
def test_of_a_large_answer_only_the_beginning_is_looked_at(before: int, restored: bool) -> None:
    answer = b'{"data":"%b","model":"served","more":"%b"}' % (b"x" * before, b"y" * LOOKED_AT)
    expected = answer.replace(b'"served"', b'"asked"') if restored else answer
    assert ModelRestorer(False, "asked", "served").feed(answer, end=True) == expected
