"""Messages as Envoy sends them, kept as bytes in recorded.txt."""

from __future__ import annotations

from pathlib import Path
from typing import Final


def exchange(name: str) -> list[tuple[str, bytes]]:
    """The messages of one exchange: which field of the request is set, and the bytes."""
    lines = (line.split() for line in _FILE.read_text().splitlines()[1:])
    return [(field, bytes.fromhex(data)) for of, field, data in lines if of == name]


_FILE: Final = Path(__file__).with_name("recorded.txt")
