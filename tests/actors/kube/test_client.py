"""Lists and watches, one request at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import httpx
import pytest
import trio
from attrs import evolve
from trio.testing import MockClock

from pointsman.actors.kube.access import Access, Login
from pointsman.actors.kube.client import SOCKET_OPTIONS, Client, http_transport
from pointsman.actors.kube.errors import (
    AccessError,
    ApiError,
    Expired,
    Forbidden,
    Interrupted,
    NotInstalled,
    Throttled,
    Unauthorized,
    Unavailable,
)
from pointsman.actors.kube.kinds import PODS, Notice, Pod, Selection
from pointsman.actors.kube.watching import Bookmark, Broken, Seen

from .scripts import Pieces, Script, line, page, pod, scripted, status, stream

SELECTION = Selection(PODS, "ns", labels="app=x,role in (a,b)")


def names(pods: list[Pod]) -> list[str]:
    return [pod.metadata.name for pod in pods]


async def watched(client: Client, *, batches: int = 1) -> list[Seen[Pod]]:
    """What the first batches of a watch tell."""
    seen: list[Seen[Pod]] = []
    async with client.watch(SELECTION, "10") as watch:
        for _ in range(batches):
            seen += await watch.batch() or ()
    return seen


async def test_a_list_is_fetched_page_by_page() -> None:
    client, script = scripted(page(pod("a"), token="t"), page(pod("b"), version="10"))
    async with client:
        listing = await client.list(SELECTION)
    assert (names(listing.objects), listing.version) == (["a", "b"], "10")
    selected = {"labelSelector": "app=x,role in (a,b)", "limit": "500"}
    assert script.queries == [selected, selected | {"continue": "t"}]


async def test_a_list_whose_rest_has_expired_is_fetched_in_one_piece() -> None:
    client, script = scripted(
        page(pod("a"), token="t"), status(410, "Expired"), page(pod("b"), pod("c"))
    )
    async with client:
        listing = await client.list(SELECTION)
    assert names(listing.objects) == ["b", "c"]
    assert "limit" not in script.queries[-1]


async def test_an_object_that_breaks_the_schema_costs_only_itself() -> None:
    client, _ = scripted(page(pod("a"), pod("b", podIP=7), {"metadata": {}}, {"metadata": 3}))
    async with client:
        listing = await client.list(SELECTION)
    assert names(listing.objects) == ["a"]
    assert [broken.metadata.name for broken in listing.broken] == ["b", "", ""]
    assert "podIP" in listing.broken[0].problem


async def test_a_list_without_a_version_is_of_no_use() -> None:
    client, _ = scripted(page(pod("a"), version=""))
    async with client:
        with pytest.raises(Unavailable, match="resourceVersion"):
            await client.list(SELECTION)


async def test_a_list_that_is_no_json_is_of_no_use() -> None:
    client, _ = scripted(stream(b"<html>"))
    async with client:
        with pytest.raises(Unavailable, match="garbage"):
            await client.list(SELECTION)


async def test_a_watch_asks_for_bookmarks_and_an_end_after_a_random_time() -> None:
    client, script = scripted(*(stream() for _ in range(20)))
    async with client:
        for _ in range(20):
            await watched(client)
    times = [int(query["timeoutSeconds"]) for query in script.queries]
    assert 240 <= min(times) < 260
    assert 340 < max(times) <= 360
    assert script.queries[0] == {
        "watch": "1",
        "resourceVersion": "10",
        "allowWatchBookmarks": "true",
        "labelSelector": "app=x,role in (a,b)",
        "timeoutSeconds": str(times[0]),
    }


async def test_the_read_time_out_is_above_the_time_of_the_watch() -> None:
    client, script = scripted(stream())
    async with client:
        await watched(client)
    asked = int(script.queries[0]["timeoutSeconds"])
    assert script.requests[0].extensions["timeout"]["read"] == asked + 15


async def test_no_compression_is_asked_for() -> None:
    client, script = scripted(page())
    async with client:
        await client.list(SELECTION)
    assert script.requests[0].headers["accept-encoding"] == "identity"


async def test_a_watch_tells_changes_and_bookmarks() -> None:
    bookmark = line("BOOKMARK", {"metadata": {"resourceVersion": "12", "creationTimestamp": None}})
    client, _ = scripted(stream(line("ADDED", pod("a")) + bookmark))
    async with client:
        added, mark = await watched(client)
    assert isinstance(added, Notice)
    assert (added.type, added.object.metadata.name, mark) == ("ADDED", "a", Bookmark("12"))


async def test_a_line_may_come_in_pieces() -> None:
    text = line("ADDED", pod("a"))
    client, _ = scripted(stream(text[:9], text[9:20], text[20:]))
    async with client:
        assert len(await watched(client)) == 1


async def test_an_event_of_an_unknown_type_is_passed_over() -> None:
    client, _ = scripted(stream(line("RENAMED", pod("a")) + line("ADDED", pod("b"))))
    async with client:
        assert len(await watched(client)) == 1


async def test_a_change_that_breaks_the_schema_is_told_as_broken() -> None:
    client, _ = scripted(stream(line("MODIFIED", pod("a", 7, podIP=[]))))
    async with client:
        (broken,) = await watched(client)
    assert isinstance(broken, Broken)
    assert (broken.metadata.name, broken.metadata.resource_version) == ("a", "7")


async def test_changes_before_an_error_still_count() -> None:
    error = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"}
    client, _ = scripted(stream(line("ADDED", pod("a")) + line("ERROR", error)))
    async with client, client.watch(SELECTION, "10") as watch:
        batch = await watch.batch()
        assert batch is not None
        assert isinstance(next(batch), Notice)
        with pytest.raises(Expired):
            next(batch)


async def test_an_error_in_a_watch_may_ask_for_a_pause() -> None:
    error = {"code": 429, "message": "slowly", "details": {"retryAfterSeconds": 7}}
    client, _ = scripted(stream(line("ERROR", error)))
    async with client:
        with pytest.raises(Throttled, match="slowly") as caught:
            await watched(client)
    assert caught.value.retry_after == 7


@pytest.mark.parametrize(
    "pieces",
    [
        [line("ADDED", pod("a"))[:30]],
        [httpx.ReadError("reset")],
        [httpx.RemoteProtocolError("incomplete chunked read")],
        [httpx.ReadTimeout("")],
        [b"x" * (17 << 20)],
    ],
    ids=["mid-line", "reset", "chunk", "silence", "endless"],
)
async def test_a_watch_that_breaks_is_interrupted(pieces: list[bytes | Exception]) -> None:
    client, _ = scripted(stream(*pieces))
    async with client:
        with pytest.raises(Interrupted):
            await watched(client)


async def test_garbage_in_a_watch_is_an_error() -> None:
    client, _ = scripted(stream(b'{"type":"MODIFIED","object":\x00}\n'))
    async with client:
        with pytest.raises(Unavailable, match="garbage"):
            await watched(client)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (partial(status, 403), Forbidden),
        (lambda: httpx.Response(404, stream=Pieces([b"404 page not found\n"])), NotInstalled),
        (partial(status, 410, "Gone"), Expired),
        (partial(status, 429), Throttled),
        (partial(status, 500), Unavailable),
        (partial(status, 503), Unavailable),
        (lambda: httpx.Response(302, stream=Pieces([])), Unavailable),
        (lambda: httpx.Response(502, stream=Pieces([httpx.ReadError("reset")])), Unavailable),
        (lambda: httpx.ConnectError("refused"), Unavailable),
        (lambda: httpx.ConnectTimeout(""), Unavailable),
        (lambda: httpx.RemoteProtocolError("Server disconnected"), Unavailable),
        (ConnectionResetError, Unavailable),
    ],
)
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_every_refusal_has_its_error(
    verb: str, answer: Callable[[], httpx.Response | Exception], error: type[ApiError]
) -> None:
    client, _ = scripted(answer(), answer())  # an expired list is asked for twice
    async with client:
        with pytest.raises(error) as caught:
            await (client.list(SELECTION) if verb == "list" else watched(client))
    assert caught.value.verb == verb


async def test_a_missing_right_is_named_with_verb_and_resource() -> None:
    client, _ = scripted(status(403, message="pods is forbidden"))
    async with client:
        with pytest.raises(Forbidden) as caught:
            await client.list(SELECTION)
    assert str(caught.value) == (
        "no right to list pods in namespace 'ns': HTTP status 403: pods is forbidden"
    )


async def test_a_server_may_ask_for_a_pause() -> None:
    client, _ = scripted(status(503, retry_after="9"))
    async with client:
        with pytest.raises(Unavailable) as caught:
            await client.list(SELECTION)
    assert caught.value.retry_after == 9


async def test_a_long_pause_is_not_believed() -> None:
    client, _ = scripted(status(429, retry_after="86400"))
    async with client:
        with pytest.raises(Throttled) as caught:
            await client.list(SELECTION)
    assert caught.value.retry_after == 120


def rotating(script: Script, *tokens: str) -> Client:
    """A client whose credential is another one at each reading; the last one stays."""
    left = list(tokens)

    async def read() -> Access:
        token = left.pop(0) if len(left) > 1 else left[0]
        return Access("http://api", {"authorization": token})

    return Client(Login(read), Random(1), lambda _: script)


async def test_a_refused_credential_is_read_again_at_once() -> None:
    script = Script([status(401), page(pod("a"))])
    async with rotating(script, "old", "new") as client:
        assert names((await client.list(SELECTION)).objects) == ["a"]
    assert [r.headers["authorization"] for r in script.requests] == ["old", "new"]


async def test_a_credential_that_is_refused_twice_is_an_error() -> None:
    script = Script([status(401), status(401)])
    async with rotating(script, "old") as client:
        with pytest.raises(Unauthorized):
            await client.list(SELECTION)


async def test_a_changed_token_keeps_the_connection() -> None:
    script = Script([status(401), page()])
    async with rotating(script, "old", "new") as client:
        await client.list(SELECTION)
        assert script.closed == 0
    assert script.closed == 1


async def test_another_address_gets_another_connection(autojump_clock: MockClock) -> None:
    script = Script([page(), page()])
    hosts = ["http://one", "http://two"]

    async def read() -> Access:
        return Access(hosts.pop(0), good_for=60)

    async with Client(Login(read), random=None, open_transport=lambda _: script) as client:  # type: ignore[arg-type]
        await client.list(SELECTION)
        await trio.sleep(61)
        await client.list(SELECTION)
        assert script.closed == 1
    assert [request.url.host for request in script.requests] == ["one", "two"]


async def test_the_servers_other_name_is_asked_for() -> None:
    client, script = scripted(page(), access=Access("https://10.0.0.1", server_name="api.test"))
    async with client:
        await client.list(SELECTION)
    assert script.requests[0].extensions["sni_hostname"] == "api.test"


async def test_a_path_before_the_api_is_kept() -> None:
    client, script = scripted(page(), access=Access("https://rancher/k8s/clusters/c-1"))
    async with client:
        await client.list(SELECTION)
    assert script.requests[0].url.path == "/k8s/clusters/c-1/api/v1/namespaces/ns/pods"


def test_a_proxy_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(AccessError, match="proxy-url"):
        http_transport(Access("https://api", proxy="ftp://proxy"))


def test_dead_peers_are_noticed_by_the_kernel() -> None:
    assert {value for _, _, value in SOCKET_OPTIONS} == {1, 30, 10, 3, 60_000}


async def test_leaving_a_watch_early_closes_it_at_once() -> None:
    client, _ = scripted(stream(line("ADDED", pod("a")), 1e9))
    async with client:
        with trio.fail_after(1):
            assert len(await watched(client)) == 1


async def test_a_cancelled_watch_ends_at_once(nursery: trio.Nursery) -> None:
    client, _ = scripted(stream(line("ADDED", pod("a")), 1e9))
    with trio.CancelScope() as scope:
        nursery.start_soon(_cancel_when_blocked, scope)
        async with client:
            await watched(client, batches=2)
    assert scope.cancelled_caught


async def _cancel_when_blocked(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


def test_secrets_are_not_shown() -> None:
    access = Access("https://api", {"authorization": "s3cret"}, proxy="http://u:s3cret@proxy")
    assert "s3cret" not in repr(access)
    assert "s3cret" not in repr(evolve(access, host="x"))
