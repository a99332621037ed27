"""Tokens before the figures, against a simulated API server with our own manifests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from pointsman.actors.admin_tokens import MOST_REMEMBERED, REMEMBERED, TokenGuard
from pointsman.actors.http import Request, Response, json_response
from pointsman.actors.kube.access import Access, Login
from pointsman.actors.kube.errors import AccessError
from pointsman.actors.kube.reviews import PATIENCE, Reviews
from pointsman.actors.sim.kube.identity import service_account
from pointsman.actors.sim.kube.manifests import load_manifests
from pointsman.actors.sim.kube.server import ApiServer

MANIFESTS: Final = Path(__file__).parents[2] / "deploy" / "kubernetes"
OURS, SCRAPER, STRANGER = "ours", "scraper", "stranger"
BINDING: Final = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "prometheus"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "pointsman-metrics-reader",
    },
    "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}],
}


@define(eq=False)
class Wire(httpx.AsyncBaseTransport):
    """Hands requests to *answer* as if over a network."""

    answer: Callable[[Request], Any]
    asked: list[str] = field(factory=list[str], init=False)
    authorization: set[str] = field(factory=set[str], init=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        headers = dict(request.headers)
        self.asked.append(request.url.path.rpartition("/")[2])
        self.authorization.add(headers.get("authorization", ""))
        body = await request.aread()
        response: Response = await self.answer(
            Request(request.method, request.url.path, {}, headers, body)
        )
        assert isinstance(response.body, bytes)
        return httpx.Response(
            response.status, headers=list(response.headers), stream=httpx.ByteStream(response.body)
        )


def cluster(*, reviews: bool = True) -> ApiServer:
    server = ApiServer("RBAC")
    server.authenticator.tokens.update(
        {
            OURS: service_account("default", "pointsman"),
            SCRAPER: service_account("monitoring", "prometheus"),
            STRANGER: service_account("default", "stranger"),
        }
    )
    for manifest in load_manifests([MANIFESTS / "metrics-rbac.yaml"]):
        if reviews or manifest.object["kind"] != "ClusterRoleBinding":
            server.create(manifest.object)
    server.create(BINDING)
    return server


def guarded(wire: Wire, *tokens: str) -> TokenGuard:
    """A guard that comes to the API server with these tokens, one after the other."""
    left = [*tokens] or [OURS]

    async def read() -> Access:
        token = left.pop(0) if len(left) > 1 else left[0]
        return Access("http://api", {"authorization": f"Bearer {token}"})

    return TokenGuard(Reviews(Login(read), lambda access: wire))


@pytest.fixture
def wire() -> Wire:
    return Wire(cluster().handle)


async def answer(
    guard: TokenGuard, authorization: str | None, path: str = "/metrics"
) -> Response | None:
    headers = {} if authorization is None else {"authorization": authorization}
    return await guard.refusal(Request("GET", path, headers=headers))


async def status(guard: TokenGuard, token: str, path: str = "/metrics") -> int:
    """What the bearer of *token* gets; 200 is the page."""
    refusal = await answer(guard, f"Bearer {token}", path)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("token", "expected"), [(SCRAPER, 200), (STRANGER, 403), ("nobody's", 401)]
)
async def test_only_who_has_the_right_gets_the_figures(
    wire: Wire, token: str, expected: int
) -> None:
    assert await status(guarded(wire), token) == expected
    assert wire.authorization == {f"Bearer {OURS}"}


async def test_the_right_is_for_one_page(wire: Wire) -> None:
    guard = guarded(wire)
    assert await status(guard, SCRAPER, "/debug/state") == 403
    assert await status(guard, SCRAPER, "/metrics") == 200


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer  ", f"Basic {SCRAPER}", SCRAPER]
)
async def test_without_a_token_nobody_is_asked(wire: Wire, authorization: str | None) -> None:
    refusal = await answer(guarded(wire), authorization)
    assert refusal is not None
    assert refusal.status == 401
    assert ("www-authenticate", "Bearer") in refusal.headers
    assert wire.asked == []


async def test_the_scheme_is_written_in_any_case(wire: Wire) -> None:
    assert await answer(guarded(wire), f"bearer {SCRAPER}") is None


async def test_answers_are_remembered_for_a_while(wire: Wire, autojump_clock: MockClock) -> None:
    guard = guarded(wire)
    for token in (SCRAPER, STRANGER, "nobody's"):
        first = await status(guard, token)
        asked = len(wire.asked)
        await trio.sleep(REMEMBERED / 2)
        assert await status(guard, token) == first
        assert len(wire.asked) == asked
        await trio.sleep(REMEMBERED)
        assert await status(guard, token) == first
        assert len(wire.asked) > asked


async def test_a_right_that_was_taken_away_is_gone_after_a_while(
    autojump_clock: MockClock,
) -> None:
    server = cluster()
    guard = guarded(Wire(server.handle))
    assert await status(guard, SCRAPER) == 200
    server.delete("clusterrolebindings", "prometheus")
    await trio.sleep(REMEMBERED + 1)
    assert await status(guard, SCRAPER) == 403


async def test_those_who_come_at_once_are_asked_about_once(wire: Wire) -> None:
    guard = guarded(wire)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(status, guard, SCRAPER)
    assert wire.asked == ["tokenreviews", "subjectaccessreviews"]


async def test_what_is_remembered_is_bounded(wire: Wire) -> None:
    guard = guarded(wire)
    for number in range(MOST_REMEMBERED + 50):
        await status(guard, f"token {number}")
    assert len(guard._verdicts) == MOST_REMEMBERED
    assert "token 0" not in repr(guard)


async def test_a_token_that_is_refused_to_ourselves_is_read_again(wire: Wire) -> None:
    assert await status(guarded(wire, "expired", OURS), SCRAPER) == 200


# -- when the API server is of no help ------------------------------------------------------------


async def test_without_the_right_to_ask_that_is_what_is_said() -> None:
    refusal = await answer(guarded(Wire(cluster(reviews=False).handle)), f"Bearer {SCRAPER}")
    assert refusal is not None
    assert refusal.status == 500
    assert b"no right to create tokenreviews" in _body(refusal)


def _body(response: Response) -> bytes:
    assert isinstance(response.body, bytes)
    return response.body


async def _breaks(request: Request) -> Response:
    raise httpx.ConnectError("connection refused")


async def _hangs(request: Request) -> Response:
    await trio.sleep_forever()
    raise AssertionError


async def _fails(request: Request) -> Response:
    return json_response({"kind": "Status", "message": "etcd is slow"}, 500)


async def _babbles(request: Request) -> Response:
    return Response(201, b"<html>")


@pytest.mark.parametrize("trouble", [_breaks, _hangs, _fails, _babbles])
async def test_nobody_is_let_in_while_the_api_server_cannot_be_asked(
    autojump_clock: MockClock, trouble: Callable[[Request], Any]
) -> None:
    started = trio.current_time()
    refusal = await answer(guarded(Wire(trouble)), f"Bearer {SCRAPER}")
    assert refusal is not None
    assert refusal.status == 503
    assert b"cannot be asked" in _body(refusal)
    assert trio.current_time() - started <= PATIENCE + 0.1


async def test_nobody_is_let_in_without_credentials_of_our_own(wire: Wire) -> None:
    async def read() -> Access:
        raise AccessError("no credential")

    guard = TokenGuard(Reviews(Login(read), lambda access: wire))
    assert await status(guard, SCRAPER) == 503


async def test_trouble_is_not_remembered_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pointsman.actors.admin_tokens")
    healthy = cluster()
    broken = True

    async def handle(request: Request) -> Response:
        return await (_breaks if broken else healthy.handle)(request)

    guard = guarded(Wire(handle))
    for _ in range(3):
        assert await status(guard, SCRAPER) == 503
    broken = False
    assert await status(guard, SCRAPER) == 200
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert messages[0].startswith("cannot find out who may read the figures: cannot create token")
    assert messages[1] == "tokens can be reviewed again"


REVIEWS: Final[Mapping[str, Any]] = {
    "authenticated": {"status": {"authenticated": True, "user": {"username": "u"}}},
    "no": {"status": {"authenticated": False}},
    "empty": {},
}


@pytest.mark.parametrize(
    ("token", "rights", "expected"),
    [
        ("authenticated", {"status": {"allowed": True}}, 200),
        ("authenticated", {"status": {"allowed": True, "denied": True}}, 403),
        ("authenticated", {"status": {}}, 403),
        ("authenticated", {}, 403),
        ("no", {"status": {"allowed": True}}, 401),
        ("empty", {"status": {"allowed": True}}, 401),
    ],
)
async def test_only_a_clear_yes_lets_in(token: str, rights: object, expected: int) -> None:
    async def handle(request: Request) -> Response:
        tokens = request.path.endswith("tokenreviews")
        return json_response(REVIEWS[token] if tokens else rights, 201)

    assert await status(guarded(Wire(handle)), "t") == expected


async def test_what_the_api_server_knows_of_the_user_goes_into_the_question() -> None:
    seen: list[Any] = []
    user = {"username": "u", "uid": "7", "groups": ["g"], "extra": {"scopes": ["a", "b"]}}

    async def handle(request: Request) -> Response:
        seen.append(msgspec.json.decode(request.body)["spec"])
        return json_response({"status": {"authenticated": True, "allowed": True, "user": user}})

    assert await status(guarded(Wire(handle)), "t", "/debug/state") == 200
    attributes = {"path": "/debug/state", "verb": "get"}
    assert seen == [
        {"token": "t"},
        {
            "user": "u",
            "uid": "7",
            "groups": ["g"],
            "extra": {"scopes": ["a", "b"]},
            "nonResourceAttributes": attributes,
        },
    ]
