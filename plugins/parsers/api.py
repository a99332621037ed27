"""JSON bodies of an API, read no further than somebody wants.

A body is a struct of the fields that matter. What may have any type, or is wanted by few, stays
raw until it is asked for: a wrong type there harms nobody. What an API insists on is in the
struct's types, or in its `check`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, final

import msgspec
from attrs import frozen

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import DataKey, Keys, keys
from pointsman.kernel.model import MODEL_NAME, REQUEST_BODY, Parsed
from pointsman.plugins.keys import MAX_OUTPUT_TOKENS, REQUEST_PROMPT, RequestPrompt

T = TypeVar("T")

PRODUCED: Final = keys(MODEL_NAME, REQUEST_BODY, REQUEST_PROMPT, MAX_OUTPUT_TOKENS)
UNREADABLE: Final = (msgspec.DecodeError, RecursionError, ValueError)
"""What reading hostile JSON may raise."""
MOST_VALUES: Final = 1_500_000
"""In one body: more than the longest contexts have tokens."""
MOST_CONTAINERS: Final = 300_000
"""Lists and objects in one body, each of which costs about a microsecond."""
LONGEST_REASON: Final = 160  # characters that a refusal says of what is wrong
MOST_TOKENS: Final = 2**31 - 1  # engines count in 32 bits

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)

Raw = msgspec.Raw
NOTHING: Final = Raw()


class Body(Protocol):
    """A request as the struct of its API has it."""

    @property
    def model(self) -> str | None:
        """The model that is asked for."""
        ...

    def check(self) -> None:
        """Look at what decoding let through, and no closer than needed to tell.

        Raises:
            Refusal: 400 for what the API would not accept.
        """
        ...

    def prompt(self) -> RequestPrompt:
        """What engines render of it. Checks as `check` does."""
        ...

    def limit(self) -> int | None:
        """How many tokens it lets the engine generate, if it says so."""
        ...


class Fields(msgspec.Struct, kw_only=True):
    """What every API's body may have."""

    model: str | None = None
    cache_salt: Raw = NOTHING

    def check(self) -> None:
        """The types say it all."""

    def limit(self) -> int | None:
        return None


@final
@frozen
class Api:
    """What the bodies of one API are read as."""

    light: type[Body]
    """For when nobody wants the prompt."""
    full: type[Body]
    unnamed: str | None = ""
    """The model of a request that names none; None where the API does not insist on one."""


def reader(api: Api, wanted: Keys) -> Callable[[bytes], Parsed]:
    """A function that reads what is *wanted* of one API's bodies, and checks them."""
    prompt, limit, whole = (
        key in wanted for key in (REQUEST_PROMPT, MAX_OUTPUT_TOKENS, REQUEST_BODY)
    )
    decode = msgspec.json.Decoder(api.full if prompt else api.light).decode

    def read(body: bytes) -> Parsed:
        values: dict[DataKey[Any], Any] = {}
        try:
            refuse_bulk(body)
            found = decode(body)
            if prompt:
                values[REQUEST_PROMPT] = found.prompt()
            else:
                found.check()
            if limit and (most := found.limit()) is not None:
                values[MAX_OUTPUT_TOKENS] = most
            if whole:
                values[REQUEST_BODY] = msgspec.json.decode(body)
        except UNREADABLE as exc:
            raise unreadable(exc) from None
        return Parsed(found.model or api.unnamed, values)

    return read


def refuse_bulk(body: bytes) -> None:
    """Turn down what holds more values than any request needs: each would cost memory and time.

    Commas in texts count as well, since telling them apart would cost what this is to save.
    Brackets in texts do not: a long document may have more of them than any body.

    Raises:
        Refusal: 400.
    """
    if len(body) > MOST_VALUES and body.count(b",") > MOST_VALUES:
        raise Refusal(400, f"the request body holds more than {MOST_VALUES} values")
    crowded = len(body) > 2 * MOST_CONTAINERS and _containers(body) > MOST_CONTAINERS
    if crowded and _containers(_STRING.sub(b"", body)) > MOST_CONTAINERS:
        raise Refusal(400, f"the request body holds more than {MOST_CONTAINERS} lists and objects")


def _containers(body: bytes) -> int:
    return body.count(b"{") + body.count(b"[")


def unreadable(exc: Exception) -> Refusal:
    """The answer to a body that is no JSON, or no JSON of the right shape.

    The decoder's message names positions, fields and types, never content. It is cut where it
    tells a position that is nested deeply.
    """
    if isinstance(exc, msgspec.DecodeError):
        return Refusal(400, f"error reading the request body: {str(exc)[:LONGEST_REASON]}")
    return Refusal(400, "error reading the request body: it is nested too deeply or malformed")


def value_of(raw: Raw, kind: type[T]) -> T | None:
    """A field that was left raw; None when it is absent or of another type."""
    if raw is NOTHING:
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except UNREADABLE:
        return None


def text_of(raw: Raw) -> str:
    return value_of(raw, str) or ""


def count_of(*raws: Raw) -> int | None:
    """The first of some fields that is a whole number of tokens."""
    for raw in raws:
        value = value_of(raw, float)
        if value is not None and value.is_integer() and 0 <= value <= MOST_TOKENS:
            return int(value)
    return None
