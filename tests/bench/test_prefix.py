"""The prefix bench measures what it says."""

from __future__ import annotations

import pytest

from pointsman.plugins.keys import PrefixHit

from .prefix import SHORT, _Decider


@pytest.mark.parametrize(("warm", "share"), [(False, 0.0), (True, 0.9)])
def test_as_much_of_a_prompt_is_known_as_the_row_says(warm: bool, share: float) -> None:
    decider = _Decider.make()
    decide = decider.warm(SHORT) if warm else decider.cold(SHORT)
    for _ in range(3):
        columns = [value for value in decide().frame.values if isinstance(value, list)]
        (hits,) = [column for column in columns if isinstance(column[0], PrefixHit)]
        assert max(hit.share for hit in hits) == pytest.approx(share, abs=0.02)
