"""Prefill, decoding and encoding on endpoints of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, final

from attrs import Attribute, define, field, fields_dict, frozen

from pointsman.kernel.keys import DataView
from pointsman.kernel.model import SchedulingResult
from pointsman.kernel.structure import FieldError, key_of, not_blank

from .stages import StagedHandler, Stages, sidecar_headers

_ORDERS: Final = {
    "decodefirst": False,
    "decode": False,
    "prefillfirst": True,
    "prefill": True,
}
"""The spellings of the stage order, less hyphens and underscores: whether prefill is first."""


def _plain(order: str) -> str:
    return order.lower().replace("-", "").replace("_", "")


def _is_order(_: object, attribute: Attribute[Any], value: str | None) -> None:
    if value is not None and _plain(value) not in _ORDERS:
        message = f"must be decode-first or prefill-first, not {value!r}"
        raise FieldError(attribute.name, message)


@final
@frozen(kw_only=True)
class StageProfiles:
    """The scheduling profile of each stage; those of prefill and encoding need not exist."""

    decode: str = field(default="decode", validator=not_blank)
    prefill: str = field(default="prefill", validator=not_blank)
    encode: str = field(default="encode", validator=not_blank)

    def __attrs_post_init__(self) -> None:
        if len({self.decode, self.prefill, self.encode}) < 3:
            raise ValueError("each stage needs a profile of its own")


@final
@frozen(kw_only=True)
class StageDeciders:
    """Who says whether a stage is worth its while; without a decider it is left out."""

    prefill: str = ""
    encode: str = ""


@final
@frozen(kw_only=True)
class DisaggParameters:
    stage_order: str | None = field(default=None, validator=_is_order)
    """``decode-first``, which is the default, or ``prefill-first``."""
    profiles: StageProfiles | None = None
    deciders: StageDeciders | None = None
    decode_profile: str | None = field(default=None, validator=not_blank)
    """The older spelling of ``profiles.decode``; old and new do not mix."""
    prefill_profile: str | None = field(default=None, validator=not_blank)
    encode_profile: str | None = field(default=None, validator=not_blank)
    prefill_decider_plugin_name: str | None = None
    """The older spelling of ``deciders.prefill``."""
    encode_decider_plugin_name: str | None = None
    decider_plugin_name: str | None = None
    """The oldest spelling of ``deciders.prefill``."""

    def __attrs_post_init__(self) -> None:
        old, new = self._given(_OLD), self._given(_NEW)
        if old and new:
            raise ValueError(f"{old[0]} is an older spelling: it does not go with {new[0]}")
        if self.stages.prefill_first and self.stages.prefill_decider:
            raise ValueError("prefill-first leaves deciders.prefill nothing to decide")

    def _given(self, names: Sequence[str]) -> list[str]:
        """The fields among *names* that the configuration sets, as it spells them."""
        known = fields_dict(DisaggParameters)
        return [key_of(known[name]) for name in names if getattr(self, name) is not None]

    @property
    def stages(self) -> Stages:
        profiles = self.profiles or StageProfiles(
            decode=self.decode_profile or "decode",
            prefill=self.prefill_profile or "prefill",
            encode=self.encode_profile or "encode",
        )
        deciders = self.deciders or StageDeciders(
            prefill=self.prefill_decider_plugin_name or self.decider_plugin_name or "",
            encode=self.encode_decider_plugin_name or "",
        )
        return Stages(
            decode=profiles.decode,
            prefill=profiles.prefill,
            encode=profiles.encode,
            prefill_decider=deciders.prefill,
            encode_decider=deciders.encode,
            prefill_first=_ORDERS[_plain(self.stage_order or "decode")],
        )


_NEW: Final = ("stage_order", "profiles", "deciders")
_OLD: Final = (
    "decode_profile",
    "prefill_profile",
    "encode_profile",
    "prefill_decider_plugin_name",
    "encode_decider_plugin_name",
    "decider_plugin_name",
)


@final
@define(eq=False)
class DisaggProfileHandler(StagedHandler):
    """Gives prefill and encoding endpoints of their own, where a decider finds it worth it.

    The request goes to the endpoint that decodes, with the others' addresses in
    ``x-prefiller-host-port`` and ``x-encoder-hosts-ports`` for its sidecar. A prefill or an
    encoding that finds no endpoint is done where the request is decoded.
    """

    type_name: ClassVar = "disagg-profile-handler"
    parameters: DisaggParameters

    def _make_stages(self) -> Stages:
        return self.parameters.stages

    def before_request(self, data: DataView, result: SchedulingResult) -> Mapping[str, str]:
        self._note(data, result)
        return sidecar_headers(result.profiles, self._stages.prefill, self._stages.encode)
