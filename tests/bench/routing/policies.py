"""What is compared: configurations of the daemon, each of which decides through its kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from random import Random
from typing import ClassVar, Final, final

from attrs import define, field, frozen

from pointsman import plugins
from pointsman.kernel.candidates import Surroundings
from pointsman.kernel.config import read_config
from pointsman.kernel.datastore import Datastore
from pointsman.kernel.director import Outcome
from pointsman.kernel.keys import DataView
from pointsman.kernel.model import EndCause, Endpoint, Headers, Parsed, Request, RequestEnd
from pointsman.kernel.registry import Registry
from pointsman.kernel.topic import Topics
from pointsman.kernel.wiring import Wiring, wire
from pointsman.plugins.keys import REQUEST_PROMPT, RequestPrompt

from .workloads import Prompt

MODEL: Final = "qwen3-32b"
PATH: Final = "/v1/completions"


@final
@frozen
class Policy:
    """A name for the tables, and the daemon's configuration in YAML."""

    name: str
    config: str


def profile(weights: Mapping[str, float], picker: str = "max-score-picker") -> str:
    """A configuration of one profile: scorers with their weights, and the picker."""
    plugins = [f"- type: {name}\n" for name in (*weights, picker)]
    scorers = [f"  - {{pluginRef: {name}, weight: {each}}}\n" for name, each in weights.items()]
    return (
        f"plugins:\n{''.join(plugins)}schedulingProfiles:\n- name: default\n  plugins:\n"
        f"{''.join(scorers)}  - pluginRef: {picker}\n"
    )


def default_policy() -> Policy:
    """What the daemon does when it is given no configuration."""
    text = files("pointsman").joinpath("conf", "default.yaml").read_text("utf-8")
    return Policy("default", text)


def with_active(weight: float) -> Policy:
    """The reference's default profile with the active-request scorer beside it."""
    weights = {**REFERENCE_WEIGHTS, ACTIVE: weight}
    return Policy(f"reference + active {weight:g}", profile(weights))


ACTIVE: Final = "active-request-scorer"
LOAD_WEIGHTS: Final = {"queue-scorer": 2.0, "kv-cache-utilization-scorer": 2.0}
REFERENCE_WEIGHTS: Final = {**LOAD_WEIGHTS, "prefix-cache-scorer": 3.0}
REFERENCE: Final = Policy("reference", profile(REFERENCE_WEIGHTS))
LOAD_ONLY: Final = Policy("load-only", profile({**LOAD_WEIGHTS, ACTIVE: 2.0}))
RANDOM: Final = Policy("random", profile({}, "random-picker"))
ROUND_ROBIN: Final = Policy("round-robin", profile({}, "round-robin-picker"))


def compared(weights: Iterable[float]) -> tuple[Policy, ...]:
    """All policies in the tables' order; *weights* are those of active requests to try."""
    tried = map(with_active, weights)
    return (default_policy(), REFERENCE, *tried, LOAD_ONLY, RANDOM, ROUND_ROBIN)


@final
@define(eq=False)
class RoundRobinPicker:
    """Takes the endpoints in turn, whatever their scores."""

    type_name: ClassVar = "round-robin-picker"
    _turn: int = field(default=0, init=False)

    def pick(
        self, data: DataView, endpoints: Sequence[Endpoint], scores: Sequence[float]
    ) -> Sequence[Endpoint]:
        self._turn += 1
        return (endpoints[self._turn % len(endpoints)],)


def make_registry() -> Registry:
    """The daemon's own plugin types, and the bench's picker."""
    registry = Registry()
    for plugin_class in (*plugins.BUILT_IN, RoundRobinPicker):
        registry.register(plugin_class)
    return registry


@final
@frozen
class PluginsFailed(Exception):
    """Plugins raised, so that others decided without them: the figures would not be theirs."""

    names: Sequence[str]

    def __str__(self) -> str:
        return f"plugins failed: {', '.join(self.names)}"


@final
@define(eq=False)
class Router:
    """The daemon's kernel at work with one policy on one pool."""

    wiring: Wiring
    store: Datastore

    @classmethod
    def of(cls, policy: Policy, store: Datastore, seed: int) -> Router:
        """Wire *policy*; *seed* is for its chance. Raises ConfigError."""
        around = Surroundings(registry=make_registry(), topics=Topics(), random=Random(seed))
        wiring = wire(read_config(policy.config, policy.name), around)
        store.track(wiring.processing.endpoint_values)
        return cls(wiring, store)

    def decide(self, prompt: Prompt) -> Routed:
        """Where a request with *prompt* goes.

        Raises:
            Refusal: it goes nowhere.
        """
        request = Request(Headers({}), PATH)
        request.model = request.incoming_model = MODEL
        parsed = Parsed(MODEL, {REQUEST_PROMPT: RequestPrompt(token_ids=(prompt.tokens,))})
        outcome = self.wiring.director.decide_now(request, parsed, self.store.snapshot)
        return Routed(self.wiring, request, outcome)

    def check(self) -> None:
        """Raise PluginsFailed if any plugin has ever raised: the kernel goes on without it."""
        failed = [one.name for one in self.wiring.installed.values() if one.failures]
        if failed:
            raise PluginsFailed(failed)


@final
@frozen(eq=False)
class Routed:
    """A request that has been sent on its way."""

    wiring: Wiring
    request: Request
    outcome: Outcome

    @property
    def endpoint(self) -> Endpoint:
        return self.outcome.decision.result.target

    def end(self) -> None:
        """Let the daemon know that the response is complete."""
        self.wiring.director.response_end(self.outcome, RequestEnd(EndCause.NATURAL))
        self.request.end()
