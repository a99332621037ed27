"""What is fuzzed: whatever reads bytes that others made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Any, Final

from attrs import asdict, frozen

from pointsman import proto
from pointsman.actors.extproc_server_wire import event_of
from pointsman.actors.usage import LONGEST, UsageReader
from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Keys, keys
from pointsman.kernel.model import MODEL_NAME, REQUEST_BODY, Headers, Parsed
from pointsman.kernel.parsing import make_routes, path_of
from pointsman.kernel.rewriting import HELD_LIMIT, ModelRestorer, with_model
from pointsman.plugins.keys import MAX_OUTPUT_TOKENS, REQUEST_PROMPT
from pointsman.plugins.parsers import (
    AnthropicParser,
    OpenAIParser,
    SglangHttpParser,
    VertexAIParser,
    VllmGrpcParser,
    VllmHttpParser,
)

from . import samples

MODEL: Final = keys(MODEL_NAME)
ALL: Final = keys(MODEL_NAME, REQUEST_PROMPT, MAX_OUTPUT_TOKENS, REQUEST_BODY)
PARSERS: Final = (
    OpenAIParser,
    AnthropicParser,
    VllmHttpParser,
    SglangHttpParser,
    VllmGrpcParser,
    VertexAIParser,
)
SERVED: Final = "tiny-llama"
MOST_PIECES: Final = 2000
_DETAILS: Final = re.compile(r"\d+|`[^`]*`")


@frozen
class Target:
    """Something that reads bytes."""

    name: str
    samples: Sequence[bytes]
    """Inputs that mean something; others are made of them."""
    check: Callable[[bytes], str]
    """Reads one input, and raises if anything is wrong with how that went.

    What it returns tells kinds of inputs apart: an input of a new kind is worth changing further.
    """


def targets() -> list[Target]:
    """All of them."""
    return [
        *(
            Target(f"codec {message_type.__name__}", samples.messages(), _codec(message_type))
            for message_type in (
                proto.ProcessingRequest,
                proto.ProcessingResponse,
                proto.HealthCheckRequest,
                proto.HealthCheckResponse,
            )
        ),
        *(
            Target(f"body {path}", samples.bodies(path), _body(parser(), path))
            for parser in PARSERS
            for path in parser.paths
        ),
        Target("path", samples.paths(), _path()),
        Target("usage", samples.responses(), _usage),
        Target("restored model", samples.responses(), _restored),
    ]


def _codec(message_type: type[Any]) -> Callable[[bytes], str]:
    def check(data: bytes) -> str:
        try:
            message = proto.decode(message_type, data)
        except proto.DecodeError as error:
            return kind(error.reason)
        written = proto.encode(message)
        again = proto.decode(message_type, written)
        assert proto.encode(again) == written
        if isinstance(message, proto.ProcessingRequest):
            return type(event_of(message)).__name__
        return "read"

    return check


def _body(parser: Any, path: str) -> Callable[[bytes], str]:
    def reader(wanted: Keys) -> Callable[[bytes], Parsed | str]:
        read = parser.reader(path, wanted)

        def read_or_refused(body: bytes) -> Parsed | str:
            try:
                parsed: Parsed = read(body)
            except Refusal as refusal:
                return _said(refusal)
            return parsed

        return read_or_refused

    light, whole = reader(MODEL), reader(ALL)

    def check(body: bytes) -> str:
        little, parsed = light(body), whole(body)
        if isinstance(parsed, str):
            return parsed
        assert isinstance(little, Parsed), "what is less looked at is less refused"
        assert little.model == parsed.model
        if parsed.model is not None:
            renamed = whole(with_model(body, "other"))
            assert isinstance(renamed, Parsed)
            assert renamed.model == "other"
        found = sorted(key.name for key in parsed.values)
        return " ".join(["unnamed" if parsed.model is None else "named", *found])

    return check


def _said(refusal: Refusal) -> str:
    assert refusal.status == 400
    assert len(refusal.message) < 300
    return kind(refusal.message)


def _path() -> Callable[[bytes], str]:
    routes = make_routes([(parser.type_name, parser()) for parser in PARSERS], MODEL)

    def check(path: bytes) -> str:
        return routes.find(path_of(Headers({":path": path}))).parser

    return check


def _usage(response: bytes) -> str:
    reader, at_once = UsageReader(), UsageReader()
    for chunk in chunks(response):
        reader.feed(chunk)
        assert len(reader._held) <= LONGEST
    at_once.feed(response)
    if len(response) < LONGEST:  # what is cut off as too long depends on the cuts
        assert reader.usage == at_once.usage
    counts = {} if reader.usage is None else asdict(reader.usage)
    return " ".join(name for name, count in counts.items() if count is not None)


def _restored(response: bytes) -> str:
    """A name that is what it was changes nothing, and another changes as little as that."""
    for events in (False, True):
        unchanged = b"".join(_fed(ModelRestorer(events, SERVED, SERVED), response))
        assert unchanged == response
        changed = b"".join(_fed(ModelRestorer(events, "x" * len(SERVED), SERVED), response))
        assert len(changed) == len(response)
    return str(changed == response)


def _fed(restorer: ModelRestorer, response: bytes) -> Iterator[bytes]:
    for chunk in chunks(response):
        yield restorer.feed(chunk, end=False)
        assert len(restorer._held) <= HELD_LIMIT
    yield restorer.feed(b"", end=True)


def chunks(data: bytes) -> Iterator[bytes]:
    """*data* cut anywhere, though always in the same places: a few, or into many small pieces."""
    random = Random(data)
    if random.randrange(4):
        cuts = [random.randint(0, len(data)) for _ in range(random.randrange(8))]
    else:
        cuts = [*range(0, len(data), max(random.randint(1, 200), len(data) // MOST_PIECES))]
    for start, end in pairwise([0, *sorted(cuts), len(data)]):
        yield data[start:end]


def kind(message: str) -> str:
    """What a message says but for names and numbers."""
    return _DETAILS.sub("#", message)
