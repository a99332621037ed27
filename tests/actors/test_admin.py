"""The HTTP face for operators: its pages, and the port that it needs."""

from __future__ import annotations

import json
from collections.abc import Mapping

import anyio
import pytest
from anyio.abc import SocketAttribute

from pointsman.actors.admin import AdminServer
from pointsman.actors.figures import Figures
from pointsman.actors.http import Request, Response
from pointsman.kernel.channel import Latest

from .raw_http import GET, Client


def server(*, ready: bool = True, port: int = 0) -> AdminServer:
    return AdminServer(
        "127.0.0.1",
        port,
        Latest(ready),
        Figures(),
        why_not_ready=lambda: "the first list of endpoints",
        debug={"/debug/answer": lambda: {"answer": 42}},
    )


async def get(
    server: AdminServer,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
) -> Response:
    return await server.answer(Request(method, path, headers=headers or {}))


async def test_a_living_server_is_alive_even_when_it_is_not_ready() -> None:
    response = await get(server(ready=False), "/healthz")
    assert (response.status, response.body) == (200, b"ok\n")


async def test_readiness_follows_the_daemon_and_says_what_it_waits_for() -> None:
    admin = server(ready=False)
    response = await get(admin, "/readyz")
    assert (response.status, response.body) == (503, b"not ready: the first list of endpoints\n")
    admin.ready.set(True)
    response = await get(admin, "/readyz")
    assert (response.status, response.body) == (200, b"ok\n")


async def test_figures_are_shown_as_prometheus_text() -> None:
    response = await get(server(), "/metrics")
    assert isinstance(response.body, bytes)
    assert b"# TYPE llm_d_epp_scheduler_attempts_total counter" in response.body
    assert dict(response.headers)["content-type"].startswith("text/plain")


async def test_figures_are_shown_as_open_metrics_when_that_is_asked_for() -> None:
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    response = await get(server(), "/metrics", headers=accept)
    assert isinstance(response.body, bytes)
    assert dict(response.headers)["content-type"].startswith("application/openmetrics-text")
    assert response.body.endswith(b"# EOF\n")


async def test_debug_pages_are_read_when_they_are_looked_at() -> None:
    response = await get(server(), "/debug/answer")
    assert isinstance(response.body, bytes)
    assert json.loads(response.body) == {"answer": 42}


@pytest.mark.parametrize("path", ["/", "/metrics/", "/debug/endpoints", "/healthz/x"])
async def test_other_pages_do_not_exist(path: str) -> None:
    response = await get(server(), path)
    assert response.status == 404
    assert isinstance(response.body, bytes)
    assert "/healthz" in json.loads(response.body)["error"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_pages_can_only_be_read(method: str) -> None:
    assert (await get(server(), "/metrics", method=method)).status == 405


async def test_a_head_request_is_answered() -> None:
    assert (await get(server(), "/healthz", method="HEAD")).status == 200


async def test_the_server_answers_on_its_port_from_the_moment_it_has_started() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as free:
        port = free.extra(SocketAttribute.local_port)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            await tasks.start(server(port=port).run)
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                assert await Client(stream).ask(GET.replace(b"/a", b"/healthz")) == (200, b"ok\n")
            tasks.cancel_scope.cancel()


async def test_a_port_in_use_is_named() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as taken:
        port = taken.extra(SocketAttribute.local_port)
        with pytest.raises(OSError, match=f"cannot listen on port {port}: Address already in use"):
            await server(port=port).run()
