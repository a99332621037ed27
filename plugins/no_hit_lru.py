"""Requests that nobody has a prefix of go to whom such a request went longest ago.

So that prompts which will grow into long shared prefixes are spread over the pool. Differences
from the reference are deliberate: positions are counted among the candidates, deleted endpoints
are forgotten, and each profile run is cold or warm for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, islice
from typing import ClassVar, Final, final

from attrs import define, field, frozen

from pointsman.kernel.keys import Consumes, DataView, on
from pointsman.kernel.model import POD_DELETED, Endpoint, Identity, PodDeleted, SchedulingResult
from pointsman.kernel.registry import Stability
from pointsman.kernel.state import StateKey
from pointsman.kernel.structure import at_least

from .keys import PREFIX_HIT

MOST_SHOWN: Final = 100
COLD: Final = StateKey[list[Sequence[Endpoint]]]("cold-runs", list)
"""The candidates of each profile run that found no prefix."""


@final
@frozen(kw_only=True)
class NoHitLruParameters:
    lru_size: int = field(default=1024, validator=at_least(1))
    """Endpoints that are remembered as used."""
    prefix_match_info_producer_name: str = ""
    prefix_plugin_type: str = ""
    """Deprecated, without effect."""
    prefix_plugin_name: str = ""
    """Deprecated, without effect."""
    prefill_profile_name: str = "prefill"
    """Not in the reference: the profile whose endpoint is used by a request, too."""


@final
@define(eq=False)
class NoHitLruScorer:
    """Prefers, for a prompt that no candidate has any of, those longest without such a prompt.

    ``1 - place / (candidates - 1)``, with those that never had one first, in their order; 1 for
    a single candidate. When some candidate has some of the prompt, all get 0.5.
    """

    type_name: ClassVar = "no-hit-lru-scorer"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(PREFIX_HIT)
    parameters: NoHitLruParameters
    _used: dict[Identity, int] = field(factory=dict[Identity, int], init=False)
    """When each was used last, by a running number; in that order."""
    _clock: count[int] = field(factory=lambda: count(1), init=False)

    @property
    def producer_names(self) -> Mapping[str, str]:
        return {PREFIX_HIT.name: self.parameters.prefix_match_info_producer_name}

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        hits = data.get(PREFIX_HIT) or ()
        if any(hit is not None and hit.match > 0 for hit in hits):
            return [0.5] * len(endpoints)
        data.state.write(COLD, [*(data.state.read(COLD) or ()), endpoints])
        return self._by_last_use(endpoints)

    def _by_last_use(self, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        last = [self._used.get(endpoint.identity, 0) for endpoint in endpoints]
        most = max(len(last) - 1, 1)
        scores = [0.0] * len(last)
        for place, index in enumerate(sorted(range(len(last)), key=last.__getitem__)):
            scores[index] = 1.0 - place / most
        return scores

    def before_request(self, data: DataView, result: SchedulingResult) -> None:
        """Note who was chosen in a cold run."""
        cold = data.state.read(COLD)
        if cold is None:
            return
        data.state.delete(COLD)
        for name in dict.fromkeys((result.primary, self.parameters.prefill_profile_name)):
            run = result.profiles.get(name)
            if run is not None and any(run.candidates is seen for seen in cold):
                self._use(run.targets[0].identity)

    def _use(self, identity: Identity) -> None:
        self._used.pop(identity, None)
        self._used[identity] = next(self._clock)
        if len(self._used) > self.parameters.lru_size:
            del self._used[next(iter(self._used))]

    @on(POD_DELETED)
    def forget(self, event: PodDeleted) -> None:
        self._used.pop(event.endpoint.identity, None)

    def dump_state(self) -> object:
        """The endpoints used last, latest first."""
        latest = islice(reversed(self._used), MOST_SHOWN)
        return {"used": len(self._used), "latest": [identity.uid for identity in latest]}
