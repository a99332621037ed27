"""Cutting a stream into lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.kube.lines import Lines, LineTooLong


@given(st.lists(st.binary(max_size=8).map(lambda b: b.replace(b"\n", b"-"))), st.data())
def test_the_lines_do_not_depend_on_where_the_stream_is_cut(
    texts: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(text + b"\n" for text in texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    lines = Lines(100)
    pieces = (stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True))
    assert [line for piece in pieces for line in lines.feed(piece)] == [t for t in texts if t]
    assert lines.rest == 0


def test_an_unfinished_line_is_kept() -> None:
    lines = Lines(100)
    assert lines.feed(b"one\ntw") == [b"one"]
    assert lines.rest == 2


def test_a_line_that_grows_too_long_is_an_error() -> None:
    lines = Lines(10)
    lines.feed(b"12345678")
    with pytest.raises(LineTooLong):
        lines.feed(b"9012")
