"""vLLM's gRPC API, of which only the fields that matter are looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, final

from attrs import define

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import DataKey, Keys, keys
from pointsman.kernel.model import Parsed
from pointsman.kernel.registry import Stability
from pointsman.plugins.keys import MAX_OUTPUT_TOKENS, REQUEST_PROMPT, Feature, RequestPrompt

from .api import MOST_TOKENS
from .inputs import packed
from .protobuf import UINT32, Malformed, Value, fields, framed, numbers

LONGEST: Final = 1024 * 1024
"""Bytes of tokens. More are forwarded, but not read: that takes 70 ns a byte."""

# Field numbers of the two requests, and of the messages in them.
TOKENIZED, TEXT, SAMPLING, MEDIA = 2, 3, 4, 7
INPUT_IDS: Final = 2
MAX_TOKENS: Final = 8
PLACEHOLDERS, HASHES = 5, 6
OFFSET, LENGTH = 1, 2

Parts = Mapping[int, memoryview]
"""The fields of a message that have bytes, by number; of several the last."""
NONE: Final = memoryview(b"")


@final
@define(eq=False)
class VllmGrpcParser:
    """vLLM's gRPC API: a text or tokens to go on from, or tokens to embed. It names no model."""

    type_name: ClassVar = "vllmgrpc-parser"
    stability: ClassVar = Stability.BETA
    produces: ClassVar = keys(REQUEST_PROMPT, MAX_OUTPUT_TOKENS)
    bytes_at_once: ClassVar = 32 * 1024
    """Bytes that take 3 ms, since packed numbers are read one by one."""
    paths: ClassVar = ("vllm.grpc.engine.VllmEngine/Generate", "vllm.grpc.engine.VllmEngine/Embed")

    def reader(self, path: str, wanted: Keys) -> Callable[[bytes], Parsed]:
        texts = path.endswith("Generate")

        def read(body: bytes) -> Parsed:
            try:
                return Parsed(None, _read(framed(body), wanted, texts=texts))
            except Malformed as exc:
                raise Refusal(400, f"error reading the gRPC message: {exc}") from None

        return read


def _read(message: memoryview, wanted: Keys, *, texts: bool) -> Mapping[DataKey[Any], Any]:
    request = _parts(message)
    inputs = _inputs(request.get(TOKENIZED, NONE))
    if not inputs and not (texts and request.get(TEXT)):
        raise Refusal(400, "the request has no input: neither text nor token ids")
    found: dict[DataKey[Any], Any] = {}
    if REQUEST_PROMPT in wanted:
        found[REQUEST_PROMPT] = _prompt(request, inputs)
    if MAX_OUTPUT_TOKENS in wanted:
        found[MAX_OUTPUT_TOKENS] = _limit(request.get(SAMPLING, NONE))
    return {key: value for key, value in found.items() if value is not None}


def _parts(message: memoryview) -> Parts:
    return {n: value for n, value in fields(message) if isinstance(value, memoryview)}


def _inputs(tokenized: memoryview) -> Sequence[Value]:
    """Lists of tokens, or single ones: both are allowed to come, in any number."""
    ids = (value for number, value in fields(tokenized) if number == INPUT_IDS)
    return [value for value in ids if isinstance(value, int) or value]


def _prompt(request: Parts, inputs: Sequence[Value]) -> RequestPrompt | None:
    if not inputs:
        return RequestPrompt(((bytes(request[TEXT]),),))
    if sum(len(value) for value in inputs if isinstance(value, memoryview)) > LONGEST:
        return None
    features = tuple(_features(request.get(MEDIA, NONE)))
    tokens = [token for value in inputs for token in _tokens(value)]
    return RequestPrompt((), (packed(tokens),), "", (features,) if features else ())


def _tokens(value: Value) -> Sequence[int]:
    return (value & UINT32,) if isinstance(value, int) else numbers(value)


def _features(media: memoryview) -> Iterator[Feature]:
    """A placeholder whose hash is left out stands for a medium like any other such."""
    places: list[Mapping[int, Value]] = []
    hashes: list[str] = []
    for number, value in fields(media):
        if isinstance(value, memoryview) and number == PLACEHOLDERS:
            places.append(dict(fields(value)))
        elif isinstance(value, memoryview) and number == HASHES:
            hashes.append(str(value, "utf-8", "replace"))
    hashes += [""] * (len(places) - len(hashes))
    for place, digest in zip(places, hashes, strict=False):
        yield Feature("image", digest, _count(place, OFFSET), _count(place, LENGTH))


def _count(message: Mapping[int, Value], number: int) -> int:
    value = message.get(number, 0)
    return value & UINT32 if isinstance(value, int) else 0


def _limit(sampling: memoryview) -> int | None:
    """0 counts; what is left out does not."""
    value = dict(fields(sampling)).get(MAX_TOKENS)
    return value if isinstance(value, int) and value <= MOST_TOKENS else None
