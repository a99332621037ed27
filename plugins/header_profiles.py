"""The request says in a header which profile runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

from attrs import define, frozen

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import REQUEST_HEADERS
from pointsman.kernel.plugin import Results
from pointsman.kernel.registry import Stability

from .profile_handlers import SingleProfileHandler

HEADER: Final = "epp-profile"
DEFAULT: Final = "decode"
_SINGLE: Final = SingleProfileHandler()


@final
@frozen(kw_only=True)
class HeaderProfileParameters:
    header_name: str = "EPP-Profile"
    """Upper and lower case are the same; blank means the default."""
    default_profile: str = DEFAULT
    """For requests without the header; blank means the default."""

    @property
    def header(self) -> str:
        return self.header_name.strip().lower() or HEADER

    @property
    def default(self) -> str:
        return self.default_profile.strip() or DEFAULT


@final
@define(eq=False)
class HeaderProfileHandler:
    """Runs the profile that the request's header names; where there is but one, that one."""

    type_name: ClassVar = "header-profile-handler"
    stability: ClassVar = Stability.ALPHA
    consumes: ClassVar = Consumes(REQUEST_HEADERS)
    parameters: HeaderProfileParameters

    def profiles(self, data: DataView, available: Sequence[str], results: Results) -> Sequence[str]:
        if results:
            return ()
        if len(available) == 1:
            return available
        named = (data[REQUEST_HEADERS].get(self.parameters.header) or "").strip()
        wanted = named or self.parameters.default
        if wanted in available:
            return (wanted,)
        if named:
            raise Refusal(400, f"{self.parameters.header} names no profile: {named[:200]!r}")
        raise Refusal(503, f"the default profile {wanted!r} is not configured")

    def primary(self, data: DataView, results: Results) -> str:
        return _SINGLE.primary(data, results)
