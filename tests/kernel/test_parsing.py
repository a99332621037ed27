"""Which parser reads which path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import process_time

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kernel.keys import DataKey, Keys, keys
from pointsman.kernel.model import Headers, Parsed
from pointsman.kernel.parsing import NOBODY, Routes, make_routes, path_of, refuse_path

TEXT = DataKey("text", str)


@define(eq=False)
class Reader:
    """Claims *paths*, and notes what is asked of it."""

    paths: Sequence[str]
    interested: bool = True
    asked: list[tuple[str, Keys]] = field(factory=list[tuple[str, Keys]], init=False)

    def reader(self, path: str, wanted: Keys) -> Callable[[bytes], Parsed] | None:
        self.asked.append((path, wanted))
        return (lambda body: Parsed(path)) if self.interested else None


def routes(**parsers: Sequence[str]) -> Routes:
    return make_routes([(name, Reader(paths)) for name, paths in parsers.items()], keys())


@pytest.mark.parametrize(
    ("path", "parser"),
    [
        ("/v1/chat/completions", "chat"),
        ("/proxy/v1/chat/completions/", "chat"),
        ("chat/completions", "chat"),
        ("/v1/completions", "plain"),
        ("/v1/mycompletions", "rest"),
        ("/v1/completions/extra", "rest"),
        ("/", "rest"),
        ("", "rest"),
    ],
)
def test_the_longest_ending_of_whole_segments_wins(path: str, parser: str) -> None:
    found = routes(plain=["completions"], rest=[], chat=["chat/completions"]).find(path)
    assert found.parser == parser


def test_the_first_claim_of_a_path_wins() -> None:
    assert routes(one=["a"], other=["a"]).find("/a").parser == "one"
    assert routes(one=[], other=[]).find("/a").parser == "one"


def test_a_path_that_nobody_claims_is_nobodys() -> None:
    assert routes(one=["a"]).find("/b") is NOBODY


def test_a_reader_is_made_once_for_what_is_wanted() -> None:
    parser = Reader(["a", "b"])
    made = make_routes([("p", parser)], keys(TEXT))
    for path in ("/a", "/a", "/x/a", "/b"):
        made.find(path)
    assert parser.asked == [("a", keys(TEXT)), ("b", keys(TEXT))]


@pytest.mark.parametrize(
    ("interested", "fallback", "reads"),
    [(True, False, True), (False, True, True), (False, False, False)],
)
def test_it_is_known_whether_any_body_is_read(
    interested: bool, fallback: bool, reads: bool
) -> None:
    parsers = [("p", Reader(["a"], interested)), ("q", Reader([], fallback))]
    assert make_routes(parsers, keys()).reads_bodies is reads


@given(st.text(max_size=50))
def test_any_path_has_a_route(path: str) -> None:
    assert routes(one=["a/b"], rest=[]).find(path).parser in ("one", "rest")


def test_r_01_a_path_of_many_segments_takes_no_time() -> None:
    found = routes(one=["a/b"], rest=[])
    started = process_time()
    assert found.find("/b" * 30_000).parser == "rest"
    assert found.find("/b" * 30_000 + "/a/b").parser == "one"
    assert process_time() - started < 1.0


@pytest.mark.parametrize(
    ("headers", "path"),
    [
        ({":path": b"/v1/x?api-version=1#top"}, "/v1/x"),
        ({":path": b"/v1/x#top?"}, "/v1/x"),
        ({"x-original-path": b"/v1/y"}, "/v1/y"),
        ({"x-forwarded-path": b"/v1/z"}, "/v1/z"),
        ({}, "/v1/completions"),
        ({":path": b""}, "/v1/completions"),
    ],
)
def test_a_path_has_no_query(headers: Mapping[str, bytes], path: str) -> None:
    assert path_of(Headers(headers)) == path


def test_a_path_that_nobody_reads_is_the_clients_error() -> None:
    refusal = refuse_path("/" + "x" * 5000)
    assert refusal.status == 400
    assert len(refusal.message) < 300
