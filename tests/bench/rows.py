"""The rows of the bench: what is played how often, and what it may cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from . import company
from .figures import Budget, Figure
from .scenarios import KB, Exchange, buffered, chat, chat_body, duplex, sse

REST: Final = "memory at rest"
LOADED: Final = "memory after load"
OPEN_STREAM: Final = "memory of an open stream"
IDLE: Final = "100 idle endpoints"
SCRAPE: Final = "scrape of an idle endpoint"
CHUNK: Final = "response chunk"
SSE: Final = ("SSE 16 chunks", "SSE 128 chunks")

BUDGETS: Final = {
    REST: Budget(80.0),
    OPEN_STREAM: Budget(50.0),
    IDLE: Budget(0.10),
    CHUNK: Budget(30.0),
}


@frozen
class Row:
    """An exchange, and how much of it is measured at a time."""

    exchange: Exchange
    count: int
    budget: Budget | None = None
    rate: float | None = None
    """Exchanges per second; None plays as fast as the server answers."""

    @property
    def name(self) -> str:
        return self.exchange.name


def exchanges() -> tuple[Row, ...]:
    """All rows that play exchanges, in the table's order."""
    return (
        Row(chat(2 * KB, "chat 2 KB full duplex"), 2000, Budget(400.0, 0.7)),
        Row(chat(64 * KB, "chat 64 KB full duplex"), 600),
        Row(chat(400 * KB, "chat 400 KB full duplex"), 200),
        Row(buffered("lean buffered 2 KB", chat_body(2 * KB)), 3000, Budget(350.0)),
        Row(buffered("lean buffered 400 KB", chat_body(400 * KB)), 200),
        Row(duplex("request phase only, 2 KB", chat_body(2 * KB)), 2000),
        Row(sse(16, SSE[0]), 600),
        Row(sse(128, SSE[1]), 120),
        Row(chat(2 * KB, "chat 2 KB, 100 a second"), 200, rate=100.0),
    )


def names() -> tuple[str, ...]:
    """Every row's name, in the table's order."""
    played = (row.name for row in exchanges())
    return (REST, *played, CHUNK, LOADED, OPEN_STREAM, *company.NAMES, IDLE, SCRAPE)


def response_chunk(figures: Sequence[Figure]) -> Figure | None:
    """What one more chunk costs, by the difference of the two streamed rows."""
    few, many = (next((one for one in figures if one.name == name), None) for name in SSE)
    if few is None or many is None or few.error or many.error:
        return None
    return Figure(
        CHUNK,
        "us",
        _difference(few.target, many.target),
        _difference(few.baseline, many.baseline),
        BUDGETS[CHUNK],
        _difference(few.client, many.client),
    )


def _difference(few: float | None, many: float | None) -> float | None:
    return None if few is None or many is None else (many - few) / (128 - 16)
