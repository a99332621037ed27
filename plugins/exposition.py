"""Finding a few families in a Prometheus text without parsing the rest.

A model server prints 50 KB of which five lines matter. Each wanted name is searched for at
the beginning of lines; only what is found is parsed. Interleaved families, time stamps,
blanks before the labels, CRLF and a missing last line end are all legal and read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, final

from attrs import frozen

# Nothing here may cross a line, nor try the same bytes twice: the text may be anything. Loops are
# unrolled and give nothing back, since steps that could be taken back cost memory, too.
_LABEL_SET: Final = rb'\{[^"}\n]*+(?:"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"[^"}\n]*+)*+\}'
_AFTER_NAME: Final = re.compile(rb"[ \t]*(?:(" + _LABEL_SET + rb")[ \t]*)?([^\s#{]+)")
_LABEL: Final = re.compile(
    rb'(?<![a-zA-Z0-9_])([a-zA-Z_][a-zA-Z0-9_]*+)\s*+=\s*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
)
_ESCAPE: Final = re.compile(r'\\([\\n"])')


@final
@frozen
class Sample:
    """One line of a family."""

    value: float
    labels_text: bytes

    @property
    def labels(self) -> Mapping[str, str]:
        """Parsed when asked for: most signals need only the value."""
        return {
            name.decode("ascii"): unescape(value.decode("utf-8", "replace"))
            for name, value in _LABEL.findall(self.labels_text)
        }


def unescape(text: str) -> str:
    """A label's value without its escapes."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)


def samples(text: bytes, name: bytes) -> Iterator[Sample]:
    """The samples called exactly *name*, in the order of the text; unreadable ones are skipped."""
    at = 0 if text.startswith(name) else _next_line(text, name, 0)
    while at >= 0:
        end = at + len(name)
        sample = _sample(text, end)
        if sample is not None:
            yield sample
        at = _next_line(text, name, end)


def _next_line(text: bytes, name: bytes, start: int) -> int:
    at = text.find(b"\n" + name, start)
    return at + 1 if at >= 0 else -1


def _sample(text: bytes, end: int) -> Sample | None:
    if text[end : end + 1] not in (b"{", b" ", b"\t"):
        return None  # another family whose name only begins like this one
    found = _AFTER_NAME.match(text, end)
    if found is None:
        return None
    try:
        return Sample(float(found[2]), found[1] or b"")
    except ValueError:
        return None
