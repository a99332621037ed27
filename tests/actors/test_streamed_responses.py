"""Responses as networks cut them: every byte passes by, tokens are counted once, little is held.

B-xx are the field reports whose fault a test keeps away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

import pytest

from pointsman.actors.conversation import Part, RequestBody, ResponseBody, ResponseHeaders
from pointsman.actors.figures import Figures
from pointsman.actors.session import Session
from pointsman.actors.usage import LONGEST
from pointsman.kernel.model import EndCause
from pointsman.kernel.pool import ModelRewrite, RewriteRule, RewriteTarget, SetRewrites
from pointsman.kernel.rewriting import HELD_LIMIT

from .scripts import CHAT, Desk, chat, headers, opening, passed_on, say

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
ODD_EVENTS: Final = "Text/Event-Stream; charset=utf-8"


class Counted:
    """A conversation after its request, and the figures about it."""

    def __init__(self, desk: Desk, request: bytes, response: Mapping[str, str]) -> None:
        self.figures = Figures()
        self.session = Session(
            desk.wiring,
            lambda: desk.datastore.snapshot,
            desk.settings,
            lambda: 0.0,
            self.figures.observe(),
            Random(1),
        )
        began = ResponseHeaders(headers({":status": "200", **response}), end=False)
        say(self.session, opening(CHAT), RequestBody(request, end=True), began)

    def hear(self, *pieces: bytes) -> bytes:
        """What the client gets of a response in these pieces, which is all of it."""
        events = [ResponseBody(piece, end=False) for piece in pieces[:-1]]
        commands = say(self.session, *events, ResponseBody(pieces[-1], end=True))
        assert self.session.close() is EndCause.NATURAL
        return passed_on(commands, Part.RESPONSE_BODY)

    @property
    def tokens(self) -> list[tuple[int, float]]:
        """How often tokens of prompts and of answers were counted, and how many."""
        (series,) = self.figures.requests
        return [(one.count, one.sum) for one in (series.input_tokens, series.output_tokens)]


def streamed(desk: Desk, kind: str = EVENTS, *, stream: bool = True) -> Counted:
    return Counted(desk, chat(stream=stream), {"content-type": kind})


@pytest.fixture(scope="module")
def desk() -> Desk:
    return Desk()


@pytest.fixture(scope="module")
def renaming() -> Desk:
    """Serves the model m as another one."""
    made = Desk()
    rule = RewriteRule(models=frozenset({"m"}), targets=(RewriteTarget("other"),))
    rewrite = ModelRewrite(name="r", created="2026-01-01T00:00:00Z", rules=(rule,))
    made.datastore.apply(SetRewrites([rewrite]))
    return made


USAGE: Final = (
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":10,"total_tokens":17}}\n\n'
)


def test_b_07_usage_and_the_end_marker_may_come_apart(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    talk = streamed(desk)
    assert talk.hear(USAGE, b"data: [DONE]\n\n") == USAGE + b"data: [DONE]\n\n"
    assert talk.tokens == [(1, 7), (1, 10)]
    assert not caplog.records


def test_b_07_so_may_the_marker_itself(desk: Desk) -> None:
    talk = streamed(desk)
    talk.hear(USAGE, b"data: [DO", b"NE]\n\n", b"")
    assert talk.tokens == [(1, 7), (1, 10)]


ANSWER: Final = (
    b'data:{"model":"other","choices":[{"delta":{"content":"\xe6\x98\x8e\xe6\x9c\x88"}}]}\r\n\r\n'
    b": a comment\r\n\r\n"
    b'data:{"model":"other","choices":[{"delta":{"content":"\\u51e0"}}]}\r\n\r\n'
    b'data:{"model":"other","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\r\n\r\n'
)


def cuts(text: bytes) -> Iterable[Sequence[bytes]]:
    """In two at every place, and in single bytes."""
    for place in range(len(text) + 1):
        yield text[:place], text[place:]
    yield [text[place : place + 1] for place in range(len(text))]


def test_b_08_wherever_a_stream_is_cut_its_bytes_pass_and_tokens_count_once(desk: Desk) -> None:
    for pieces in cuts(ANSWER):
        talk = streamed(desk)
        assert talk.hear(*pieces) == ANSWER
        assert talk.tokens == [(1, 3), (1, 2)]


def test_b_08_so_they_do_where_the_model_gets_its_name_back(renaming: Desk) -> None:
    for pieces in cuts(ANSWER):
        talk = streamed(renaming)
        assert talk.hear(*pieces) == ANSWER.replace(b'"other"', b'"m"')
        assert talk.tokens == [(1, 3), (1, 2)]


PIECE: Final = 16_384
MB: Final = 1_000_000
ENDLESS: Final = [
    pytest.param(b"x", 10 * MB, id="no line ends"),
    pytest.param(b'data: {"usage": {"prompt', MB, id="usage for ever"),
    pytest.param(b'"usage"' + b" " * 57, MB, id="a key without its value"),
    pytest.param(b'"' * 64, MB, id="quotes"),
]


@pytest.mark.parametrize(("text", "size"), ENDLESS)
@pytest.mark.parametrize("kind", [EVENTS, JSON])
@pytest.mark.parametrize("renamed", [False, True])
def test_b_08_what_is_held_of_a_line_without_an_end_is_bounded(
    desk: Desk, renaming: Desk, text: bytes, size: int, kind: str, renamed: bool
) -> None:
    session = streamed(renaming if renamed else desk, kind).session
    event = ResponseBody((text * PIECE)[:PIECE], end=False)
    owed = 0
    for _ in range(size // PIECE):
        owed += PIECE - len(passed_on(say(session, event), Part.RESPONSE_BODY))
        assert 0 <= owed <= (HELD_LIMIT if renamed else 0)
        assert held_for_usage(session) <= LONGEST + PIECE
    last = say(session, ResponseBody(b"", end=True))
    assert len(passed_on(last, Part.RESPONSE_BODY)) == owed


def held_for_usage(session: Session) -> int:
    reader: Any = session._usage
    return len(reader._held)


ERROR: Final = b'{"error":{"message":"data: no","type":"BadRequestError"}}'
WHOLE: Final = b'{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":10}}'


@pytest.mark.parametrize(
    ("stream", "kind", "text", "tokens"),
    [
        (True, JSON, ERROR, [(0, 0), (0, 0)]),
        (True, JSON, WHOLE, [(1, 7), (1, 10)]),
        (False, ODD_EVENTS, USAGE + b"data: [DONE]\n\n", [(1, 7), (1, 10)]),
        (False, "", WHOLE, [(1, 7), (1, 10)]),
        (True, "text/plain", b"data: no", [(0, 0), (0, 0)]),
    ],
)
@pytest.mark.parametrize("renamed", [False, True])
def test_b_09_a_response_need_not_be_what_the_request_asked_for(
    desk: Desk,
    renaming: Desk,
    stream: bool,
    kind: str,
    text: bytes,
    tokens: object,
    renamed: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    talk = streamed(renaming if renamed else desk, kind, stream=stream)
    assert talk.hear(text[:20], text[20:]) == text
    assert talk.tokens == tokens
    assert not caplog.records


def test_b_09_what_a_response_says_of_itself_makes_it_a_stream(desk: Desk) -> None:
    talks = [streamed(desk, ODD_EVENTS, stream=False), streamed(desk, JSON, stream=True)]
    for talk in talks:
        talk.hear(USAGE, b"data: [DONE]\n\n")
    series = [one for talk in talks for one in talk.figures.requests]
    assert [one.streaming_first_chunk.count for one in series] == [1, 0]
    assert [one.first_chunk.count for one in series] == [0, 1]
