"""Requests of a session stay with one endpoint: as a filter, or as a preference.

Either the client carries the name of the endpoint in a header, given to it with the response
headers, or it names its session and a table says where that belongs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, final

from attrs import define, field, frozen

from pointsman.kernel.keys import Consumes, DataView, on
from pointsman.kernel.model import POD_DELETED, Endpoint, PodDeleted, SchedulingResult
from pointsman.kernel.plugin import Mask, Role
from pointsman.kernel.registry import Stability
from pointsman.kernel.structure import at_least, not_blank, one_of

from .session_homes import Affinity, Bound, Carried, SessionSource, header_name
from .session_table import SessionTable

logger = logging.getLogger(__name__)

BY_HEADER: Final = "encoded_endpoint_header"
BY_SESSION: Final = "session_id"
DEFAULT_TTL: Final = 300.0  # seconds


@final
@frozen(kw_only=True)
class EncodedEndpointHeader:
    header: str = field(default="x-session-token", converter=header_name, validator=not_blank)
    """Of requests and responses; upper and lower case are the same."""


@final
@frozen(kw_only=True)
class SessionIdConfig:
    sources: tuple[SessionSource, ...] = ()
    """The first that names a session counts; none at all: the header ``x-session-id``."""
    eviction_ttl_seconds: float = field(default=DEFAULT_TTL, validator=at_least(0))
    """How long an unused session belongs to its endpoint; 0 means 300."""
    eviction_sweep_seconds: float = field(default=10.0, validator=at_least(0))
    """Without effect: expired sessions are not found, and dropped as others are bound."""
    max_sessions: int = field(default=100_000, validator=at_least(1))
    """Not in the reference: more than these, and the one unused for longest is dropped."""


@final
@frozen(kw_only=True)
class SessionAffinityParameters:
    strategy: str = field(default=BY_HEADER, validator=one_of(BY_HEADER, BY_SESSION))
    """Whether the client is given its endpoint to carry, or names its session itself."""
    profile_name: str = ""
    """The profile whose endpoint a session belongs to; empty: the primary one."""
    encoded_endpoint_header_config: EncodedEndpointHeader | None = None
    session_id_config: SessionIdConfig | None = None

    @property
    def ineffective(self) -> str:
        """The section that is there for the other strategy."""
        if self.strategy == BY_HEADER and self.session_id_config is not None:
            return "sessionIdConfig"
        if self.strategy == BY_SESSION and self.encoded_endpoint_header_config is not None:
            return "encodedEndpointHeaderConfig"
        return ""

    def affinity(self) -> Affinity:
        if self.strategy == BY_HEADER:
            named = self.encoded_endpoint_header_config or EncodedEndpointHeader()
            return Carried(named.header, self.profile_name)
        config = self.session_id_config or SessionIdConfig()
        ttl = config.eviction_ttl_seconds or DEFAULT_TTL
        return Bound(
            config.sources or (SessionSource(header="x-session-id"),),
            self.profile_name,
            SessionTable(config.max_sessions, ttl),
        )


@define(eq=False)
class _SessionAffinity:
    """What filter and scorer have in common. Each instance has a table of its own."""

    stability: ClassVar = Stability.ALPHA
    parameters: SessionAffinityParameters
    _affinity: Affinity = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._affinity = self.parameters.affinity()
        if self.parameters.ineffective:
            strategy = self.parameters.strategy
            logger.warning(
                "%s has no effect: strategy is %s", self.parameters.ineffective, strategy
            )

    @property
    def consumes(self) -> Consumes:
        return self._affinity.consumes

    @property
    def producer_names(self) -> Mapping[str, str]:
        return self._affinity.producer_names

    @property
    def idle_roles(self) -> frozenset[Role]:
        return self._affinity.idle_roles

    def before_request(self, data: DataView, result: SchedulingResult) -> None:
        self._affinity.note(data, result)

    def on_response_headers(
        self, data: DataView, result: SchedulingResult
    ) -> Mapping[str, str] | None:
        return self._affinity.response_headers(result)

    @on(POD_DELETED)
    def forget(self, event: PodDeleted) -> None:
        self._affinity.forget(event.endpoint.identity)

    def dump_state(self) -> object:
        """How many sessions belong to the hundred endpoints that have most."""
        return self._affinity.dump_state()


@final
@define(eq=False)
class SessionAffinityFilter(_SessionAffinity):
    """Keeps only the endpoint of the request's session; all of them where that is not there."""

    type_name: ClassVar = "session-affinity-filter"

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask:
        home = self._affinity.find(data, endpoints)
        return [home is None or index == home for index in range(len(endpoints))]


@final
@define(eq=False)
class SessionAffinityScorer(_SessionAffinity):
    """Prefers the endpoint of the request's session: 1 for it, 0 for others and without session."""

    type_name: ClassVar = "session-affinity-scorer"

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        home = self._affinity.find(data, endpoints)
        return [1.0 if index == home else 0.0 for index in range(len(endpoints))]
