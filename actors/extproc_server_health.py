"""gRPC health, on a port of its own and without TLS, as probes expect it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import anyio
from anyio.abc import TaskStatus
from attrs import define
from grpclib.config import Configuration
from grpclib.const import Cardinality, Status
from grpclib.const import Handler as Method
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from pointsman.kernel.channel import Latest
from pointsman.proto import (
    EXT_PROC_SERVICE,
    HEALTH_CHECK,
    HEALTH_LIST,
    HEALTH_WATCH,
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
    ServingStatus,
)

from .extproc_server_host import TreeServer

LIVENESS: Final = "liveness"
READINESS: Final = frozenset({"", "readiness", EXT_PROC_SERVICE, "inference-extension"})
"""Names that ask whether requests can be served; charts use the last one."""
MESSAGE_LIMIT: Final = 64 * 1024  # bytes


@final
@define(eq=False)
class HealthServer:
    """Answers probes: alive means that the process answers, ready what `ready` says."""

    host: str | None
    port: int
    ready: Latest[bool]

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Raises OSError when the port cannot be had."""
        async with anyio.create_task_group() as tasks:
            server = TreeServer(
                tasks, self._methods(), config=Configuration(), message_limit=MESSAGE_LIMIT
            )
            await server.serve(self.host, self.port, task_status=task_status)

    def _methods(self) -> Mapping[str, Method]:
        unary, streaming = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        return {
            HEALTH_CHECK: Method(self._check, unary, HealthCheckRequest, HealthCheckResponse),
            HEALTH_WATCH: Method(self._watch, streaming, HealthCheckRequest, HealthCheckResponse),
            HEALTH_LIST: Method(self._list, unary, HealthListRequest, HealthListResponse),
        }

    def _status(self, service: str) -> ServingStatus:
        if service == LIVENESS or (service in READINESS and self.ready.value):
            return ServingStatus.SERVING
        if service in READINESS:
            return ServingStatus.NOT_SERVING
        return ServingStatus.SERVICE_UNKNOWN

    async def _check(self, stream: Stream[HealthCheckRequest, HealthCheckResponse]) -> None:
        request = await stream.recv_message()
        status = self._status(request.service if request is not None else "")
        if status is ServingStatus.SERVICE_UNKNOWN:
            raise GRPCError(Status.NOT_FOUND, "unknown service")
        await stream.send_message(HealthCheckResponse(status=status))

    async def _watch(self, stream: Stream[HealthCheckRequest, HealthCheckResponse]) -> None:
        request = await stream.recv_message()
        service = request.service if request is not None else ""
        said: ServingStatus | None = None
        version = self.ready.version
        while True:
            if (status := self._status(service)) is not said:
                said = status
                await stream.send_message(HealthCheckResponse(status=status))
            version, _ = await self.ready.newer(version)

    async def _list(self, stream: Stream[HealthListRequest, HealthListResponse]) -> None:
        await stream.recv_message()
        names = (LIVENESS, *sorted(READINESS))
        statuses = {name: HealthCheckResponse(status=self._status(name)) for name in names}
        await stream.send_message(HealthListResponse(statuses=statuses))
