"""The prefix bench measures what it says."""

from __future__ import annotations

import pytest

from .prefix import SHORT, _Decider

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("warm", "share"), [(False, 0.0), (True, 0.9)])
def test_as_much_of_a_prompt_is_known_as_the_row_says(warm: bool, share: float) -> None:
    decider = _Decider.make()
    decide = decider.warm(SHORT) if warm else decider.cold(SHORT)
    for _ in range(3):
        decide()
        hits = [hit for hit in decider.witness.hits if hit is not None]
        assert max(hit.share for hit in hits) == pytest.approx(share, abs=0.02)
