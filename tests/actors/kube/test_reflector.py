"""A set of objects that stays equal to the server's."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import httpx
import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from pointsman.actors.kube.access import Access, Login
from pointsman.actors.kube.client import Client
from pointsman.actors.kube.kinds import PODS, Pod, Selection
from pointsman.actors.kube.reflector import Changed, Gone, News, Reflector, Replace

from .scripts import Answer, Pieces, Script, line, many, page, pod, status, stream

RV = "resourceVersion"
ERROR_410 = {
    "kind": "Status",
    "code": 410,
    "reason": "Expired",
    "message": "too old resource version",
}


@define(eq=False)
class Followed:
    """A reflector that plays through a script, and what it made known."""

    script: Script
    reflector: Reflector[Pod] = field(init=False)
    told: list[str] = field(factory=list[str], init=False)
    pods: dict[str, str] = field(factory=dict[str, str], init=False)
    """The uids by name, as they follow from what was made known."""

    def reflect(self, *, optional: bool) -> None:
        async def read() -> Access:
            return Access("http://api")

        client = Client(Login(read), Random(1), lambda _: self.script)
        self.reflector = Reflector(
            Selection(PODS, "ns"), client, self.publish, Random(1), optional=optional
        )

    async def publish(self, news: News[Pod]) -> None:
        match news:
            case Replace(objects):
                self.pods = {one.metadata.name: one.metadata.uid for one in objects}
                self.told.append(f"={','.join(sorted(self.pods))}")
            case Changed(one):
                self.pods[one.metadata.name] = one.metadata.uid
                self.told.append(f"+{one.metadata.name}")
            case Gone(one):
                assert self.pods.pop(one.metadata.name) == one.metadata.uid
                self.told.append(f"-{one.metadata.name}")

    @property
    def verbs(self) -> str:
        """``L`` and ``W`` for the requests that were made."""
        return "".join("W" if "watch" in query else "L" for query in self.script.queries)


Play = Callable[..., Followed]


@pytest.fixture
async def play() -> AsyncGenerator[Play, None]:
    """Let a reflector meet these answers, one per request."""
    async with trio.open_nursery() as nursery:

        def play(*answers: Answer, optional: bool = False) -> Followed:
            followed = Followed(Script(list(answers)))
            followed.reflect(optional=optional)
            nursery.start_soon(followed.reflector.run)
            return followed

        yield play
        nursery.cancel_scope.cancel()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def absent() -> httpx.Response:
    return httpx.Response(404, stream=Pieces([b"404 page not found\n"]))


async def test_a_list_comes_first_and_is_watched_from_its_version(
    play: Play, autojump_clock: MockClock
) -> None:
    followed = play(page(pod("a"), version="41"), stream(line("ADDED", pod("b", 42)), 1e9))
    await followed.reflector.synced.until(True)
    await trio.sleep(1)
    assert followed.told == ["=a", "+b"]
    assert followed.script.queries[1][RV] == "41"


async def test_nothing_is_synced_before_the_list_is_published(
    play: Play, autojump_clock: MockClock
) -> None:
    followed = play(status(503), status(403), page())
    assert not followed.reflector.synced.value
    await followed.reflector.synced.until(True)
    assert followed.told == ["="]


async def test_a_watch_that_ran_its_time_is_resumed_where_it_ended(
    play: Play, autojump_clock: MockClock
) -> None:
    bookmark = {"metadata": {RV: "99", "creationTimestamp": None}}
    followed = play(
        page(version="10"),
        stream(line("ADDED", pod("a", 11)), line("BOOKMARK", bookmark), 360.0),
        stream(line("DELETED", pod("a", 100)), 360.0),
        stream(1e9),
    )
    await trio.sleep(1000)
    assert (followed.verbs, followed.told) == ("LWWW", ["=", "+a", "-a"])
    assert [query.get(RV) for query in followed.script.queries[1:]] == ["10", "99", "100"]


async def test_k_01_a_delete_that_was_missed_is_made_good_by_the_next_list(
    play: Play, autojump_clock: MockClock
) -> None:
    followed = play(
        page(pod("a"), pod("b"), version="10"), stream(), page(pod("a"), version="12"), stream(1e9)
    )
    await trio.sleep(1)
    assert followed.told == ["=a,b", "=a"]


@pytest.mark.parametrize(
    "end",
    [
        lambda: stream(20.0),
        lambda: stream(20.0, httpx.ReadError("reset")),
        lambda: stream(20.0, line("ADDED", pod("z", 11))[:40]),
        lambda: stream(20.0, b"\xff\xfe\n"),
        lambda: stream(20.0, line("ERROR", ERROR_410)),
        lambda: stream(20.0, line("ERROR", {"code": 500, "message": "etcd"})),
        lambda: status(410, "Gone"),
        lambda: status(500),
        lambda: httpx.ConnectError("refused"),
    ],
    ids=["early", "reset", "mid-line", "garbage", "410", "500", "http-410", "http-500", "refused"],
)
async def test_k_02_whatever_ends_a_watch_early_leads_to_a_list(
    play: Play, autojump_clock: MockClock, end: Callable[[], Answer]
) -> None:
    followed = play(page(pod("a")), end(), page(pod("b"), version="20"), stream(1e9))
    await trio.sleep(30)
    assert (followed.verbs, followed.told) == ("LWLW", ["=a", "=b"])
    assert followed.script.queries[-1][RV] == "20"


async def test_k_02_the_old_set_stays_while_the_server_is_gone(
    play: Play, autojump_clock: MockClock
) -> None:
    followed = play(
        page(pod("a")), stream(), *[httpx.ConnectError("refused")] * 20, page(), stream(1e9)
    )
    await trio.sleep(100)
    assert followed.told == ["=a"]
    assert followed.reflector.synced.value


async def test_a_server_that_fails_is_asked_less_and_less(
    play: Play, autojump_clock: MockClock
) -> None:
    followed = play(*many(1000, lambda: status(500)))
    await trio.sleep(600)
    gaps = [after - before for before, after in pairwise(followed.script.times)]
    assert gaps[0] <= 0.2
    assert all(15 <= gap <= 30 for gap in gaps[-10:])


async def test_watches_that_end_at_once_do_not_make_a_busy_loop(
    play: Play, autojump_clock: MockClock
) -> None:
    followed = play(*many(500, page, stream))
    await trio.sleep(3600)
    assert len(followed.script.requests) < 500


async def test_a_steady_watch_ends_a_row_of_failures(play: Play, autojump_clock: MockClock) -> None:
    followed = play(*many(10, lambda: status(500)), page(), stream(100.0), page(), stream(1e9))
    await trio.sleep(600)
    assert followed.verbs == "L" * 10 + "LWLW"
    before, after = followed.script.times[-3:-1]
    assert 100 < after - before < 101


async def test_a_retry_waits_as_long_as_the_server_asks(
    play: Play, autojump_clock: MockClock
) -> None:
    followed = play(status(429, retry_after="50"), page(), stream(1e9))
    await trio.sleep(49)
    assert followed.verbs == "L"
    await trio.sleep(2)
    assert followed.told == ["="]


async def test_a_silent_watch_is_given_up(play: Play, autojump_clock: MockClock) -> None:
    """The transport raises the time-out; here its length is checked."""
    followed = play(page(), stream(1e9))
    await trio.sleep(1)
    query = followed.script.queries[1]
    read = followed.script.requests[1].extensions["timeout"]["read"]
    assert read == int(query["timeoutSeconds"]) + 15


async def test_k_13_a_late_delete_of_an_earlier_pod_is_not_the_new_ones(
    play: Play, autojump_clock: MockClock
) -> None:
    followed = play(
        page(pod("s-0", uid="u1")),
        stream(
            line("ADDED", pod("s-0", 11, uid="u2")), line("DELETED", pod("s-0", 12, uid="u1")), 1e9
        ),
    )
    await trio.sleep(1)
    assert followed.pods == {"s-0": "u2"}


async def test_a_delete_of_what_was_never_known_tells_nobody(
    play: Play, autojump_clock: MockClock
) -> None:
    followed = play(page(), stream(line("DELETED", pod("a", 11)), 1e9))
    await trio.sleep(1)
    assert followed.told == ["="]


async def test_an_object_that_breaks_is_skipped_and_named_once(
    play: Play, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broken = pod("b", 11, podIP=7)
    followed = play(
        page(pod("a"), broken),
        stream(line("MODIFIED", broken), line("ADDED", pod("c", 12)), httpx.ReadError("")),
        page(pod("a"), broken, pod("c")),
        stream(1e9),
    )
    await trio.sleep(5)
    assert followed.told == ["=a", "+c", "=a,c"]
    assert set(followed.reflector.skipped) == {"b"}
    assert [w for w in warnings(caplog) if "'b'" in w] == warnings(caplog)
    assert len(warnings(caplog)) == 1


async def test_the_last_good_form_of_an_object_counts_on(
    play: Play, autojump_clock: MockClock
) -> None:
    followed = play(
        page(pod("a")),
        stream(line("MODIFIED", pod("a", 11, podIP=7)), httpx.ReadError("")),
        page(pod("a", podIP=7)),
        stream(1e9),
    )
    await trio.sleep(5)
    assert followed.told == ["=a", "=a"]


async def test_the_last_form_of_another_object_of_that_name_does_not_count(
    play: Play, autojump_clock: MockClock
) -> None:
    followed = play(
        page(pod("a", uid="u1")), stream(line("ADDED", pod("a", 11, uid="u2", podIP=7)), 1e9)
    )
    await trio.sleep(1)
    assert followed.told == ["=a", "-a"]


async def test_an_object_that_is_whole_again_is_no_longer_skipped(
    play: Play, autojump_clock: MockClock
) -> None:
    followed = play(page(pod("a", podIP=7)), stream(line("MODIFIED", pod("a", 11)), 1e9))
    await trio.sleep(1)
    assert (followed.told, followed.reflector.skipped) == (["=", "+a"], {})


async def test_a_broken_object_can_be_deleted(play: Play, autojump_clock: MockClock) -> None:
    followed = play(
        page(pod("a"), pod("b", podIP=7)),
        stream(line("DELETED", pod("a", 11, podIP=7)), line("DELETED", pod("b", 12, podIP=7)), 1e9),
    )
    await trio.sleep(1)
    assert (followed.told, followed.reflector.skipped) == (["=a", "-a"], {})


async def test_k_11_a_missing_right_is_said_once_and_asked_for_again(
    play: Play, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    forbidden = partial(status, 403, message="forbidden: User x")
    followed = play(*many(30, forbidden), page(), stream(1e9))
    await followed.reflector.synced.until(True)
    await trio.sleep(1)
    assert warnings(caplog) == [
        "no right to list pods in namespace 'ns': HTTP status 403: forbidden: User x"
    ]
    assert caplog.records[-1].message == "pods in namespace 'ns' are followed again"


async def test_a_missing_right_to_watch_leaves_the_list(
    play: Play, autojump_clock: MockClock
) -> None:
    followed = play(page(pod("a")), status(403), page(pod("b")), status(403), page(), stream(1e9))
    await trio.sleep(5)
    assert followed.told == ["=a", "=b", "="]


async def test_another_fault_is_another_word(
    play: Play, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    play(status(500), status(500), status(403), status(403), page(), stream(1e9))
    await trio.sleep(10)
    assert [w.split(" pods")[0] for w in warnings(caplog)] == ["cannot list", "no right to list"]


async def test_a_watch_that_breaks_once_in_a_while_is_not_worth_a_word(
    play: Play, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    play(*many(5, page, lambda: stream(60.0)), page(), stream(1e9))
    await trio.sleep(600)
    assert warnings(caplog) == []


async def test_watches_that_break_again_and_again_are_said_once(
    play: Play, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    play(*many(60, page, stream))
    await trio.sleep(600)
    assert len(warnings(caplog)) == 1


async def test_k_11_an_optional_kind_that_is_absent_has_no_objects(
    play: Play, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    followed = play(*many(100, absent), optional=True)
    await followed.reflector.synced.until(True)
    await trio.sleep(600)
    assert (followed.told, followed.reflector.installed.value) == (["="], False)
    assert [record.message for record in caplog.records] == ["pods is not installed"]
    assert 9 <= len(followed.script.requests) <= 12


async def test_an_optional_kind_is_noticed_when_it_is_installed(
    play: Play, autojump_clock: MockClock
) -> None:
    followed = play(absent(), absent(), page(pod("a")), stream(1e9), optional=True)
    await trio.sleep(140)
    assert (followed.told, followed.reflector.installed.value) == (["=", "=a"], True)


async def test_a_kind_that_is_missing_for_a_moment_keeps_its_objects(
    play: Play, autojump_clock: MockClock
) -> None:
    missing = many(5, absent)
    followed = play(page(pod("a")), stream(), *missing, page(pod("a")), stream(1e9), optional=True)
    await trio.sleep(30)
    assert followed.told == ["=a", "=a"]


async def test_a_kind_that_is_missing_for_long_loses_its_objects(
    play: Play, autojump_clock: MockClock
) -> None:
    missing = many(200, absent)
    followed = play(page(pod("a")), stream(), *missing, optional=True)
    await trio.sleep(120)
    assert (followed.told, followed.reflector.installed.value) == (["=a", "="], False)


async def test_a_kind_that_must_be_there_is_only_unavailable_when_it_is_missing(
    play: Play, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    followed = play(*many(9, absent), page(pod("a")), stream(1e9))
    await trio.sleep(120)
    assert followed.told == ["=a"]
    assert len(warnings(caplog)) == 1


async def test_the_age_is_that_of_the_last_word(play: Play, autojump_clock: MockClock) -> None:
    followed = play(page(), stream(5.0, line("ADDED", pod("a", 11)), 1e9))
    await trio.sleep(4)
    assert 3.9 < followed.reflector.age < 4.1
    await trio.sleep(3)
    assert 1.9 < followed.reflector.age < 2.1


async def test_the_age_grows_while_nobody_answers(play: Play, autojump_clock: MockClock) -> None:
    followed = play(*[httpx.ConnectError("refused")] * 100)
    await trio.sleep(500)
    assert followed.reflector.age == pytest.approx(500)


async def test_an_absent_kind_is_in_touch(play: Play, autojump_clock: MockClock) -> None:
    followed = play(*many(100, absent), optional=True)
    await trio.sleep(500)
    assert followed.reflector.age < 70


async def test_a_new_run_lists_anew(autojump_clock: MockClock) -> None:
    followed = Followed(Script([page(pod("a")), stream(1e9), page(pod("b")), stream(1e9)]))
    followed.reflect(optional=False)
    for _ in range(2):
        with trio.move_on_after(5):
            await followed.reflector.run()
    assert followed.told == ["=a", "=b"]


async def test_a_publisher_that_fails_ends_the_run(autojump_clock: MockClock) -> None:
    followed = Followed(Script([page(pod("a")), stream(1e9)]))
    followed.reflect(optional=False)

    async def publish(_news: Any) -> None:
        raise LookupError

    followed.reflector.publish = publish
    with pytest.raises(LookupError):
        await followed.reflector.run()
    assert followed.script.closed == 1


async def test_a_slow_publisher_slows_the_watch_and_loses_nothing(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    lines = b"".join(line("ADDED", pod(f"p-{n}", 11 + n)) for n in range(20))
    followed = Followed(Script([page(), stream(lines, 1e9)]))
    followed.reflect(optional=False)
    quick = followed.reflector.publish

    async def slow(news: News[Pod]) -> None:
        await trio.sleep(1)
        await quick(news)

    followed.reflector.publish = slow
    nursery.start_soon(followed.reflector.run)
    await trio.sleep(30)
    assert len(followed.pods) == 20
    nursery.cancel_scope.cancel()
