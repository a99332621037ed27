"""A request that is followed tells its steps; what comes of it is the same."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import anyio
from attrs import define, field
from trio.testing import MockClock

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Consumes, DataView, keys
from pointsman.kernel.model import Parsed, Request
from pointsman.kernel.testing import decide, endpoints, make_request, pool, wired
from pointsman.kernel.tracing import Attributes

from . import zoo
from .zoo import NOTE, in_profile, listed

POOL: Final = pool(endpoints("a", "b", "c"))
KEEP_TWO = zoo.keeper("keep-two", lambda data, given: [e.name != "c" for e in given])
KEEP_NONE = zoo.keeper("keep-none", lambda data, given: [False] * len(given))
HALF = zoo.giving("half", 0.5, 1.0)
BROKEN = zoo.scorer("broken", zoo.failing)


@define(eq=False)
class Note:
    """One step as it was told."""

    name: str
    depth: int
    attributes: dict[str, Any]
    failure: str = ""

    def note(self, attributes: Attributes) -> None:
        self.attributes.update(attributes)


@define(eq=False)
class Notes:
    """A trace that writes down what it is told."""

    steps: list[Note] = field(factory=list[Note])
    _depth: int = field(default=0, init=False)

    @contextmanager
    def step(self, name: str, attributes: Attributes) -> Generator[Note, None, None]:
        note = Note(name, self._depth, dict(attributes))
        self.steps.append(note)
        self._depth += 1
        try:
            yield note
        except Exception as exc:
            note.failure = str(exc)
            raise
        finally:
            self._depth -= 1

    def headers(self) -> Mapping[str, str]:
        return {"traceparent": "ours"}

    def tree(self) -> list[str]:
        return ["  " * step.depth + step.name for step in self.steps]

    def __getitem__(self, name: str) -> dict[str, Any]:
        (found,) = [step.attributes for step in self.steps if step.name == name]
        return found


def followed(**more: Any) -> tuple[Request, Notes]:
    request, notes = make_request(**more), Notes()
    request.trace = notes
    return request, notes


def test_the_steps_of_a_decision_are_the_reference_s() -> None:
    wiring = wired(in_profile(KEEP_TWO, HALF, weights={"half": 2}), KEEP_TWO, HALF)
    request, notes = followed(model="m", priority=-1)
    decide(wiring, POOL, request)
    assert notes.tree() == [
        "gateway.request_orchestration",
        "  run_scheduler_profile",
        "    filter_endpoints",
        "    llm_d.epp.scoring",
        "      llm_d.epp.scorer.half",
        "    pick_endpoints",
    ]


def test_steps_tell_what_they_came_to() -> None:
    wiring = wired(in_profile(KEEP_TWO, HALF, weights={"half": 2}), KEEP_TWO, HALF)
    request, notes = followed(model="m", priority=3)
    decide(wiring, POOL, request)
    assert notes["gateway.request_orchestration"] == {"target_model": "m", "request_prio": 3}
    assert notes["run_scheduler_profile"] == {"llm_d.epp.scheduling.profile.name": "only"}
    assert notes["filter_endpoints"] == {
        "llm_d.epp.filter.candidate_endpoints": 3,
        "llm_d.epp.filter.filtered_endpoints": 2,
    }
    assert notes["llm_d.epp.scoring"] == {
        "llm_d.epp.scoring.scorers": 1,
        "llm_d.epp.scoring.candidate_endpoints": 2,
    }
    assert notes["llm_d.epp.scorer.half"] == {
        "llm_d.epp.scorer.type": "half",
        "llm_d.epp.scorer.name": "half",
        "llm_d.epp.scorer.weight": 2,
        "llm_d.epp.scorer.candidate_endpoints": 2,
        "llm_d.epp.scorer.endpoints_scored": 2,
        "llm_d.epp.scorer.score.max": 1.0,
        "llm_d.epp.scorer.score.avg": 0.75,
    }
    assert notes["pick_endpoints"] == {
        "llm_d.epp.picker.candidate_endpoints": 2,
        "llm_d.epp.picker.top_endpoints": ["default/b=2.0000", "default/a=1.0000"],
    }


def test_only_the_best_five_endpoints_are_named() -> None:
    given = [number / 10 for number in range(10)]
    many = zoo.giving("many", *given)
    wiring = wired(in_profile(many), many)
    request, notes = followed()
    decide(wiring, pool(endpoints(*"abcdefghij")), request)
    assert notes["pick_endpoints"]["llm_d.epp.picker.top_endpoints"] == [
        f"default/{name}={score:.4f}"
        for name, score in zip("jihgf", (0.9, 0.8, 0.7, 0.6, 0.5), strict=True)
    ]


def test_a_scorer_that_gives_nothing_says_so() -> None:
    wiring = wired(in_profile(BROKEN), BROKEN)
    request, notes = followed()
    decide(wiring, POOL, request)
    scored = notes["llm_d.epp.scorer.broken"]
    assert scored["llm_d.epp.scorer.endpoints_scored"] == 0
    assert "llm_d.epp.scorer.score.max" not in scored


def test_whoever_is_followed_is_sent_where_everybody_is() -> None:
    wiring = wired(in_profile(KEEP_TWO, HALF, BROKEN), KEEP_TWO, HALF, BROKEN)
    request, _ = followed()
    with_trace, without = decide(wiring, POOL, request), decide(wiring, POOL)
    assert with_trace.decision.result == without.decision.result
    assert with_trace.decision.destination == without.decision.destination
    assert without.decision.upstream_headers == {}


def test_the_model_server_is_told_to_go_on_with_the_trace() -> None:
    """One header, whoever else would set it."""
    other = zoo.before_request("other", zoo.always({"x": "y", "traceparent": "theirs"}))
    request, _ = followed()
    outcome = decide(listed(other), POOL, request)
    assert outcome.decision.upstream_headers == {"x": "y", "traceparent": "ours"}


def test_a_refusal_is_a_failure_of_every_step_that_it_leaves() -> None:
    wiring = wired(in_profile(KEEP_NONE), KEEP_NONE)
    request, notes = followed()
    refusal = zoo.refusal(lambda: decide(wiring, POOL, request))
    assert isinstance(refusal, Refusal)
    assert [step.name for step in notes.steps if step.failure == str(refusal)] == [
        "gateway.request_orchestration",
        "run_scheduler_profile",
        "filter_endpoints",
    ]


async def test_producers_that_wait_are_steps_too(autojump_clock: MockClock) -> None:
    async def produce(data: DataView) -> None:
        await anyio.sleep(0.1)
        data[NOTE] = "there"

    wiring = listed(zoo.waiting("slow", produce, keys(NOTE)), *reader_of_notes())
    request, notes = followed()
    await wiring.director.decide(request, Parsed(), POOL)
    assert notes.tree()[:3] == [
        "gateway.request_orchestration",
        "  llm_d.epp.producer.slow",
        "  run_scheduler_profile",
    ]
    assert notes["llm_d.epp.producer.slow"] == {"llm_d.epp.producer.candidate_endpoints": 3}


def reader_of_notes() -> list[type[Any]]:
    """Without a reader, a producer is not asked."""
    return [zoo.reading([], Consumes(NOTE), lambda data: data[NOTE])]
