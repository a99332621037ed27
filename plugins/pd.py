"""Prefill and decoding as older configurations write it: two plugins, deprecated both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from attrs import define, field, frozen

from pointsman.kernel.keys import DataView
from pointsman.kernel.model import Endpoint, SchedulingResult, host_port
from pointsman.kernel.registry import Stability
from pointsman.kernel.structure import not_blank, within

from .data_parallel import DATA_PARALLEL_HEADER
from .stages import StagedHandler, Stages, sidecar_headers


@final
@frozen(kw_only=True)
class PdParameters:
    decode_profile: str = field(default="decode", validator=not_blank)
    prefill_profile: str = field(default="prefill", validator=not_blank)
    decider_plugin_name: str = field(default="prefix-based-pd-decider", validator=not_blank)
    primary_port: int = field(default=0, validator=within(0, 65535))
    """The port of a pod that takes the requests of all its ranks; 0: each takes its own."""
    prefix_match_info_producer_name: str = ""
    """Without effect: the decider says itself whose prefixes it looks at."""
    prefix_plugin_type: str = ""
    """Deprecated, without effect."""
    prefix_plugin_name: str = ""
    """Deprecated, without effect."""

    def __attrs_post_init__(self) -> None:
        if self.decode_profile == self.prefill_profile:
            raise ValueError("each stage needs a profile of its own")


@final
@define(eq=False)
class PdProfileHandler(StagedHandler):
    """Gives prefill an endpoint of its own, where the decider finds it worth it.

    With a *primaryPort* the request goes to that port of the pod that decodes, and the address
    that was chosen travels in ``x-data-parallel-host-port``. The prefill's address is told by
    a plugin of its own, disagg-headers-handler.
    """

    type_name: ClassVar = "pd-profile-handler"
    # Its one name is the deprecated one.
    aliases: ClassVar = {"pd-profile-handler": "write disagg-profile-handler"}
    parameters: PdParameters

    def _make_stages(self) -> Stages:
        return Stages(
            decode=self.parameters.decode_profile,
            prefill=self.parameters.prefill_profile,
            prefill_decider=self.parameters.decider_plugin_name,
        )

    def destination(self, data: DataView, endpoint: Endpoint) -> str:
        return host_port(endpoint.address, self.parameters.primary_port or endpoint.port)

    def before_request(self, data: DataView, result: SchedulingResult) -> Mapping[str, str]:
        self._note(data, result)
        if not self.parameters.primary_port:
            return {}
        return {DATA_PARALLEL_HEADER: result.target.host_port}


@final
@frozen(kw_only=True)
class DisaggHeadersParameters:
    prefill_profile: str = field(default="prefill", validator=not_blank)
    encode_profile: str = field(default="encode", validator=not_blank)


@final
@define(eq=False)
class DisaggHeadersHandler:
    """Tells the sidecar of the decoding pod where prefill and encoding run.

    disagg-profile-handler does so itself; beside it this changes nothing.
    """

    type_name: ClassVar = "disagg-headers-handler"
    aliases: ClassVar = {
        "disagg-headers-handler": "disagg-profile-handler sets the headers itself",
        "prefill-header-handler": "disagg-profile-handler sets the headers itself",
    }
    stability: ClassVar = Stability.BETA
    parameters: DisaggHeadersParameters

    def before_request(self, data: DataView, result: SchedulingResult) -> Mapping[str, str]:
        profiles = self.parameters
        return sidecar_headers(result.profiles, profiles.prefill_profile, profiles.encode_profile)
