"""Ranks of one engine behind one port: the pod's sidecar passes a request on to the rank chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, final

from attrs import define, field, frozen

from pointsman.kernel.keys import DataView
from pointsman.kernel.model import Endpoint, SchedulingResult, host_port
from pointsman.kernel.plugin import Results
from pointsman.kernel.registry import Stability
from pointsman.kernel.structure import within

from .profile_handlers import SingleProfileHandler

DATA_PARALLEL_HEADER: Final = "x-data-parallel-host-port"
_SINGLE: Final = SingleProfileHandler()


@final
@frozen(kw_only=True)
class DataParallelParameters:
    primary_port: int = field(default=8000, validator=within(1, 65535))
    """The port of the pod that takes the requests of all ranks."""


@final
@define(eq=False)
class DataParallelProfileHandler:
    """Runs the one profile there is, and sends to the primary port of whom it chooses.

    The address that was chosen travels in ``x-data-parallel-host-port``.
    """

    type_name: ClassVar = "data-parallel-profile-handler"
    stability: ClassVar = Stability.BETA
    most_profiles: ClassVar = 1
    parameters: DataParallelParameters

    def profiles(self, data: DataView, available: Sequence[str], results: Results) -> Sequence[str]:
        return _SINGLE.profiles(data, available, results)

    def primary(self, data: DataView, results: Results) -> str:
        return _SINGLE.primary(data, results)

    def destination(self, data: DataView, endpoint: Endpoint) -> str:
        return host_port(endpoint.address, self.parameters.primary_port)

    def before_request(self, data: DataView, result: SchedulingResult) -> Mapping[str, str]:
        return {DATA_PARALLEL_HEADER: result.target.host_port}
