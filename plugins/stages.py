"""The stages of one request, each on an endpoint of its own: encoding, prefill, decoding.

Which stage comes next, what the sidecar of the decoding pod is told of the others' endpoints,
and how often which stages were used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final, final

from attrs import define, field, frozen
from prometheus_client.metrics_core import CounterMetricFamily, Metric

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Consumes, DataView, keys
from pointsman.kernel.model import MODEL_NAME, Endpoint, ProfileResult, SchedulingResult
from pointsman.kernel.names import Names
from pointsman.kernel.plugin import Results
from pointsman.kernel.registry import Stability
from pointsman.kernel.scheduling import NO_ENDPOINTS

from .keys import PEER_ENDPOINT

PREFILLER_HEADER: Final = "x-prefiller-host-port"
ENCODERS_HEADER: Final = "x-encoder-hosts-ports"


@final
@frozen(kw_only=True)
class Stages:
    """The profiles of the stages, and who says whether one is worth its while.

    A stage exists where its profile is configured. Without a decider it is left out, but for
    decoding, and for a prefill that comes first.
    """

    decode: str
    prefill: str
    encode: str = ""
    prefill_decider: str = ""
    encode_decider: str = ""
    prefill_first: bool = False

    @property
    def deciders(self) -> tuple[str, ...]:
        return tuple(name for name in (self.prefill_decider, self.encode_decider) if name)

    def next(self, data: DataView, available: Sequence[str], results: Results) -> Sequence[str]:
        """The profile to run next; none when all have run that are to.

        Before a stage whose endpoint must reach another's, that one is written as the peer.
        """
        if self.prefill_first:
            return self._after_prefill(data, available, results)
        return self._after_decode(data, available, results)

    def _after_decode(
        self, data: DataView, available: Sequence[str], results: Results
    ) -> Sequence[str]:
        if self.decode not in results:
            return (self.decode,)
        decode = results[self.decode]
        if decode is None or self.prefill in results:
            return ()
        to_run = [name for name in available if name not in results]
        target = decode.targets[0]
        if self.encode in to_run and _asked(data, self.encode_decider, target):
            return (self.encode,)
        if self.prefill in to_run and _asked(data, self.prefill_decider, target):
            data[PEER_ENDPOINT] = target
            return (self.prefill,)
        return ()

    def _after_prefill(
        self, data: DataView, available: Sequence[str], results: Results
    ) -> Sequence[str]:
        to_run = [name for name in available if name not in results]
        if self.prefill in to_run:
            return (self.prefill,)
        if self.decode not in to_run:
            return ()
        if self.encode in to_run and _asked(data, self.encode_decider, None):
            return (self.encode,)
        prefill = results.get(self.prefill)
        if prefill is not None:
            data[PEER_ENDPOINT] = prefill.targets[0]
        return (self.decode,)

    def primary(self, results: Results) -> str:
        """The profile of decoding, which is the one stage that cannot be left out.

        Raises:
            Refusal: 503 when no endpoint decodes.
        """
        if results.get(self.decode) is None:
            message = "failed to find available decode workers"
            raise Refusal(503, message, reason=NO_ENDPOINTS)
        return self.decode

    def used(self, results: Results) -> str:
        """The stages that found endpoints: ``decode-only``, ``encode-prefill-decode``, ..."""
        names = {"encode": self.encode, "prefill": self.prefill}
        before = [stage for stage, name in names.items() if results.get(name) is not None]
        return "-".join((*before, "decode")) if before else "decode-only"


def _asked(data: DataView, decider: str, endpoint: Endpoint | None) -> bool:
    return bool(decider) and data.ask(decider, endpoint)


def sidecar_headers(results: Results, prefill: str, encode: str) -> Mapping[str, str]:
    """Where the sidecar of the decoding pod finds the other stages; only of those that ran."""
    headers: dict[str, str] = {}
    prefilled, encoded = results.get(prefill), results.get(encode)
    if prefilled is not None:
        headers[PREFILLER_HEADER] = prefilled.targets[0].host_port
    if encoded is not None:
        headers[ENCODERS_HEADER] = _all_targets(encoded)
    return headers


def _all_targets(result: ProfileResult) -> str:
    return ",".join(target.host_port for target in result.targets)


@final
@define(eq=False)
class StageCount:
    """How many requests used which stages, by model; of many models the later are ``other``."""

    plugin_type: str
    models: Names = field(factory=Names)
    _counts: Counter[tuple[str, str, str]] = field(
        factory=Counter[tuple[str, str, str]], init=False
    )

    def note(self, plugin: str, model: str, used: str) -> None:
        self._counts[plugin, self.models.label(model), used] += 1

    def family(self) -> Metric:
        family = CounterMetricFamily(
            "llm_d_epp_disagg_decision",
            "Scheduled requests, by the stages that were given endpoints.",
            labels=["plugin_name", "plugin_type", "model_name", "decision_type"],
        )
        for (plugin, model, used), number in self._counts.items():
            family.add_metric([plugin, self.plugin_type, model, used], number)
        return family


@define(eq=False)
class StagedHandler(ABC):
    """What profile handlers have in common whose profiles are the stages of a request.

    The classes say what their stages are, and what is told of them before the request.
    """

    type_name: ClassVar[str]
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(optional=[MODEL_NAME])
    produces: ClassVar = keys(PEER_ENDPOINT)
    _stages: Stages = field(init=False)
    _count: StageCount = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._stages = self._make_stages()
        self._count = StageCount(self.type_name)

    @abstractmethod
    def _make_stages(self) -> Stages: ...

    @property
    def needs_profiles(self) -> tuple[str, ...]:
        return (self._stages.decode,)

    @property
    def deciders(self) -> tuple[str, ...]:
        return self._stages.deciders

    def profiles(self, data: DataView, available: Sequence[str], results: Results) -> Sequence[str]:
        return self._stages.next(data, available, results)

    def primary(self, data: DataView, results: Results) -> str:
        return self._stages.primary(results)

    def figures(self) -> Iterable[Metric]:
        yield self._count.family()

    def _note(self, data: DataView, result: SchedulingResult) -> None:
        """Count which stages were given endpoints."""
        used = self._stages.used(result.profiles)
        self._count.note(data.plugin, data.get(MODEL_NAME) or "", used)
