"""Messages that say the same in other bytes: encoders differ, and newer proxies say more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Final

from .messages import (
    BODY,
    goes_on,
    piece,
    pieces,
    request_body,
    request_headers,
    response_body,
    response_headers,
    sent_to,
)
from .phases import DUPLEX, request
from .script import Script, step
from .setups import COUNTING, MARKER, METER, PLAIN, RENAMING


def varint(number: int, *, wide: bool = False) -> bytes:
    """In as few bytes as it takes, or in one more."""
    parts = [number & 0x7F]
    while number := number >> 7:
        parts.append(number & 0x7F)
    if wide:
        parts.append(0)
    return bytes(part | 0x80 for part in parts[:-1]) + bytes(parts[-1:])


def sized(tag: bytes, data: bytes, *, wide: bool = False) -> bytes:
    return tag + varint(len(data), wide=wide) + data


BODY_TAG: Final = {"request_body": b"\x22", "response_body": b"\x2a"}
DATA: Final = b"\x0a"
NOT_THE_END: Final = b"\x10\x00"
EMPTY_METADATA: Final = b"\x42\x00"
METADATA: Final = sized(b"\x42", sized(b"\x0a", sized(b"\x0a", b"name") + b"\x12\x00"))
ATTRIBUTES: Final = sized(b"\x4a", sized(b"\x0a", b"name") + b"\x12\x00")
UNKNOWN: Final = sized(b"\xfa\x7f", b"what a newer proxy says")


def spellings(part: str, data: bytes) -> Mapping[str, bytes]:
    """A message with a piece of a body that is not the last, by what is odd about it."""
    tag, inner = BODY_TAG[part], sized(DATA, data)
    whole = sized(tag, inner)
    return {
        "as short as can be": sized(tag, inner if data else b""),
        "all said": sized(tag, inner + NOT_THE_END),
        "as Envoy does": whole + EMPTY_METADATA,
        "as Envoy does, all said": sized(tag, inner + NOT_THE_END) + EMPTY_METADATA,
        "with metadata": whole + METADATA,
        "with attributes": whole + EMPTY_METADATA + ATTRIBUTES,
        "metadata first": EMPTY_METADATA + whole,
        "metadata twice": whole + EMPTY_METADATA * 2,
        "with something unknown": whole + UNKNOWN,
        "with something unknown inside": sized(tag, inner + UNKNOWN),
        "with something unknown before": sized(tag, UNKNOWN + inner),
        "a wide length": sized(tag, inner, wide=True),
        "a wide length inside": sized(tag, sized(DATA, data, wide=True)),
        "said twice inside": sized(tag, sized(DATA, b"not this") + inner),
        "said twice": sized(tag, sized(DATA, b"not this")) + whole,
        "in two halves": sized(tag, NOT_THE_END) + whole,
    }


NAMES: Final = tuple(spellings("request_body", b""))


def _requests() -> Iterator[Script]:
    for name in NAMES:
        first, second = BODY[:9], BODY[9:]
        steps = [
            step(request_headers(modes=(DUPLEX, DUPLEX))),
            step(spellings("request_body", first)[name]),
            step(spellings("request_body", second)[name]),
            step(
                request_body(b"", end=True),
                sent_to("request_headers"),
                *pieces("request_body", BODY, end=True),
            ),
        ]
        yield Script(name, PLAIN, steps)


def _responses() -> Iterator[Script]:
    """Whoever listens or not, pieces go on as they come."""
    setups = {"nobody": PLAIN, "usage": METER, "headers": MARKER, "ends": COUNTING}
    for (who, setup), mode in product(setups.items(), (DUPLEX, "STREAMED")):
        marked = (("x-served-by", b"pod-1"),) if setup is MARKER else ()
        steps = [
            *request((DUPLEX, mode)),
            step(response_headers(), goes_on("response_headers", added=marked)),
        ]
        for name in NAMES:
            said = spellings("response_body", name.encode())[name]
            passed = piece("response_body", name.encode())
            steps.append(step(said, passed if mode == DUPLEX else goes_on("response_body")))
        yield Script(f"{who}, {mode}", setup, steps)


FRAME: Final = 16_384  # bytes of a DATA frame
LENGTHS: Final = (0, 1, 121, 122, 123, 126, 127, 128, 129, 16_365, 16_370, 16_375, 16_380, FRAME)


def _lengths() -> Iterator[Script]:
    """Around the places where a length takes one byte more, and a message one frame more."""
    for name in ("as short as can be", "as Envoy does", "all said"):
        steps = [*request((DUPLEX, DUPLEX)), step(response_headers(), goes_on("response_headers"))]
        for length in LENGTHS:
            data = b"\x0a" * length
            said = spellings("response_body", data)[name]
            steps.append(step(said, piece("response_body", data)))
        end = step(response_body(b"", end=True), piece("response_body", b"", end=True))
        yield Script(name, PLAIN, [*steps, end], over=True)


def _renamed() -> Iterator[Script]:
    """A piece in which something is changed is none that only passes."""
    fields = ((":status", b"200"), ("content-type", b"text/event-stream"))
    for name in NAMES:
        body = b'{"model":"pub","prompt":"hi"}'
        events = spellings("response_body", b'data: {"model":"int"}\n')[name]
        steps = [
            *request((DUPLEX, DUPLEX), body=body, sent=body.replace(b"pub", b"int")),
            step(
                response_headers(fields),
                goes_on("response_headers", removed=["content-length"]),
            ),
            step(events, piece("response_body", b'data: {"model":"pub"}\n')),
            step(events, piece("response_body", b'data: {"model":"pub"}\n')),
        ]
        yield Script(name, RENAMING, steps)


THEMES: Final = {
    "requests in other bytes": _requests,
    "responses in other bytes": _responses,
    "lengths of pieces": _lengths,
    "responses of renamed models in other bytes": _renamed,
}
