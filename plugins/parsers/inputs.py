"""Prompts that are given as they are: texts, or the tokens of an engine."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from pointsman.kernel.errors import Refusal
from pointsman.plugins.keys import Feature, RequestPrompt

from .api import Raw, value_of

Text = Annotated[str, msgspec.Meta(min_length=1)]
Token = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
TokenList = Annotated[list[Token], msgspec.Meta(min_length=1)]
MOST_PROMPTS: Final = 100_000
"""In one request; each is hashed for itself."""

_EMPTY_TEXT: Final = b'""'
_BEGINNING: Final = re.compile(rb'"|\[\s*["\[]?')
_DECODERS: Final[Mapping[bytes, msgspec.json.Decoder[Any]]] = {
    b'"': msgspec.json.Decoder(Text),
    b'["': msgspec.json.Decoder(Annotated[list[Text], msgspec.Meta(min_length=1)]),
    b"[[": msgspec.json.Decoder(Annotated[list[TokenList], msgspec.Meta(min_length=1)]),
    b"[": msgspec.json.Decoder(TokenList),
}
"""By how the input begins, without blanks."""


def check_input(raw: Raw, name: str) -> None:
    """Refuse an input that is none; a text's own characters are not looked at.

    Raises:
        Refusal: 400, calling the field *name*.
    """
    beginning = bytes(memoryview(raw)[:2])
    if beginning[:1] != b'"' or beginning == _EMPTY_TEXT:
        _decoded(raw, name)


def input_prompt(raw: Raw, name: str, salt: str) -> RequestPrompt:
    """A text, texts, token ids, or lists of token ids, each a prompt of its own.

    Raises:
        Refusal: 400, calling the field *name*, when it is none of these, mixed or empty.
    """
    given = _decoded(raw, name)
    if isinstance(given, str):
        return RequestPrompt(((given.encode(),),), salt=salt)
    if isinstance(given[0], str):
        return RequestPrompt(tuple((text.encode(),) for text in given), salt=salt)
    lists = given if isinstance(given[0], list) else [given]
    return RequestPrompt(token_ids=tuple(map(packed, lists)), salt=salt)


def _decoded(raw: Raw, name: str) -> Any:
    beginning = _BEGINNING.match(memoryview(raw))
    if beginning is None:
        raise _refusal(name)
    try:
        given: Any = _DECODERS[b"".join(beginning[0].split())].decode(raw)
    except msgspec.ValidationError:
        raise _refusal(name) from None
    if not isinstance(given, str) and not isinstance(given[0], int) and len(given) > MOST_PROMPTS:
        raise Refusal(400, f"{name} holds more than {MOST_PROMPTS} prompts")
    return given


def _refusal(name: str) -> Refusal:
    expected = "a text, a list of texts, or token ids, and not be empty"
    return Refusal(400, f"{name} must be {expected}")


def packed(tokens: Sequence[int]) -> bytes:
    """Four little-endian bytes a token. Raises OverflowError for what does not fit."""
    numbers = array("I", tokens)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


class _Place(msgspec.Struct):
    offset: Token
    length: Token


class _Features(msgspec.Struct):
    mm_hashes: dict[str, list[str]] = {}
    mm_placeholders: dict[str, list[_Place]] = {}


def features_of(raw: Raw) -> tuple[Feature, ...]:
    """Where media stand among a prompt's tokens, first come first; none where it is unclear."""
    found = value_of(raw, _Features)
    return () if found is None else tuple(sorted(_pairs(found), key=lambda one: one.offset))


def _pairs(found: _Features) -> Iterator[Feature]:
    for modality, hashes in found.mm_hashes.items():
        for digest, place in zip(hashes, found.mm_placeholders.get(modality, ()), strict=False):
            yield Feature(modality, digest, place.offset, place.length)
