"""Plugin classes for tests that need many of them: most are made of a single function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Final

from attrs import define, field, frozen

from pointsman.kernel.config import read_config
from pointsman.kernel.errors import ConfigError, Refusal
from pointsman.kernel.keys import Consumes, DataKey, DataView, Keys, keys
from pointsman.kernel.model import (
    MODEL_NAME,
    REQUEST_BODY,
    EndCause,
    Endpoint,
    RequestEnd,
    SchedulingResult,
)
from pointsman.kernel.plugin import Results
from pointsman.kernel.structure import above
from pointsman.kernel.testing import surroundings, wired
from pointsman.kernel.wiring import Wiring, wire

Asked = Callable[[DataView, Sequence[Endpoint]], Any]
Pick = Callable[[Sequence[Endpoint], Sequence[float]], Any]
Profiles = Callable[[Sequence[str], Results], Any]
Primary = Callable[[Results], Any]
NOTHING: Final = Consumes()
NO_KEYS: Final[Keys] = frozenset()

TEXT: Final = DataKey("text", str)
NOTE: Final = DataKey("note", str)
BODY: Final = Consumes(MODEL_NAME, REQUEST_BODY)
END: Final = RequestEnd(EndCause.NATURAL, 200)
ONE_PROFILE: Final = "schedulingProfiles: [{{name: only, plugins: [{}]}}]\n"


def plugin(
    name: str, consumes: Consumes = NOTHING, produces: Keys = NO_KEYS, **members: Any
) -> type[Any]:
    """A plugin class with *members*."""
    declared = {"type_name": name, "consumes": consumes, "produces": produces}
    return type(name, (), {**declared, **members})


def asked(call: Asked) -> Callable[[object, DataView, Sequence[Endpoint]], Any]:
    def method(self: object, data: DataView, endpoints: Sequence[Endpoint]) -> Any:
        return call(data, endpoints)

    return method


def scorer(name: str, score: Asked, consumes: Consumes = NOTHING, **members: Any) -> type[Any]:
    return plugin(name, consumes, score=asked(score), **members)


def giving(name: str, *scores: Any) -> type[Any]:
    """A scorer that always gives these."""
    return scorer(name, lambda data, endpoints: scores)


def keeper(name: str, keep: Asked, consumes: Consumes = NOTHING, **members: Any) -> type[Any]:
    """A filter."""
    return plugin(name, consumes, keep=asked(keep), **members)


def picker(name: str, pick: Pick) -> type[Any]:
    def method(
        self: object, data: DataView, endpoints: Sequence[Endpoint], scores: Sequence[float]
    ) -> Any:
        return pick(endpoints, scores)

    return plugin(name, pick=method)


def screener(name: str, screen: Asked, consumes: Consumes = NOTHING) -> type[Any]:
    return plugin(name, consumes, screen=asked(screen))


def admitter(name: str, admit: Asked, consumes: Consumes = NOTHING) -> type[Any]:
    return plugin(name, consumes, admit=asked(admit))


def producer(
    name: str, produce: Asked, produces: Keys, consumes: Consumes = NOTHING, **members: Any
) -> type[Any]:
    return plugin(name, consumes, produces, produce=asked(produce), **members)


def waiting(
    name: str,
    produce: Callable[[DataView], Awaitable[None]],
    produces: Keys,
    consumes: Consumes = NOTHING,
    **members: Any,
) -> type[Any]:
    """A producer that may wait."""

    async def method(self: object, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        await produce(data)

    return plugin(name, consumes, produces, produce=method, **members)


def hook(
    name: str,
    on_request: Callable[[DataView], None],
    consumes: Consumes = NOTHING,
    produces: Keys = NO_KEYS,
) -> type[Any]:
    def method(self: object, data: DataView) -> None:
        on_request(data)

    return plugin(name, consumes, produces, on_request=method)


def before_request(
    name: str, call: Callable[[DataView, SchedulingResult], Any], consumes: Consumes = NOTHING
) -> type[Any]:
    def method(self: object, data: DataView, result: SchedulingResult) -> Any:
        return call(data, result)

    return plugin(name, consumes, before_request=method)


def on_response_headers(
    name: str, call: Callable[[DataView, SchedulingResult], Any], consumes: Consumes = NOTHING
) -> type[Any]:
    def method(self: object, data: DataView, result: SchedulingResult) -> Any:
        return call(data, result)

    return plugin(name, consumes, on_response_headers=method)


def on_response_chunk(
    name: str, call: Callable[[DataView, bytes], None], consumes: Consumes = NOTHING
) -> type[Any]:
    def method(self: object, data: DataView, chunk: bytes) -> None:
        call(data, chunk)

    return plugin(name, consumes, on_response_chunk=method)


def on_response_end(
    name: str, call: Callable[[DataView, RequestEnd], None], consumes: Consumes = NOTHING
) -> type[Any]:
    def method(self: object, data: DataView, end: RequestEnd) -> None:
        call(data, end)

    return plugin(name, consumes, on_response_end=method)


def handler(
    name: str,
    profiles: Profiles,
    primary: Primary,
) -> type[Any]:
    """A profile handler."""

    def choose(self: object, data: DataView, available: Sequence[str], results: Results) -> Any:
        return profiles(available, results)

    def name_primary(self: object, data: DataView, results: Results) -> Any:
        return primary(results)

    return plugin(name, profiles=choose, primary=name_primary)


def failing(*_: object) -> Any:
    """What a broken plugin does, in any role."""
    raise ZeroDivisionError("secret prompt")


def refusing(*_: object) -> Any:
    """What turns a request down, in any role."""
    raise Refusal(418, "no coffee")


def always(value: Any) -> Callable[..., Any]:
    """What gives *value* in any role."""

    def give(*_: object) -> Any:
        return value

    return give


def listing(*classes: type[Any]) -> str:
    """A configuration that names every class once."""
    names = [f"{{type: {one.type_name}}}" for one in classes]
    return f"plugins: [{', '.join(names)}]\n"


def in_profile(
    *classes: type[Any],
    others: Sequence[type[Any]] = (),
    weights: Mapping[str, float] | None = None,
) -> str:
    """A configuration whose only profile has *classes*, in order; *others* stand beside it."""
    weights = weights or {}
    parts = [
        f"{{pluginRef: {one.type_name}, weight: {weights.get(one.type_name, 1):f}}}"
        for one in classes
    ]
    return listing(*classes, *others) + ONE_PROFILE.format(", ".join(parts))


def refused(text: str, *classes: type[Any]) -> list[str]:
    """The mistakes of a configuration that cannot be wired."""
    try:
        wire(read_config(text, "test"), surroundings(*classes))
    except ConfigError as exc:
        return [str(mistake) for mistake in exc.mistakes]
    raise AssertionError("the configuration was accepted")


def writer(name: str, key: DataKey[str], consumes: Consumes = NOTHING) -> type[Any]:
    def produce(data: DataView, given: Sequence[Endpoint]) -> None:
        data[key] = name

    return producer(name, produce, keys(key), consumes, default_for=keys(key))


def reader(name: str = "reader", **members: Any) -> tuple[type[Any], list[str | None]]:
    """An admitter that notes the text it reads, and the notes."""
    seen: list[str | None] = []
    note = admitter(name, lambda data, given: seen.append(data.get(TEXT)), Consumes(TEXT))
    for member, value in members.items():
        setattr(note, member, value)
    return note, seen


def reading(sink: list[Any], consumes: Consumes, read: Callable[[DataView], Any]) -> type[Any]:
    """An admitter, for it comes last, that puts into *sink* what it reads."""
    return admitter("reading", lambda data, given: sink.append(read(data)), consumes)


def refusal(call: Callable[[], object]) -> Refusal:
    """How *call* is refused."""
    try:
        call()
    except Refusal as exc:
        return exc
    raise AssertionError("the request was not refused")


def listed(*classes: type[Any]) -> Wiring:
    return wired(listing(*classes), *classes)


@frozen(kw_only=True)
class Parameters:
    threshold: float = field(default=0.5, validator=above(0))
    header: str = ""

    def __attrs_post_init__(self) -> None:
        if self.header and self.threshold == 1:
            raise ValueError("header and a threshold of 1 do not go together")


@define(eq=False)
class Tuned:
    """A scorer with parameters, chance and an older name."""

    type_name: ClassVar = "tuned"
    aliases: ClassVar = {"was-tuned": "write tuned"}
    parameters: Parameters
    random: Random

    def __attrs_post_init__(self) -> None:
        if self.parameters.header == "impossible":
            raise ValueError("impossible is impossible")

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        return [self.parameters.threshold] * len(endpoints)
