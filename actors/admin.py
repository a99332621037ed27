"""The HTTP face for operators: liveness, readiness and figures."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, final

import anyio
from anyio.abc import Listener, SocketStream, TaskStatus
from attrs import define, field

from pointsman.kernel.channel import Latest

from .admin_guards import Guard
from .exposition import figures_page
from .figures import Figures
from .http import Request, Response, json_response, serve, text_response
from .http_tls import TlsListener

Answer = Callable[[Request], Awaitable[Response]]
OPEN: Final = frozenset({"/healthz", "/readyz"})
"""Pages for everybody: whoever asks them cannot show who he is."""


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
    """Pages about the inside, as JSON. Whoever has some is guarded, or on loopback alone."""
    guards: Sequence[Guard] = ()
    """Each has to let a request pass."""
    tls: ssl.SSLContext | None = None
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
        listener: Listener[SocketStream]
        try:
            listener = await anyio.create_tcp_listener(local_host=self.host, local_port=self.port)
        except OSError as exc:
            raise OSError(exc.errno, f"cannot listen on port {self.port}: {exc.strerror}") from exc
        if self.tls is not None:
            listener = TlsListener(listener, self.tls)
        task_status.started()
        try:
            await serve(listener, self.answer)
        finally:
            for guard in self.guards:
                await guard.aclose()

    async def answer(self, request: Request) -> Response:
        answer = self._answers.get(request.path)
        if answer is None:
            return self._unknown()
        if request.method not in ("GET", "HEAD"):
            return json_response({"error": "only GET is answered"}, 405, (("allow", "GET, HEAD"),))
        if request.path not in OPEN:
            for guard in self.guards:
                if (refusal := await guard.refusal(request)) is not None:
                    return refusal
        return await answer(request)

    def _unknown(self) -> Response:
        if self.guards:
            return json_response({"error": "no such page"}, 404)
        known = sorted(self._answers)
        return json_response({"error": f"no such page; there are {known}"}, 404)

    async def _alive(self, request: Request) -> Response:
        return text_response("ok\n")

    async def _ready(self, request: Request) -> Response:
        if self.ready.value:
            return text_response("ok\n")
        return text_response(f"not ready: {self.why_not_ready()}\n", 503)

    async def _metrics(self, request: Request) -> Response:
        return await figures_page(self.figures.registry, request)
