"""Finding families in Prometheus texts. M-09 is the field report of odd but legal ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from time import process_time

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from pointsman.plugins.exposition import Sample, samples

RUNNING = b"vllm:num_requests_running"
LOADED = (Path(__file__).parent / "data" / "vllm-load.txt").read_bytes()


def values(text: bytes, name: bytes = RUNNING) -> list[float]:
    return [sample.value for sample in samples(text, name)]


def only(text: bytes, name: bytes = RUNNING) -> Sample:
    (sample,) = samples(text, name)
    return sample


def test_a_real_text_gives_its_sample() -> None:
    assert only(LOADED).value == 16.0
    assert only(LOADED).labels == {"engine": "0", "model_name": "tiny-llama"}


def test_a_family_whose_name_only_begins_alike_is_another_one() -> None:
    assert values(LOADED, b"vllm:num_requests_waiting") == [8.0]
    assert values(LOADED, b"vllm:num_requests") == []


def test_help_and_type_lines_are_no_samples() -> None:
    text = b"# HELP vllm:num_requests_running 9\n# TYPE vllm:num_requests_running gauge\n"
    assert values(text) == []


def test_a_family_in_the_first_line_is_found() -> None:
    assert values(b"vllm:num_requests_running 3\n") == [3.0]


def test_an_empty_text_has_no_samples() -> None:
    assert values(b"") == []


def test_interleaved_families_are_read_to_their_end_m_09() -> None:
    text = (
        b'vllm:num_requests_running {model_name="a"} 3 1700000000000\n'
        b"some_other_family 1\n"
        b'vllm:num_requests_running {model_name="b"} 4\n'
    )
    assert [(s.labels, s.value) for s in samples(text, RUNNING)] == [
        ({"model_name": "a"}, 3.0),
        ({"model_name": "b"}, 4.0),
    ]


def test_escapes_in_label_values_are_undone_m_09() -> None:
    text = rb'vllm:num_requests_running{a="x\"y\\z\n",b="\\n",c="}{,="} 1'
    assert only(text).labels == {"a": 'x"y\\z\n', "b": r"\n", "c": "}{,="}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"+Inf", math.inf),
        (b"-Inf", -math.inf),
        (b"1e3", 1000.0),
        (b"\t 5\t1700000000000", 5.0),
        (b" 5 # {trace_id=\"x\"} 1", 5.0),
        (b" 5\r", 5.0),
        (b"{ a = \"1\" , } 5", 5.0),
        (b"{}5", 5.0),
    ],
)  # fmt: skip
def test_odd_but_legal_lines_are_read_m_09(line: bytes, value: float) -> None:
    separator = b"" if line[:1] in b"{\t " else b" "
    assert values(RUNNING + separator + line + b"\nother 1\n") == [value]


def test_crlf_and_a_missing_last_line_end_are_read_m_09() -> None:
    text = b'vllm:num_requests_running{a="1"} 3\r\nx 1\r\nvllm:num_requests_running{a="2"} 4'
    assert values(text) == [3.0, 4.0]


def test_a_nan_is_a_number_here_m_09() -> None:
    assert math.isnan(only(b"vllm:num_requests_running NaN").value)


@pytest.mark.parametrize(
    "rest", [b"", b" ", b" #", b" x", b"{a=\"1\"", b"{a=\"1} 5", b" {", b"{a=\"1\"}", b"\xff 5"]
)  # fmt: skip
def test_an_unreadable_line_costs_itself_only(rest: bytes) -> None:
    text = RUNNING + rest + b"\n" + RUNNING + b" 7\n"
    assert values(text) == [7.0]


def test_a_label_set_ends_with_its_line() -> None:
    text = RUNNING + b'{a="1\n' + RUNNING + b'{b="2"} 5\n'
    assert only(text).labels == {"b": "2"}


def test_bytes_that_are_no_utf_8_are_replaced_in_labels() -> None:
    assert only(b'vllm:num_requests_running{a="\xff"} 1').labels == {
        "a": "\N{REPLACEMENT CHARACTER}"
    }


# -- against the official parser ------------------------------------------------------------------

NAMES = ("vllm:num_requests_running", "vllm:num_requests", "up", "vllm:num_requests_running_total")
label_names = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,8}", fullmatch=True)
label_values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))
blanks = st.text(" \t", max_size=2)


def escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@frozen
class Line:
    name: str
    labels: Mapping[str, str]
    value: str
    before: str
    between: str
    timestamp: str

    def __str__(self) -> str:
        inside = f",{self.between}".join(f'{k}="{escaped(v)}"' for k, v in self.labels.items())
        label_set = f"{{{inside}}}" if self.labels or self.before else ""
        return f"{self.name}{self.before}{label_set} {self.value}{self.timestamp}"


lines = st.builds(
    Line,
    name=st.sampled_from(NAMES),
    labels=st.dictionaries(label_names, label_values, max_size=3),
    value=st.floats().map(repr) | st.integers(-(10**6), 10**6).map(str) | st.just("+Inf"),
    before=blanks,
    between=blanks,
    timestamp=st.sampled_from(["", " 1700000000000", "\t1"]),
)
comments = st.sampled_from(["# HELP up Is it?", "# TYPE up gauge", "", "# vllm:num_requests 3"])


@given(
    st.lists(lines.map(str) | comments, max_size=20),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(NAMES),
)
def test_valid_texts_are_read_as_the_official_parser_reads_them(
    text_lines: list[str], end: str, name: str
) -> None:
    text = end.join(text_lines)
    expected = [
        (sample.labels, repr(float(sample.value)))
        for family in text_string_to_metric_families(text.replace("\r\n", "\n"))
        for sample in family.samples
        if sample.name == name
    ]
    found = [(s.labels, repr(s.value)) for s in samples(text.encode(), name.encode())]
    assert found == expected


fragments = st.sampled_from([RUNNING, b"{", b"}", b'"', b"\\", b"=", b",", b" ", b"\n", b"1", b"a"])


@given(st.lists(fragments | st.binary(max_size=3)).map(b"".join))
def test_garbage_never_raises(text: bytes) -> None:
    for sample in samples(text, RUNNING):
        assert isinstance(sample.labels, dict)


@pytest.mark.parametrize(
    "unit",
    [b"n{\n", b'n{a="\n', b"\nn{a", b"n ", b" ", b"a", b"a ", b'a="', b'"a=" ', b"\\", b'\nn{""'],
)
def test_hostile_texts_take_time_in_proportion_to_their_length(unit: bytes) -> None:
    """CPU time, and a bound that only a quadratic reader exceeds (by 20 times)."""
    text = b"n{" + unit * 30_000 + b"} 1\nn" + unit * 30_000
    started = process_time()
    assert all(sample.labels is not None for sample in samples(text, b"n"))
    assert process_time() - started < 2.0
