"""The roles a plugin can have, and how they are found from its class.

A role is a method with a fixed name and fixed parameters. A class has every role whose method
it defines; a method with a role's name and other parameters is refused when the class is
registered. Nothing has to be inherited. An instance whose parameters leave it nothing to do
in a role says so in ``idle_roles``, and what the role costs is not paid.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from attrs import frozen
from prometheus_client.metrics_core import Metric

from .errors import RoleError
from .keys import DataView, Key, Keys
from .model import Endpoint, Parsed, ProfileResult, RequestEnd, SchedulingResult

Mask = Sequence[bool]
"""One entry per endpoint handed in: whether it stays."""
Results = Mapping[str, ProfileResult | None]


class Parser(Protocol):
    """Reads request bodies of some paths."""

    paths: Sequence[str]
    """Path endings that it claims, such as ``chat/completions``; empty claims what is left."""

    def reader(self, path: str, wanted: Keys) -> Callable[[bytes], Parsed] | None:
        """A function from the body to what is *wanted* of it; made once per plan.

        None when bodies of *path* are of no interest: the request is decided without.
        The function raises `Refusal` (400) for a body that the path's API would not accept.
        It depends on nothing but the body: large ones are read in another process, by a reader
        made there from a pickled copy of the parser if there can be one. Large is a mebibyte, or
        from how many bytes on the parser's ``bytes_at_once`` says that it is.
        """
        ...


class RequestHook(Protocol):
    """Sets request data from headers and body, before anything else looks at it."""

    def on_request(self, data: DataView) -> None: ...


class Screener(Protocol):
    """Rules endpoints out before scheduling. All see the same set; what all keep stays."""

    def screen(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask: ...


class Producer(Protocol):
    """Writes the keys that it declares.

    It may be async, or say with ``waits = True`` that what it returns has to be awaited unless
    it is None; then ``timeout`` seconds is its budget.
    """

    def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> Awaitable[None] | None: ...


class Admitter(Protocol):
    """May refuse the request by raising `Refusal`."""

    def admit(self, data: DataView, endpoints: Sequence[Endpoint]) -> None: ...


class ProfileHandler(Protocol):
    """Chooses which profiles run, round after round, and which result is the primary one."""

    def profiles(self, data: DataView, available: Sequence[str], results: Results) -> Sequence[str]:
        """The profiles to run next; none ends the cycle."""
        ...

    def primary(self, data: DataView, results: Results) -> str:
        """The profile whose result counts. Raises `Refusal` when none can."""
        ...


class Destination(ProfileHandler, Protocol):
    """A profile handler that sends to another address than the chosen endpoint's."""

    def destination(self, data: DataView, endpoint: Endpoint) -> str:
        """``ip:port``, IPv6 in brackets."""
        ...


class Decider(Protocol):
    """Says whether a stage of a request is worth an endpoint of its own.

    A profile handler names those it asks in ``deciders`` and asks by ``data.ask(name, endpoint)``.
    """

    def disaggregate(self, data: DataView, endpoint: Endpoint | None) -> bool:
        """*endpoint*: the one chosen for the stage before, if there was one."""
        ...


class Detector(Protocol):
    """Says how full endpoints are: 1 and above is full, and refuses negative priorities."""

    def saturation(self, data: DataView, endpoints: Sequence[Endpoint]) -> float: ...


class Filter(Protocol):
    """Says which endpoints of a profile stay."""

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask: ...


class Scorer(Protocol):
    """Rates endpoints from 0 (worst) to 1; None gives an endpoint nothing."""

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float | None]: ...


class Picker(Protocol):
    """Chooses one endpoint or several, best first, by their weighted sums."""

    def pick(
        self, data: DataView, endpoints: Sequence[Endpoint], scores: Sequence[float]
    ) -> Sequence[Endpoint]: ...


class PreRequest(Protocol):
    """Runs after the decision; may add headers for the model server, or refuse after all.

    Raising `Refusal` ends the request: whatever was noted of it is dropped with its state.
    """

    def before_request(
        self, data: DataView, result: SchedulingResult
    ) -> Mapping[str, str] | None: ...


class ResponseHeadersHook(Protocol):
    """Sees the response headers; may add headers for the client."""

    def on_response_headers(
        self, data: DataView, result: SchedulingResult
    ) -> Mapping[str, str] | None: ...


class ResponseChunkHook(Protocol):
    """Sees each chunk of the response body, in order."""

    def on_response_chunk(self, data: DataView, chunk: bytes) -> None: ...


class ResponseEndHook(Protocol):
    """Hears of the end of a request that was scheduled, exactly once."""

    def on_response_end(self, data: DataView, end: RequestEnd) -> None: ...


class Extractor(Protocol):
    """Finds values in what a source fetched from an endpoint."""

    def extractor(
        self, labels: Mapping[str, str], wanted: Keys
    ) -> Callable[[bytes], Mapping[Key, Any]]:
        """A function from the fetched text to what is *wanted*, for an endpoint with *labels*.

        What the text does not hold is None in the result.
        """
        ...


class Service(Protocol):
    """Has work of its own beside the requests; it is started again when it fails."""

    async def run(self) -> None: ...


class Reporter(Protocol):
    """Tells of itself. A plugin may have any of these methods."""

    def figures(self) -> Iterable[Metric]:
        """What /metrics shows of it."""
        ...

    def dump_state(self) -> object:
        """What /debug/plugins/state shows of it: bounded, and JSON."""
        ...

    def dead_signals(self) -> Mapping[str, str]:
        """What it should see and cannot, each with the reason; empty when all is well."""
        ...


class Phase(enum.IntEnum):
    """The order in which a request meets its plugins."""

    OUTSIDE = 0
    """Before any request: snapshots and headers."""
    PARSE = 1
    REQUEST = 2
    SCREEN = 3
    PRODUCE = 4
    ADMIT = 5
    SCHEDULE = 6
    PRE_REQUEST = 7
    RESPONSE_HEADERS = 8
    RESPONSE_CHUNK = 9
    RESPONSE_END = 10


class Role(enum.StrEnum):
    """A role, by the name that figures and logs use for it."""

    PARSER = "RequestParsing"
    REQUEST_HOOK = "RequestHeader"
    SCREENER = "Screener"
    PRODUCER = "DataProducer"
    ADMITTER = "Admission"
    PROFILE_HANDLER = "ProfilePicker"
    FILTER = "Filter"
    SCORER = "Scorer"
    PICKER = "Picker"
    PRE_REQUEST = "PreRequest"
    RESPONSE_HEADERS = "ResponseReceived"
    RESPONSE_CHUNK = "ResponseStreaming"
    RESPONSE_END = "ResponseComplete"
    EXTRACTOR = "Extractor"
    SOURCE = "Source"
    DISCOVERY = "Discovery"
    LISTENER = "Event"
    DECIDER = "Decider"
    DETECTOR = "SaturationDetector"
    SERVICE = "Service"
    REPORTER = "Reporter"


@frozen
class _Method:
    """What makes a role: its methods with their parameters, and when it is played."""

    name: str
    parameters: tuple[str, ...]
    role: Role
    phase: Phase
    may_wait: bool = False
    """Or has to, where nothing else would make sense."""


_METHODS: Final = (
    _Method("reader", ("path", "wanted"), Role.PARSER, Phase.PARSE),
    _Method("on_request", ("data",), Role.REQUEST_HOOK, Phase.REQUEST),
    _Method("screen", ("data", "endpoints"), Role.SCREENER, Phase.SCREEN),
    _Method("produce", ("data", "endpoints"), Role.PRODUCER, Phase.PRODUCE, may_wait=True),
    _Method("admit", ("data", "endpoints"), Role.ADMITTER, Phase.ADMIT),
    _Method("profiles", ("data", "available", "results"), Role.PROFILE_HANDLER, Phase.SCHEDULE),
    _Method("primary", ("data", "results"), Role.PROFILE_HANDLER, Phase.SCHEDULE),
    _Method("destination", ("data", "endpoint"), Role.PROFILE_HANDLER, Phase.SCHEDULE),
    _Method("disaggregate", ("data", "endpoint"), Role.DECIDER, Phase.SCHEDULE),
    _Method("saturation", ("data", "endpoints"), Role.DETECTOR, Phase.ADMIT),
    _Method("keep", ("data", "endpoints"), Role.FILTER, Phase.SCHEDULE),
    _Method("score", ("data", "endpoints"), Role.SCORER, Phase.SCHEDULE),
    _Method("pick", ("data", "endpoints", "scores"), Role.PICKER, Phase.SCHEDULE),
    _Method("before_request", ("data", "result"), Role.PRE_REQUEST, Phase.PRE_REQUEST),
    _Method(
        "on_response_headers", ("data", "result"), Role.RESPONSE_HEADERS, Phase.RESPONSE_HEADERS
    ),
    _Method("on_response_chunk", ("data", "chunk"), Role.RESPONSE_CHUNK, Phase.RESPONSE_CHUNK),
    _Method("on_response_end", ("data", "end"), Role.RESPONSE_END, Phase.RESPONSE_END),
    _Method("extractor", ("labels", "wanted"), Role.EXTRACTOR, Phase.OUTSIDE),
    _Method("source", (), Role.SOURCE, Phase.OUTSIDE),
    _Method("discovery", (), Role.DISCOVERY, Phase.OUTSIDE),
    _Method("run", (), Role.SERVICE, Phase.OUTSIDE, may_wait=True),
    _Method("figures", (), Role.REPORTER, Phase.OUTSIDE),
    _Method("dump_state", (), Role.REPORTER, Phase.OUTSIDE),
    _Method("dead_signals", (), Role.REPORTER, Phase.OUTSIDE),
)
_HANDLER: Final = frozenset({"profiles", "primary"})
PHASES: Final[Mapping[Role, Phase]] = {method.role: method.phase for method in _METHODS}
IN_PROFILES: Final = frozenset({Role.FILTER, Role.SCORER, Role.PICKER})


def roles_of(plugin_class: type[object], name: str) -> frozenset[Role]:
    """The roles of a class.

    Raises:
        RoleError: a method is named after a role but does not fit it.
    """
    found = {method.name for method in _METHODS if hasattr(plugin_class, method.name)}
    for method in _METHODS:
        if method.name in found:
            _check(plugin_class, method, name)
    if (found & {*_HANDLER, "destination"}) and not found >= _HANDLER:
        raise RoleError(name, "a profile handler needs both `profiles` and `primary`")
    return frozenset(method.role for method in _METHODS if method.name in found)


def _check(plugin_class: type[object], method: _Method, name: str) -> None:
    function = inspect.getattr_static(plugin_class, method.name)
    wanted = f"`{method.name}({', '.join(('self', *method.parameters))})`"
    if not inspect.isfunction(function):
        raise RoleError(name, f"{wanted} must be a method")
    try:
        inspect.signature(function).bind(None, *method.parameters)
    except TypeError as exc:
        actual = f"`{method.name}{inspect.signature(function)}`"
        raise RoleError(name, f"{actual} does not fit {wanted}: {exc}") from None
    if method.role is Role.SERVICE and not inspect.iscoroutinefunction(function):
        raise RoleError(name, f"{wanted} must be async: it runs beside the requests")
    if inspect.iscoroutinefunction(function) and not method.may_wait:
        raise RoleError(name, f"{wanted} must not be async: nothing waits on the path of a pick")
