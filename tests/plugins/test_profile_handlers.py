"""The profile handler."""

from __future__ import annotations

import pytest

from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import ProfileResult
from pointsman.kernel.testing import Bench, endpoints
from pointsman.plugins.profile_handlers import SingleProfileHandler

BENCH = Bench(SingleProfileHandler())
RESULT = ProfileResult(endpoints("a"), endpoints("a"), (1.0,))


def test_the_profile_runs_once() -> None:
    assert BENCH.call("profiles", None, ("default",), {}) == ("default",)
    assert BENCH.call("profiles", None, ("default",), {"default": RESULT}) == ()


def test_a_profile_that_failed_is_not_run_again() -> None:
    assert BENCH.call("profiles", None, ("default",), {"default": None}) == ()


def test_the_profile_with_a_result_is_the_primary_one() -> None:
    assert BENCH.call("primary", None, {"default": RESULT}) == "default"


@pytest.mark.parametrize("results", [{"default": None}, {}, {"a": RESULT, "b": RESULT}])
def test_exactly_one_result_is_demanded(results: dict[str, ProfileResult | None]) -> None:
    with pytest.raises(Refusal) as refused:
        BENCH.call("primary", None, results)
    assert refused.value.status == 429
