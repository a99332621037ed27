"""The HTTP face for operators: liveness, readiness and figures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import final

import anyio
from anyio.abc import TaskStatus
from attrs import define, field
from prometheus_client.exposition import choose_encoder

from pointsman.kernel.channel import Latest

from .figures import Figures
from .http import Request, Response, json_response, serve, text_response

Answer = Callable[[Request], Awaitable[Response]]


def _page(read: Callable[[], object]) -> Answer:
    async def answer(request: Request) -> Response:
        return json_response(read())

    return answer


@final
@define(eq=False)
class AdminServer:
    """Serves /healthz, /readyz and /metrics until cancelled."""

    host: str | None
    port: int
    ready: Latest[bool]
    figures: Figures
    why_not_ready: Callable[[], str]
    """What readiness waits for, in a line."""
    debug: Mapping[str, Callable[[], object]] = field(factory=dict[str, Callable[[], object]])
    """Pages about the inside, as JSON. Only whoever listens on loopback alone has any."""
    _answers: Mapping[str, Answer] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._answers = {
            "/healthz": self._alive,
            "/readyz": self._ready,
            "/metrics": self._metrics,
            **{path: _page(read) for path, read in self.debug.items()},
        }

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Raises OSError when the port cannot be had."""
        try:
            listener = await anyio.create_tcp_listener(local_host=self.host, local_port=self.port)
        except OSError as exc:
            raise OSError(exc.errno, f"cannot listen on port {self.port}: {exc.strerror}") from exc
        task_status.started()
        await serve(listener, self.answer)

    async def answer(self, request: Request) -> Response:
        answer = self._answers.get(request.path)
        if answer is None:
            known = sorted(self._answers)
            return json_response({"error": f"no such page; there are {known}"}, 404)
        if request.method not in ("GET", "HEAD"):
            return json_response({"error": "only GET is answered"}, 405)
        return await answer(request)

    async def _alive(self, request: Request) -> Response:
        return text_response("ok\n")

    async def _ready(self, request: Request) -> Response:
        if self.ready.value:
            return text_response("ok\n")
        return text_response(f"not ready: {self.why_not_ready()}\n", 503)

    async def _metrics(self, request: Request) -> Response:
        """Prometheus text, or OpenMetrics when that is asked for."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        body = encode(self.figures.registry)
        return Response(200, body, (("content-type", content_type),))
