"""Which session a request belongs to, by a header or a cookie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from attrs import define, field, frozen

from pointsman.kernel.keys import Consumes, DataView, keys
from pointsman.kernel.model import REQUEST_HEADERS, Endpoint, Headers
from pointsman.kernel.registry import Stability

from .keys import SESSION_ID
from .session_homes import header_name, trimmed


@final
@frozen(kw_only=True)
class SessionIdParameters:
    """Exactly one of the two."""

    header_name: str = field(default="", converter=header_name)
    """Upper and lower case are the same."""
    cookie_name: str = field(default="", converter=trimmed)

    def __attrs_post_init__(self) -> None:
        if bool(self.header_name) == bool(self.cookie_name):
            raise ValueError("exactly one of headerName and cookieName is needed")

    def read(self, headers: Headers) -> str:
        """The name of a request's session; empty when it is missing or blank."""
        if self.header_name:
            return (headers.get(self.header_name) or "").strip()
        return cookie(headers.get("cookie") or "", self.cookie_name).strip()


def cookie(text: str, name: str) -> str:
    """The value of the first cookie of that name; pairs that are none are skipped."""
    for pair in text.split(";"):
        own, _, value = pair.partition("=")
        if own.strip() == name:
            return _unquoted(value.strip())
    return ""


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] == '"'
    return value[1:-1] if quoted else value


@final
@define(eq=False)
class SessionIdProducer:
    """Finds the name of the session in a header or a cookie; nothing where it is blank."""

    type_name: ClassVar = "session-id-producer"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(REQUEST_HEADERS)
    produces: ClassVar = keys(SESSION_ID)
    parameters: SessionIdParameters

    def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        session = self.parameters.read(data[REQUEST_HEADERS])
        if session:
            data[SESSION_ID] = session
