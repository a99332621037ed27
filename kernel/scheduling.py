"""One cycle of scheduling: profile handler, filters, scorers, picker, on one snapshot.

Everything here is a plain function call. A plugin that raises loses its contribution: a filter
keeps everyone, a scorer gives nothing; only a picker or a profile handler is indispensable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Final, cast, final

from attrs import define, field, frozen

from .calls import PROCESS_RESULTS
from .errors import AbsentKey, Refusal
from .installed import Installed
from .keys import ABSENT, Frame
from .model import Endpoint, ProfileResult, SchedulingResult
from .plugin import Results, Role
from .tracing import Attributes, Trace

NO_ENDPOINTS: Final = "rejected-no-endpoints"
SATURATED: Final = "rejected-saturated"
EPP: Final = "llm_d.epp."
"""Before the names of what traces tell, as in the reference system."""
BEST: Final = 5  # endpoints that a trace names
# A member by its own name: looking it up in its class takes longer than telling who took how long.
FILTER: Final = Role.FILTER
SCORER: Final = Role.SCORER
PICKER: Final = Role.PICKER
HANDLER: Final = Role.PROFILE_HANDLER


@final
@frozen
class WeightedScorer:
    installed: Installed
    weight: float


@final
@define(eq=False)
class ProfileRunner:
    """A scheduling profile with its plugins looked up."""

    name: str
    filters: tuple[Installed, ...]
    scorers: tuple[WeightedScorer, ...]
    picker: Installed
    columns: tuple[int, ...]
    """The slots of the per-endpoint data that these plugins read."""
    writes: tuple[int, ...] = ()
    """The slots that these plugins fill for those who come after the decision."""

    def run(
        self, outer: Frame, endpoints: Sequence[Endpoint], trace: Trace | None = None
    ) -> ProfileResult:
        """Filter, score and pick.

        What the plugins write of the request, they write for those who come after the decision
        too, whoever was filtered out meanwhile.

        Raises:
            Refusal: 429 when the filters leave nobody.
        """
        frame = Frame(outer.request, outer.values, endpoints)
        try:
            if trace is None:
                return self._run(frame, endpoints)
            return self._run_followed(trace, frame, endpoints)
        finally:
            if frame.values is not outer.values:
                for slot in self.writes:
                    outer.values[slot] = frame.values[slot]

    def _run(self, frame: Frame, endpoints: Sequence[Endpoint]) -> ProfileResult:
        endpoints = self._filtered(frame, endpoints)
        totals = [0.0] * len(endpoints)
        for scorer in self.scorers:
            totals = _add_scores(scorer, frame, endpoints, totals)
        targets = self._pick(frame, endpoints, totals)
        return ProfileResult(targets, endpoints, totals)

    def _run_followed(
        self, trace: Trace, frame: Frame, endpoints: Sequence[Endpoint]
    ) -> ProfileResult:
        """As `_run`, step by step."""
        with trace.step("run_scheduler_profile", {f"{EPP}scheduling.profile.name": self.name}):
            given = {f"{EPP}filter.candidate_endpoints": len(endpoints)}
            with trace.step("filter_endpoints", given) as step:
                endpoints = self._filtered(frame, endpoints)
                step.note({f"{EPP}filter.filtered_endpoints": len(endpoints)})
            totals = self._score_followed(trace, frame, endpoints)
            given = {f"{EPP}picker.candidate_endpoints": len(endpoints)}
            with trace.step("pick_endpoints", given) as step:
                targets = self._pick(frame, endpoints, totals)
                step.note({f"{EPP}picker.top_endpoints": _best(endpoints, totals)})
            return ProfileResult(targets, endpoints, totals)

    def _score_followed(
        self, trace: Trace, frame: Frame, endpoints: Sequence[Endpoint]
    ) -> list[float]:
        totals = [0.0] * len(endpoints)
        counts = {
            f"{EPP}scoring.scorers": len(self.scorers),
            f"{EPP}scoring.candidate_endpoints": len(endpoints),
        }
        with trace.step(f"{EPP}scoring", counts):
            for scorer in self.scorers:
                name = f"{EPP}scorer.{scorer.installed.type_name}"
                with trace.step(name, _described(scorer, endpoints)) as step:
                    before = totals
                    totals = _add_scores(scorer, frame, endpoints, totals)
                    step.note(_added(scorer, before, totals))
        return totals

    def _filtered(self, frame: Frame, endpoints: Sequence[Endpoint]) -> Sequence[Endpoint]:
        for installed in self.filters:
            endpoints = self._filter(installed, frame, endpoints)
        return endpoints

    def _filter(
        self, installed: Installed, frame: Frame, endpoints: Sequence[Endpoint]
    ) -> Sequence[Endpoint]:
        view = installed.view
        try:
            mask = installed.plugin.keep(view.lend(frame, FILTER), endpoints)
            _same_length(mask, endpoints)
        except AbsentKey:
            return endpoints
        except Exception as exc:
            installed.failed(FILTER, exc)
            return endpoints
        finally:
            view.close()
        installed.worked()
        if all(mask):
            return endpoints
        return self._narrow(installed, frame, endpoints, mask)

    def _narrow(
        self,
        installed: Installed,
        frame: Frame,
        endpoints: Sequence[Endpoint],
        mask: Sequence[bool],
    ) -> Sequence[Endpoint]:
        kept = tuple(compress(endpoints, mask))
        if not kept:
            raise nobody_left(installed)
        frame.values = narrowed(frame.values, self.columns, mask)
        frame.endpoints = kept
        return kept

    def _pick(
        self, frame: Frame, endpoints: Sequence[Endpoint], totals: Sequence[float]
    ) -> tuple[Endpoint, ...]:
        installed = self.picker
        view = installed.view
        try:
            targets = tuple(installed.plugin.pick(view.lend(frame, PICKER), endpoints, totals))
        except Exception as exc:
            installed.failed(PICKER, exc)
            raise Refusal(500, "the picker failed") from exc
        finally:
            view.close()
        installed.worked()
        if not targets:
            raise Refusal(429, "no endpoints available for the given request", reason=SATURATED)
        return targets


def nobody_left(installed: Installed) -> Refusal:
    """Why nobody is left: a missing role or label is no question of load (503, not 429)."""
    if getattr(installed.plugin, "empty_means_absent", False):
        message = f"no endpoint fits the filter {installed.name}"
        return Refusal(503, message, reason=NO_ENDPOINTS)
    return Refusal(
        429, "no endpoints available for the given request", reason=SATURATED, retry_after=1
    )


def narrowed(values: list[object], columns: Sequence[int], mask: Sequence[bool]) -> list[object]:
    """A copy of *values* whose *columns* keep the masked entries: once for all who read them."""
    copy = values.copy()
    for slot in columns:
        column = copy[slot]
        if column is not ABSENT:
            copy[slot] = list(compress(cast("Sequence[object]", column), mask))
    return copy


def _same_length(given: Sequence[object], endpoints: Sequence[Endpoint]) -> None:
    if len(given) != len(endpoints):
        raise ValueError(f"{len(given)} entries for {len(endpoints)} endpoints")


def _add_scores(
    scorer: WeightedScorer, frame: Frame, endpoints: Sequence[Endpoint], totals: list[float]
) -> list[float]:
    installed = scorer.installed
    view = installed.view
    try:
        scores = installed.plugin.score(view.lend(frame, SCORER), endpoints)
        _same_length(scores, endpoints)
        added = _weighted(scores, scorer.weight, totals)
    except AbsentKey:
        return totals
    except Exception as exc:
        installed.failed(SCORER, exc)
        return totals
    finally:
        view.close()
    installed.worked()
    return added


def _weighted(scores: Sequence[float | None], weight: float, totals: list[float]) -> list[float]:
    """Weighted sums. Scores outside 0..1 are clamped, no score and NaN add nothing."""
    return [
        total + weight * score
        if score is not None and 0.0 <= score <= 1.0
        else total + weight * _clamped(score)
        for total, score in zip(totals, scores, strict=True)
    ]


def _clamped(score: float | None) -> float:
    if score is None or math.isnan(score):
        return 0.0
    return min(1.0, max(0.0, score))


# -- what traces tell --------------------------------------------------------------------------


def _best(endpoints: Sequence[Endpoint], totals: Sequence[float]) -> Sequence[str]:
    ranked = sorted(zip(totals, endpoints, strict=True), key=lambda pair: pair[0], reverse=True)
    return [f"{endpoint.id}={total:.4f}" for total, endpoint in ranked[:BEST]]


def _described(scorer: WeightedScorer, endpoints: Sequence[Endpoint]) -> Attributes:
    return {
        f"{EPP}scorer.type": scorer.installed.type_name,
        f"{EPP}scorer.name": scorer.installed.name,
        f"{EPP}scorer.weight": scorer.weight,
        f"{EPP}scorer.candidate_endpoints": len(endpoints),
    }


def _added(scorer: WeightedScorer, before: Sequence[float], after: Sequence[float]) -> Attributes:
    """What a scorer gave, as far as it had any weight; nothing where it gave nothing."""
    if after is before or not scorer.weight or not after:
        return {f"{EPP}scorer.endpoints_scored": 0}
    given = [(new - old) / scorer.weight for old, new in zip(before, after, strict=True)]
    return {
        f"{EPP}scorer.endpoints_scored": len(given),
        f"{EPP}scorer.score.max": max(given),
        f"{EPP}scorer.score.avg": sum(given) / len(given),
    }


@final
@define(eq=False)
class Scheduler:
    """Runs the profiles that the profile handler asks for, until it asks for none."""

    handler: Installed
    profiles: Mapping[str, ProfileRunner]
    _names: tuple[str, ...] = field(init=False)
    _most_rounds: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._names = tuple(self.profiles)
        # A handler may run a profile again (a stage after another), but not for ever.
        self._most_rounds = 2 * len(self._names) + 2

    def schedule(
        self, frame: Frame, endpoints: Sequence[Endpoint], trace: Trace | None = None
    ) -> SchedulingResult:
        """Choose targets among *endpoints*.

        Raises:
            Refusal: with the status that the client is to see.
        """
        results: dict[str, ProfileResult | None] = {}
        refusals: dict[str, Refusal] = {}
        for _ in range(self._most_rounds):
            wanted = self._ask(frame, results)
            if not wanted:
                return self._result(frame, results, refusals)
            for name in wanted:
                try:
                    results[name] = self.profiles[name].run(frame, endpoints, trace)
                    refusals.pop(name, None)
                except Refusal as refusal:
                    results[name] = None
                    refusals[name] = refusal.with_traceback(None)  # it would hold these frames
        raise self._useless("never comes to an end")

    def _ask(self, frame: Frame, results: Results) -> Sequence[str]:
        handler = self.handler
        view = handler.view
        try:
            lent = view.lend(frame, HANDLER)
            wanted: Sequence[str] = handler.plugin.profiles(lent, self._names, results)
            return [name for name in wanted if name in self.profiles]
        except Refusal:
            raise
        except Exception as exc:
            raise self._broken(exc) from exc
        finally:
            view.close()

    def _result(
        self, frame: Frame, results: Results, refusals: Mapping[str, Refusal]
    ) -> SchedulingResult:
        if not results:
            raise self._useless("ran no profile")
        view = self.handler.view
        try:
            primary = self.handler.plugin.primary(view.lend(frame, PROCESS_RESULTS), results)
            result = results.get(primary)
        except Refusal as refusal:
            raise _first(refusals) or refusal from None
        except Exception as exc:
            raise self._broken(exc) from exc
        finally:
            view.close()
        if result is None:
            raise _first(refusals) or Refusal(503, f"profile {primary} found no endpoint")
        self.handler.worked()
        return SchedulingResult(results, primary)

    def destination(self, frame: Frame, targets: Sequence[Endpoint]) -> str:
        """Where to send to, best first; a handler may say for each target what its address is."""
        plugin = self.handler.plugin
        if not hasattr(plugin, "destination"):
            return (
                targets[0].host_port
                if len(targets) == 1
                else ",".join(target.host_port for target in targets)
            )
        view = self.handler.view.lend(frame, PROCESS_RESULTS)
        try:
            return ",".join(str(plugin.destination(view, target)) for target in targets)
        except Exception as exc:
            raise self._broken(exc) from exc
        finally:
            view.close()

    def _useless(self, what: str) -> Refusal:
        message = f"profile handler {self.handler.name} {what}"
        self.handler.failed(HANDLER, RuntimeError(message))
        return Refusal(500, message)

    def _broken(self, exc: Exception) -> Refusal:
        self.handler.failed(HANDLER, exc)
        return Refusal(500, "the profile handler failed")


def _first(refusals: Mapping[str, Refusal]) -> Refusal | None:
    """The refusal that speaks for all: of the first profile by name, as in the reference."""
    return refusals[min(refusals)] if refusals else None
