"""Two ways to know which endpoint a session belongs to: the client says so, or a table does."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, final

import anyio
from attrs import define, field, frozen

from pointsman.kernel.keys import Consumes, DataKey, DataView
from pointsman.kernel.model import REQUEST_HEADERS, Endpoint, Identity, SchedulingResult
from pointsman.kernel.plugin import Role
from pointsman.kernel.state import StateKey

from .keys import SESSION_ID
from .session_table import SessionTable

MOST_SHOWN: Final = 100
_REFERENCE_NAMES: Final[Mapping[str, DataKey[str]]] = {"SessionIDDataKey": SESSION_ID}


class Affinity(Protocol):
    """How it is known which endpoint a request's session belongs to."""

    @property
    def consumes(self) -> Consumes: ...
    @property
    def producer_names(self) -> Mapping[str, str]: ...
    @property
    def idle_roles(self) -> frozenset[Role]: ...

    def find(self, data: DataView, endpoints: Sequence[Endpoint]) -> int | None:
        """The index of the session's endpoint; None without session, or when it is not there."""
        ...

    def note(self, data: DataView, result: SchedulingResult) -> None: ...
    def response_headers(self, result: SchedulingResult) -> Mapping[str, str] | None: ...
    def forget(self, identity: Identity) -> None: ...
    def dump_state(self) -> object: ...


def header_name(text: str) -> str:
    """A header's name as a configuration spells it, made the one under which it is found."""
    return text.strip().lower()


def trimmed(text: str) -> str:
    return text.strip()


def _target(result: SchedulingResult, profile: str) -> Endpoint | None:
    """The endpoint that a profile chose; None when it did not run or found nobody."""
    run = result.profiles.get(profile or result.primary)
    return run.targets[0] if run is not None and run.targets else None


@final
@define(eq=False)
class Carried:
    """The client carries the name of its endpoint, and nothing is kept here."""

    header: str
    profile: str
    """Whose endpoint is meant; empty: the primary one's."""

    @property
    def consumes(self) -> Consumes:
        return Consumes(REQUEST_HEADERS)

    @property
    def producer_names(self) -> Mapping[str, str]:
        return {}

    @property
    def idle_roles(self) -> frozenset[Role]:
        return frozenset({Role.PRE_REQUEST})

    def find(self, data: DataView, endpoints: Sequence[Endpoint]) -> int | None:
        name = decoded(data[REQUEST_HEADERS].get(self.header) or "")
        if not name:
            return None
        return next((i for i, endpoint in enumerate(endpoints) if endpoint.id == name), None)

    def note(self, data: DataView, result: SchedulingResult) -> None:
        pass

    def response_headers(self, result: SchedulingResult) -> Mapping[str, str] | None:
        target = _target(result, self.profile)
        return None if target is None else {self.header: encoded(target.id)}

    def forget(self, identity: Identity) -> None:
        pass

    def dump_state(self) -> object:
        return {}


def encoded(name: str) -> str:
    """``namespace/name`` of an endpoint as clients carry it: standard base64 with padding."""
    return b64encode(name.encode()).decode("ascii")


def decoded(token: str) -> str:
    """What `encoded` was given; empty for anything that it does not make."""
    try:
        return b64decode(token, validate=True).decode()
    except ValueError:
        return ""


@final
@frozen(kw_only=True)
class SessionSource:
    """Where the name of a session may stand: a header, or data that another plugin publishes."""

    header: str = field(default="", converter=header_name)
    attribute: str = field(default="", converter=trimmed)
    """A key of one text per request, such as ``session-id`` (``SessionIDDataKey``)."""
    producer: str = ""
    """The plugin whose *attribute* is meant, where several publish it."""
    key: DataKey[str] = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if bool(self.header) == bool(self.attribute):
            raise ValueError("exactly one of header and attribute is needed")
        if self.header and self.producer:
            raise ValueError("producer goes with attribute only")
        name = self.attribute
        object.__setattr__(self, "key", _REFERENCE_NAMES.get(name) or DataKey(name, str))

    def read(self, data: DataView) -> str:
        """The name of the session; empty when it is missing or blank."""
        if self.attribute:
            return (data.get(self.key) or "").strip()
        return (data[REQUEST_HEADERS].get(self.header) or "").strip()


MISSED: Final = StateKey("missed", Identity)
"""Where the session belongs, when a profile run did not have that endpoint."""
MET: Final = StateKey("met", Identity)
"""Where the session belongs, when a profile run had that endpoint."""


@final
@define(eq=False)
class Bound:
    """A table binds each session to the endpoint that its first request went to.

    It is bound anew only when that endpoint was no candidate any more: that others were
    preferred this once does not make it move.
    """

    sources: Sequence[SessionSource]
    profile: str
    table: SessionTable

    @property
    def idle_roles(self) -> frozenset[Role]:
        return frozenset({Role.RESPONSE_HEADERS})

    @property
    def consumes(self) -> Consumes:
        attributes = [source.key for source in self.sources if source.attribute]
        reads_headers = len(attributes) < len(self.sources)
        return Consumes(REQUEST_HEADERS, *attributes) if reads_headers else Consumes(*attributes)

    @property
    def producer_names(self) -> Mapping[str, str]:
        return {source.key.name: source.producer for source in self.sources if source.producer}

    def find(self, data: DataView, endpoints: Sequence[Endpoint]) -> int | None:
        home = self._home(self._session(data))
        if home is None:
            return None
        for index, endpoint in enumerate(endpoints):
            if endpoint.identity is home:
                data.state.write(MET, home)
                return index
        data.state.write(MISSED, home)
        return None

    def note(self, data: DataView, result: SchedulingResult) -> None:
        session, target = self._session(data), _target(result, self.profile)
        if not session or target is None:
            return
        home, chosen = self._home(session), target.identity
        if chosen.gone:  # since the request was looked at; nobody would forget it again
            return
        if home is None or home is chosen or self._is_gone(data, home):
            self.table.bind(session, chosen, anyio.current_time())

    def _session(self, data: DataView) -> str:
        return next((name for source in self.sources if (name := source.read(data))), "")

    def _home(self, session: str) -> Identity | None:
        return self.table.home(session, anyio.current_time()) if session else None

    def _is_gone(self, data: DataView, home: Identity) -> bool:
        """Whether *home* was missing wherever this request looked for it."""
        return data.state.read(MISSED) is home and data.state.read(MET) is not home

    def response_headers(self, result: SchedulingResult) -> Mapping[str, str] | None:
        return None

    def forget(self, identity: Identity) -> None:
        self.table.forget(identity)

    def dump_state(self) -> object:
        sizes = sorted(((n, one.uid) for one, n in self.table.sizes()), reverse=True)
        shown = {uid: n for n, uid in sizes[:MOST_SHOWN]}
        return {"sessions": len(self.table), "endpoints": shown}
