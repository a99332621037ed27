"""Records as lines: whatever is in a value, it cannot begin a line of its own.

A record may carry fields: ``logger.info("text", extra={"fields": {"name": value}})``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final, final

from . import log_errors

MESSAGE_LIMIT: Final = 8 * 1024  # characters
FIELD_LIMIT: Final = 256
TRACE_LIMIT: Final = 16 * 1024
NAMES: Final = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warn",
    logging.ERROR: "error",
    logging.CRITICAL: "fatal",
}
"""As the reference system has them."""


@final
class JsonLines(logging.Formatter):
    """Each record is one JSON object on one line of ASCII."""

    def __init__(self, *, texts: bool) -> None:
        super().__init__()
        self._texts = texts

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "ts": _moment(record),
            "level": NAMES.get(record.levelno, record.levelname.lower()),
            "logger": record.name,
            "caller": f"{record.filename}:{record.lineno}",
            "msg": _message(record),
        }
        for name, value in _fields(record):
            entry.setdefault(name, value)
        if (exc := _exception(record)) is not None:
            lines = log_errors.trace(exc, texts=self._texts)
            entry["error"] = cut(log_errors.summary(exc, texts=self._texts), FIELD_LIMIT)
            entry["stacktrace"] = cut("\n".join(lines), TRACE_LIMIT)
        return json.dumps(entry)


@final
class TextLines(logging.Formatter):
    """Each record is a line for people to read; only a traceback adds lines, all indented."""

    def __init__(self, *, texts: bool) -> None:
        super().__init__()
        self._texts = texts

    def format(self, record: logging.LogRecord) -> str:
        level = NAMES.get(record.levelno, record.levelname.lower()).upper()
        line = f"{_moment(record)} {level:5} {record.name}: {escaped(_message(record))}"
        for name, value in _fields(record):
            line += f" {name}={_quoted(value)}"
        if (exc := _exception(record)) is not None:
            for told in log_errors.trace(exc, texts=self._texts):
                line += f"\n    {escaped(cut(told, MESSAGE_LIMIT))}"
        return line


def escaped(text: str) -> str:
    """*text* without anything that moves a cursor, breaks a line or cannot be seen."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def cut(text: str, limit: int) -> str:
    """*text*, or as much of it as there is room for."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text) - limit} more)"


def _moment(record: logging.LogRecord) -> str:
    """When it was, by RFC 3339."""
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:  # a mistake in a logging call must not cost the record
        text = str(record.msg)
    return cut(text, MESSAGE_LIMIT)


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    for name, value in fields.items():
        finite = isinstance(value, float) and isfinite(value)
        plain = finite or isinstance(value, int | None)
        yield name, value if plain else cut(str(value), FIELD_LIMIT)


def _exception(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


def _quoted(value: object) -> str:
    """A field's value, in quotation marks where it could be taken for more than that."""
    text = str(value)
    plain = text.isprintable() and not set(text) & {" ", "=", '"', "\\"}
    return text if text and plain else json.dumps(text)
