"""Exchanges with a real vLLM 0.32 as curl saw them, kept in data/vllm-*.txt."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen

DATA: Final = Path(__file__).parent / "data"
FILES: Final = ("vllm-completions.txt", "vllm-errors.txt", "vllm-extras.txt")


@frozen
class Exchange:
    """A request, as far as it was written down, and its response."""

    name: str
    path: str
    request: bytes
    """Empty where there was no body."""
    status: int
    response: bytes


def exchanges() -> list[Exchange]:
    """All of them, in the order in which they happened."""
    return [one for file in FILES for one in _exchanges((DATA / file).read_bytes())]


def _exchanges(text: bytes) -> list[Exchange]:
    found: list[Exchange] = []
    comments: list[str] = []
    for part in text.split(b"\n# "):
        comment, newline, answer = part.removeprefix(b"# ").partition(b"\n")
        comments.append(comment.decode())
        if newline:
            found.append(_exchange(comments[0], comments[-1], answer))
            comments.clear()
    return found


def _exchange(name: str, command: str, answer: bytes) -> Exchange:
    words = shlex.split(command)
    asked = words[words.index("-d") + 1] if "-d" in words else ""
    path = urlsplit(words[-1]).path if words[0] in ("curl", "GET", "POST") else ""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split(maxsplit=2)[1])
    return Exchange(name, path, asked.encode(), status, body.rstrip(b"\n"))
