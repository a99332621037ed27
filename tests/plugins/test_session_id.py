"""The name of a session, in a header or a cookie."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import refused

from pointsman.kernel.model import REQUEST_HEADERS, Headers
from pointsman.kernel.testing import Bench
from pointsman.plugins.keys import SESSION_ID
from pointsman.plugins.session_id import SessionIdParameters, SessionIdProducer, cookie


def produced(headers: dict[str, bytes], **parameters: Any) -> str | None:
    bench = Bench(SessionIdProducer(SessionIdParameters(**parameters)))
    session: str | None = bench.produce_now({REQUEST_HEADERS: Headers(headers)}).get(SESSION_ID)
    return session


def test_a_session_is_named_by_a_header() -> None:
    assert produced({"x-session": b" abc "}, header_name=" X-Session ") == "abc"


def test_a_session_is_named_by_a_cookie() -> None:
    headers = {"cookie": b"theme=dark; sid=abc; sid=later; lang=en"}
    assert produced(headers, cookie_name=" sid ") == "abc"


@pytest.mark.parametrize("headers", [{}, {"x-session": b""}, {"x-session": b"  "}, {"x": b"abc"}])
def test_without_a_name_in_the_header_nothing_is_produced(headers: dict[str, bytes]) -> None:
    assert produced(headers, header_name="x-session") is None


@pytest.mark.parametrize("text", [b"", b"sid", b"sid=", b"sid=  ; a=b", b"SID=abc", b'sid=""'])
def test_without_a_name_in_the_cookie_nothing_is_produced(text: bytes) -> None:
    assert produced({"cookie": text}, cookie_name="sid") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sid=abc", "abc"),
        (";;= ;nonsense; =x; sid=abc;", "abc"),
        ('sid="abc"', "abc"),
        ('sid="', '"'),
        ("sid=a=b==", "a=b=="),
        (" sid = abc ", "abc"),
        ("other-sid=x; sid=abc", "abc"),
    ],
)
def test_pairs_that_are_none_are_skipped(text: str, expected: str) -> None:
    assert cookie(text, "sid") == expected


@given(st.text(), st.text(min_size=1))
def test_any_cookie_header_can_be_read(text: str, name: str) -> None:
    assert isinstance(cookie(text, name), str)


@given(st.text(alphabet="abcdefgh0123456789-_=."))
def test_a_cookie_is_read_as_it_was_written(value: str) -> None:
    assert cookie(f"a=b; sid={value}; c=d", "sid") == value


@pytest.mark.parametrize(
    "parameters",
    [
        "{}",
        "{headerName: ' '}",
        "{cookieName: ' '}",
        "{headerName: x-session, cookieName: sid}",
    ],
)
def test_header_or_cookie_exactly_one_is_needed(parameters: str) -> None:
    text = f"plugins: [{{type: session-id-producer, parameters: {parameters}}}]"
    (mistake,) = refused(text, SessionIdProducer)
    assert "exactly one of headerName and cookieName is needed" in mistake
