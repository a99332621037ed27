"""In-flight load: counted at the pick, uncounted once, whatever the ending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from pointsman.kernel.errors import ConfigError, Refusal
from pointsman.kernel.keys import Consumes, DataView, keys
from pointsman.kernel.model import Endpoint, Request, SchedulingResult
from pointsman.kernel.names import MOST_NAMES, OTHER
from pointsman.kernel.plugin import Results
from pointsman.kernel.testing import Bench, decide, endpoint, endpoints, make_request, pool, wired
from pointsman.kernel.wiring import Wiring
from pointsman.plugins.in_flight import InFlightLoadParameters, InFlightLoadProducer
from pointsman.plugins.keys import (
    IN_FLIGHT_LOAD,
    MAX_OUTPUT_TOKENS,
    PREFIX_HIT,
    TOKENIZED_PROMPT,
    UNCACHED_TOKENS,
    InFlightLoad,
    PrefixHit,
    TokenizedPrompt,
    Tokens,
)

AB: Final = endpoints("a", "b")
A, B = AB


def tokens(count: int) -> TokenizedPrompt:
    return TokenizedPrompt((Tokens(b"\0\0\0\0" * count),))


def producer(**parameters: Any) -> InFlightLoadProducer:
    return InFlightLoadProducer(InFlightLoadParameters(**parameters))


class Prompt:
    """Says how long the prompt is, and what endpoints hold of it, by header."""

    type_name: ClassVar = "prompt"
    produces: ClassVar = keys(TOKENIZED_PROMPT, PREFIX_HIT, MAX_OUTPUT_TOKENS)
    length: ClassVar[int | None] = 100
    hits: ClassVar[Sequence[PrefixHit | None] | None] = None
    limit: ClassVar[int | None] = None

    def produce(self, data: DataView, given: Sequence[Endpoint]) -> None:
        if self.length is not None:
            data[TOKENIZED_PROMPT] = tokens(self.length)
        if self.hits is not None:
            data[PREFIX_HIT] = self.hits
        if self.limit is not None:
            data[MAX_OUTPUT_TOKENS] = self.limit


class Least:
    """Prefers who has least in flight."""

    type_name: ClassVar = "least"
    consumes: ClassVar = Consumes(IN_FLIGHT_LOAD)

    def score(self, data: DataView, given: Sequence[Endpoint]) -> list[float]:
        loads = [load.requests if load is not None else 0 for load in data[IN_FLIGHT_LOAD]]
        return [1.0 - load / (max(loads) + 1) for load in loads]


LEAST: Final = "plugins: [{type: least}, {type: prompt}]"


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_prompt(**values: object) -> None:
        for name, value in values.items():
            monkeypatch.setattr(Prompt, name, value)

    return set_prompt


def at_work(text: str = LEAST) -> Wiring:
    return wired(text, InFlightLoadProducer, Prompt, Least)


def ledger(wiring: Wiring) -> dict[str, tuple[int, int]]:
    """Requests and tokens by endpoint."""
    plugin: InFlightLoadProducer = wiring.installed["inflight-load-producer"].plugin
    found: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for one, _, load in plugin.ledger.shares():
        found[one.name] += load.requests
        size[one.name] += load.tokens
    return {name: (count, size[name]) for name, count in found.items()}


def sent(wiring: Wiring, *, priority: int = 0, flow: str = "") -> Request:
    headers = {"x-llm-d-inference-fairness-id": flow} if flow else {}
    request = make_request(priority=priority, headers=headers)
    decide(wiring, pool(AB), request)
    return request


# -- what is counted --------------------------------------------------------------------------


def test_it_is_there_when_somebody_needs_it_and_not_otherwise() -> None:
    assert "default producer of in-flight-load" in at_work().added["inflight-load-producer"]
    assert "inflight-load-producer" not in at_work("plugins: [{type: prompt}]").installed


def test_s01_a_burst_between_two_scrapes_spreads() -> None:
    """800 requests over 8 endpoints about which nothing new is heard."""
    eight = endpoints(*"abcdefgh")
    wiring = at_work("plugins: [{type: least}]")
    held = [make_request() for _ in range(8 * 100)]
    picked = Counter(
        decide(wiring, pool(eight), request).decision.result.target.name for request in held
    )
    assert set(picked.values()) == {100}


def test_a_request_counts_from_the_pick_to_its_end() -> None:
    wiring = at_work()
    first, second = sent(wiring), sent(wiring)
    assert ledger(wiring) == {"a": (1, 100), "b": (1, 100)}
    first.end()
    assert ledger(wiring) == {"b": (1, 100)}
    second.end()
    second.end()
    assert ledger(wiring) == {}


@pytest.mark.parametrize(
    ("hits", "uncached"),
    [
        (None, [100, 100]),
        ([None, None], [100, 100]),
        ([PrefixHit(2, 7, 16), None], [68, 100]),
        ([PrefixHit(7, 7, 16), PrefixHit(0, 7, 16)], [0, 100]),
        ([PrefixHit(6, 7, 16), PrefixHit(1, 7, 16)], [4, 84]),
    ],
)
def test_what_an_endpoint_holds_of_the_prompt_costs_it_nothing(
    hits: Sequence[PrefixHit | None] | None, uncached: Sequence[int]
) -> None:
    data: dict[Any, Any] = {TOKENIZED_PROMPT: tokens(100)}
    if hits is not None:
        data[PREFIX_HIT] = hits
    assert Bench(producer(), AB).produce_now(data)[UNCACHED_TOKENS] == uncached


def test_without_tokens_a_request_counts_as_a_request_only(prompt: Callable[..., None]) -> None:
    prompt(length=None)
    wiring = at_work()
    request = sent(wiring)
    assert ledger(wiring) == {"a": (1, 0)}
    request.end()


@pytest.mark.parametrize(
    ("parameters", "limit", "expected"),
    [
        ("", 50, 100),
        ("addEstimatedOutputTokens: true", None, 250),
        ("addEstimatedOutputTokens: true", 50, 150),
        ("addEstimatedOutputTokens: true", 0, 100),
        ("addEstimatedOutputTokens: true, outputRatio: 0", 50, 100),
        ("addEstimatedOutputTokens: true, outputRatio: 0.1", 50, 110),
        ("addEstimatedOutputTokens: true, maxEstimatedOutputTokens: 30", 50, 130),
        ("addEstimatedOutputTokens: true, maxEstimatedOutputTokens: 0", 50, 100),
    ],
)
def test_output_counts_when_that_is_asked_for(
    parameters: str, limit: int | None, expected: int, prompt: Callable[..., None]
) -> None:
    prompt(limit=limit)
    entry = f"{{type: inflight-load-producer, parameters: {{{parameters}}}}}"
    wiring = at_work(f"plugins: [{{type: least}}, {{type: prompt}}, {entry}]")
    request = sent(wiring)
    assert ledger(wiring) == {"a": (1, expected)}
    request.end()
    assert ledger(wiring) == {}


def test_output_that_is_expected_without_a_prompt_is_none(prompt: Callable[..., None]) -> None:
    prompt(length=None)
    entry = "{type: inflight-load-producer, parameters: {addEstimatedOutputTokens: true}}"
    wiring = at_work(f"plugins: [{{type: least}}, {{type: prompt}}, {entry}]")
    request = sent(wiring)
    assert ledger(wiring) == {"a": (1, 0)}
    request.end()


class TwoStages:
    """Runs both profiles."""

    type_name: ClassVar = "two-stages"

    def profiles(self, data: DataView, available: Sequence[str], results: Results) -> Sequence[str]:
        return () if results else available

    def primary(self, data: DataView, results: Results) -> str:
        return "decode"


class OnlyB:
    """A filter."""

    type_name: ClassVar = "only-b"

    def keep(self, data: DataView, given: Sequence[Endpoint]) -> list[bool]:
        return [one.name == "b" for one in given]


STAGES: Final = """
plugins: [{type: least}, {type: prompt}, {type: only-b}, {type: two-stages}]
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: least}]}
- {name: prefill, plugins: [{pluginRef: only-b}, {pluginRef: least}]}
"""


def test_every_profiles_target_is_counted() -> None:
    wiring = wired(STAGES, InFlightLoadProducer, Prompt, Least, TwoStages, OnlyB)
    request = sent(wiring)
    assert ledger(wiring) == {"a": (1, 100), "b": (1, 100)}
    request.end()
    assert ledger(wiring) == {}


# -- how it ends --------------------------------------------------------------------------------


class Refusing:
    """Refuses after everybody has produced."""

    type_name: ClassVar = "refusing"

    def admit(self, data: DataView, given: Sequence[Endpoint]) -> None:
        raise Refusal(429, "no")


class RefusingLate:
    """Changes its mind after the decision."""

    type_name: ClassVar = "refusing-late"

    def before_request(self, data: DataView, result: SchedulingResult) -> None:
        raise Refusal(412, "no")


def test_a_request_that_is_refused_was_never_counted() -> None:
    text = "plugins: [{type: least}, {type: refusing}]"
    wiring = wired(text, InFlightLoadProducer, Least, Refusing)
    with pytest.raises(Refusal):
        sent(wiring)
    assert ledger(wiring) == {}


def test_a_request_that_is_refused_after_the_decision_counts_no_longer_than_it_lives() -> None:
    text = "plugins: [{type: least}, {type: inflight-load-producer}, {type: refusing-late}]"
    wiring = wired(text, InFlightLoadProducer, Least, RefusingLate)
    request = make_request()
    with pytest.raises(Refusal):
        decide(wiring, pool(AB), request)
    request.end()
    assert sum(requests for requests, _ in ledger(wiring).values()) == 0


EAGER: Final = LEAST.replace(
    "]",
    ", {type: inflight-load-producer, parameters: {releaseTokensAtFirstChunk: true}}]",
)


def test_the_prompt_may_count_until_the_first_output_only() -> None:
    wiring = at_work(EAGER)
    assert wiring.processing.response_chunks
    request = make_request()
    outcome = decide(wiring, pool(AB), request)
    for _ in range(2):
        wiring.director.response_chunk(outcome, b"x")
        assert ledger(wiring) == {"a": (1, 0)}
    request.end()
    assert ledger(wiring) == {}


def test_nobody_pays_for_chunks_who_did_not_ask_for_that() -> None:
    assert not at_work().processing.response


def test_a_chunk_after_the_end_changes_nothing() -> None:
    wiring = at_work(EAGER)
    request = make_request()
    outcome = decide(wiring, pool(AB), request)
    request.end()
    wiring.director.response_chunk(outcome, b"late")
    assert ledger(wiring) == {}


def test_g01_a_pod_that_comes_back_starts_at_nothing() -> None:
    """And what ends at the old one does not make the new one negative."""
    wiring = at_work("plugins: [{type: least}]")
    old, new = endpoint("a"), endpoint("a")
    first, second = make_request(), make_request()
    decide(wiring, pool([old]), first)
    decide(wiring, pool([new]), second)
    plugin: InFlightLoadProducer = wiring.installed["inflight-load-producer"].plugin
    assert plugin.ledger.column([old, new]) == [InFlightLoad(1), InFlightLoad(1)]
    first.end()
    assert plugin.ledger.column([old, new]) == [InFlightLoad(0), InFlightLoad(1)]
    second.end()
    assert len(plugin.ledger) == 0


class Conservation(RuleBasedStateMachine):
    """Requests begin, stream and end in any order, while pods come and go."""

    open_requests: Bundle[tuple[Request, Any, Endpoint]] = Bundle("open_requests")

    def __init__(self) -> None:
        super().__init__()
        self.wiring = at_work(EAGER)
        self.pods = [endpoint("a"), endpoint("b")]
        self.expected: Counter[int] = Counter()
        self.chosen: list[Endpoint] = []

    @rule(target=open_requests, priority=st.integers(-1, 1))
    def send(self, priority: int) -> tuple[Request, Any, Endpoint]:
        request = make_request(priority=priority)
        outcome = decide(self.wiring, pool(self.pods), request)
        target = outcome.decision.result.target
        self.expected[id(target.identity)] += 1
        self.chosen.append(target)
        return request, outcome, target

    @rule(one=open_requests)
    def stream(self, one: tuple[Request, Any, Endpoint]) -> None:
        self.wiring.director.response_chunk(one[1], b"x")

    @rule(one=consumes(open_requests), times=st.integers(1, 3))
    def end(self, one: tuple[Request, Any, Endpoint], times: int) -> None:
        for _ in range(times):
            one[0].end()
        self.expected[id(one[2].identity)] -= 1

    @rule(index=st.integers(0, 1))
    def replace_pod(self, index: int) -> None:
        self.pods[index] = endpoint(self.pods[index].name)

    @invariant()
    def counts_are_those_of_the_open_requests(self) -> None:
        plugin: InFlightLoadProducer = self.wiring.installed["inflight-load-producer"].plugin
        for one, load in zip(self.chosen, plugin.ledger.column(self.chosen), strict=True):
            assert load is not None
            assert load.requests == self.expected[id(one.identity)]
            assert 0 <= load.tokens <= 100 * load.requests
        assert len(plugin.ledger) == sum(count > 0 for count in self.expected.values())


TestConservation = Conservation.TestCase


# -- what is told -------------------------------------------------------------------------------


def test_it_tells_its_load_by_endpoint_and_priority() -> None:
    wiring = at_work()
    held = [sent(wiring), sent(wiring, priority=2), sent(wiring, priority=2)]
    plugin: InFlightLoadProducer = wiring.installed["inflight-load-producer"].plugin
    requests, tokens_ = plugin.figures()
    shown = {
        (sample.labels["endpoint_name"], sample.labels["priority"]): sample.value
        for sample in requests.samples
    }
    assert shown == {("a", "0"): 1, ("b", "2"): 1, ("a", "2"): 1}
    assert {sample.value for sample in tokens_.samples} == {100.0}
    dump: Any = plugin.dump_state()
    assert dump[0] == {
        "endpoint": "default/a",
        "flow": "default-flow",
        "priority": 0,
        "requests": 1,
        "tokens": 100,
    }
    assert len(dump) == 3
    for request in held:
        request.end()
    assert plugin.dump_state() == []


def by_flow(wiring: Wiring, name: str = "inflight-load-producer") -> dict[tuple[str, str], float]:
    """Requests by producer and flow, at all endpoints."""
    found: Counter[tuple[str, str]] = Counter()
    requests, _ = wiring.installed[name].plugin.figures()
    for sample in requests.samples:
        found[sample.labels["producer_name"], sample.labels["fairness_id"]] += sample.value
    return dict(found)


def test_it_tells_its_load_by_flow() -> None:
    wiring = at_work()
    held = [sent(wiring), sent(wiring, flow="x"), sent(wiring, flow="y"), sent(wiring, flow="x")]
    name = "inflight-load-producer"
    assert by_flow(wiring) == {(name, "default-flow"): 1, (name, "x"): 2, (name, "y"): 1}
    for request in held[:2]:
        request.end()
    assert by_flow(wiring) == {(name, "x"): 1, (name, "y"): 1}


def test_a_flood_of_flows_is_counted_as_other() -> None:
    wiring = at_work()
    held = [sent(wiring, flow=f"f{number}") for number in range(MOST_NAMES + 5)]
    shown = by_flow(wiring)
    assert len(shown) == MOST_NAMES + 1
    assert shown["inflight-load-producer", OTHER] == 5
    for request in held:
        request.end()
    assert by_flow(wiring) == {}


def test_a_producer_counts_under_its_own_name() -> None:
    wiring = at_work("plugins: [{type: least}, {type: inflight-load-producer, name: mine}]")
    held = sent(wiring)
    assert by_flow(wiring, "mine") == {("mine", "default-flow"): 1}
    held.end()


def test_a_producer_that_is_not_shown_the_headers_knows_no_flow() -> None:
    wiring = at_work(
        "plugins: [{type: least}, {type: inflight-load-producer, consumes: [request-priority]}]"
    )
    held = sent(wiring, flow="x")
    assert by_flow(wiring) == {("inflight-load-producer", ""): 1}
    held.end()


@pytest.mark.parametrize(
    "parameters",
    ["outputRatio: -1", "maxEstimatedOutputTokens: -1", "outputRation: 1"],
)
def test_wrong_parameters_are_refused(parameters: str) -> None:
    with pytest.raises(ConfigError, match=parameters.partition(":")[0]):
        at_work(f"plugins: [{{type: inflight-load-producer, parameters: {{{parameters}}}}}]")
