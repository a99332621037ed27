"""How often does a request end up elsewhere than on its pin, and how do those requests end?

Shows state that lives from scoring to the end of the response without any shared map: written
in `score`, read in `before_request`, finished in `on_response_end`, whichever way that comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from attrs import define, field

from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import Endpoint, RequestEnd, SchedulingResult
from pointsman.kernel.state import StateKey

from . import PIN

WISH = StateKey("wish", str)
OUTCOME = StateKey("outcome", str)


@define(eq=False)
class SecondThoughts:
    """Counts pinned requests by whether their pin was followed and how they ended."""

    type_name: ClassVar = "second-thoughts"
    consumes: ClassVar = Consumes(optional=[PIN])
    open: Counter[str] = field(factory=Counter[str], init=False)
    ended: Counter[tuple[str, str]] = field(factory=Counter[tuple[str, str]], init=False)

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[None]:
        pin = data.get(PIN)
        if pin is not None:
            data.state.write(WISH, pin)
        return [None] * len(endpoints)

    def before_request(self, data: DataView, result: SchedulingResult) -> None:
        wish = data.state.read(WISH)
        if wish is not None:
            outcome = "followed" if result.target.name == wish else "outvoted"
            data.state.write(OUTCOME, outcome)
            self.open[outcome] += 1

    def on_response_end(self, data: DataView, end: RequestEnd) -> None:
        outcome = data.state.read(OUTCOME)
        if outcome is not None:
            self.open[outcome] -= 1
            self.ended[outcome, end.cause.value] += 1

    def dump_state(self) -> object:
        """What ``/debug/plugins/state`` shows."""
        return {
            "open": dict(self.open),
            "ended": {f"{outcome}, {cause}": n for (outcome, cause), n in self.ended.items()},
        }
