from __future__ import annotations

import json

import pytest

from . import company
from .company import Amount, Company
from .large_bodies import bodies
from .scenarios import KB
from .server import Baseline

pytestmark = pytest.mark.long

LEAST = Amount(repeat=1, picks=20, open_streams=30, exchanges=20)


@pytest.fixture
def measured() -> Company:
    return Company(Baseline(), LEAST, lambda row, state: None)


def test_small_requests_are_measured_alone_and_beside_large_ones(measured: Company) -> None:
    figure = measured.beside_bodies("picks beside 400 KB bodies")
    assert (figure.unit, figure.error) == ("ms", "")
    assert figure.target is not None
    assert figure.note.startswith("p50/p99/max ")


def test_an_exchange_is_measured_beside_open_streams(measured: Company) -> None:
    picks, memory = measured.beside_streams()
    assert (picks.name, memory.name) == (company.PICKS, company.MEMORY)
    assert picks.target is not None
    assert picks.target > 0
    assert "beside 30 open" in picks.note
    assert memory.target is not None


@pytest.mark.parametrize(
    ("quantile", "milliseconds"), [(0.0, 1.0), (0.5, 51.0), (0.99, 100.0), (1.0, 100.0)]
)
def test_a_quantile_is_the_latency_that_so_many_kept(quantile: float, milliseconds: float) -> None:
    values = [number / 1e3 for number in range(100, 0, -1)]
    assert company._quantile(values, quantile) == pytest.approx(milliseconds)


def test_large_bodies_differ_as_far_as_they_fit_in_memory() -> None:
    made = bodies(400 * KB)
    assert len(set(made)) == 8
    assert {len(body) for body in made} == {400 * KB}
    assert len({json.loads(body)["messages"][1]["content"][:7] for body in made}) == 8
    assert len(bodies(64 << 20)) == 1
