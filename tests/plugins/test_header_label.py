"""The header-label affinity scorer."""

from __future__ import annotations

import pytest
from tests.kernel.zoo import refused

from pointsman.kernel.model import REQUEST_HEADERS, Headers
from pointsman.kernel.testing import Bench, endpoint
from pointsman.plugins.header_label import HeaderLabelAffinityScorer, HeaderLabelParameters

PARAMETERS = HeaderLabelParameters(header_name=" X-Tier ", label_key="tier")
BENCH = Bench(
    HeaderLabelAffinityScorer(PARAMETERS),
    [
        endpoint("gold", labels={"tier": "gold"}),
        endpoint("tin", labels={"tier": "tin"}),
        endpoint("empty", labels={"tier": ""}),
        endpoint("none"),
    ],
)


def score(**headers: bytes) -> list[float | None]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return BENCH.score({REQUEST_HEADERS: Headers(named)})


def test_the_endpoint_with_the_named_label_gets_1_and_the_rest_0() -> None:
    assert score(x_tier=b"tin") == [0.0, 1.0, 0.0, 0.0]


def test_upper_and_lower_case_of_the_value_differ() -> None:
    assert score(x_tier=b"Tin") == [0.0] * 4


def test_without_the_header_all_get_0() -> None:
    assert score(other=b"tin") == [0.0] * 4


@pytest.mark.parametrize("value", [b"", b"\xff"])
def test_a_header_that_names_nothing_gives_0(value: bytes) -> None:
    assert score(x_tier=value) == [0.0] * 4


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ("{labelKey: tier}", "parameters.headerName: is required"),
        ("{headerName: x-tier}", "parameters.labelKey: is required"),
        ('{headerName: " ", labelKey: tier}', "parameters.headerName: must not be empty"),
        ('{headerName: x-tier, labelKey: ""}', "parameters.labelKey: must not be empty"),
    ],
)
def test_mistaken_parameters_are_refused(parameters: str, complaint: str) -> None:
    text = f"plugins: [{{type: header-label-affinity-scorer, parameters: {parameters}}}]"
    (mistake,) = refused(text, HeaderLabelAffinityScorer)
    assert complaint in mistake
