"""The store: revisions, selections, lists as of an earlier time, cursors."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.sim.kube.admission import Write
from pointsman.actors.sim.kube.cursors import Cursor
from pointsman.actors.sim.kube.failures import ApiError
from pointsman.actors.sim.kube.kinds import NAMESPACES, PODS
from pointsman.actors.sim.kube.log import EventLog
from pointsman.actors.sim.kube.objects import Object, key_of, name_of, uid_of, version_of
from pointsman.actors.sim.kube.patches import merge_patch
from pointsman.actors.sim.kube.samples import pod
from pointsman.actors.sim.kube.selectors import Selection, parse_labels
from pointsman.actors.sim.kube.store import Deletion, Place, Store

from .kit import EPOCH

WHOLE = Write(whole=True)
APP = Selection("", parse_labels("app=a"))


def new_store(keep: int = 10_000) -> Store:
    return Store(lambda: EPOCH, Random(3), log=EventLog(keep))


@pytest.fixture
def store() -> Store:
    return new_store()


def labelled(name: str, app: str = "a") -> Object:
    return pod(name, ip="10.0.0.1", labels={"app": app})


def relabel(store: Store, name: str, app: str) -> Object:
    patch = merge_patch({"metadata": {"labels": {"app": app}}})
    return store.patch(PODS, ("default", name), patch)


def told(cursor: Cursor) -> list[tuple[str, str]]:
    return [(change.type, name_of(change.object)) for change in cursor.read()]


def code(action: Callable[[], object]) -> int:
    with pytest.raises(ApiError) as refused:
        action()
    return refused.value.code


def test_every_change_has_a_revision_of_its_own(store: Store) -> None:
    before = store.revision
    versions = [version_of(store.create(PODS, labelled(name))) for name in "ab"]
    versions.append(version_of(relabel(store, "a", "b")))
    versions.append(version_of(store.delete(PODS, ("default", "a"), Deletion(grace=0))))
    assert versions == [str(before + number) for number in range(1, 5)]


def test_a_change_that_changes_nothing_is_none(store: Store) -> None:
    created = store.create(PODS, labelled("a"))
    before = store.revision
    assert relabel(store, "a", "a") == created
    assert store.update(PODS, created) == created
    assert store.revision == before


def test_what_was_handed_in_and_out_is_not_changed_later(store: Store) -> None:
    given_in = labelled("a")
    first = store.create(PODS, given_in)
    relabel(store, "a", "b")
    given_in["metadata"]["labels"]["app"] = "c"
    assert first["metadata"]["labels"] == {"app": "a"}
    assert store.get(PODS, ("default", "a"))["metadata"]["labels"] == {"app": "b"}


def test_a_client_cannot_choose_a_uid_and_the_world_can(store: Store) -> None:
    mine = labelled("a") | {"metadata": {"name": "a", "namespace": "default", "uid": "u-1"}}
    assert uid_of(store.create(PODS, mine)) != "u-1"
    mine["metadata"]["name"] = "b"
    assert uid_of(store.create(PODS, mine, WHOLE)) == "u-1"


def test_the_same_seed_gives_the_same_uids() -> None:
    first, second = (new_store().create(PODS, labelled("a")) for _ in range(2))
    assert first == second


def test_a_list_is_ordered_by_namespace_and_name(store: Store) -> None:
    store.create(NAMESPACES, {"metadata": {"name": "aaa"}})
    for name in "cab":
        store.create(PODS, labelled(name))
    store.create(PODS, pod("z", ip="10.0.0.1", namespace="aaa"))
    keys = [key_of(obj) for obj in store.collect(PODS).items]
    assert keys == [("aaa", "z"), ("default", "a"), ("default", "b"), ("default", "c")]


def test_pages_of_a_list_are_of_one_moment(store: Store) -> None:
    for name in "abcd":
        store.create(PODS, labelled(name))
    first = store.collect(PODS, limit=2)
    assert first.rest is not None
    relabel(store, "c", "b")
    store.delete(PODS, ("default", "d"), Deletion(grace=0))
    store.create(PODS, labelled("e"))
    second = store.collect(PODS, limit=2, place=first.rest)
    assert [name_of(obj) for obj in first.items + second.items] == ["a", "b", "c", "d"]
    assert second.items[0]["metadata"]["labels"] == {"app": "a"}
    assert (second.revision, second.rest) == (first.revision, None)
    assert (first.remaining, second.remaining) == (2, 0)


def test_a_page_of_a_forgotten_moment_is_gone(store: Store) -> None:
    for name in "ab":
        store.create(PODS, labelled(name))
    page = store.collect(PODS, limit=1)
    relabel(store, "a", "b")
    store.compact()
    assert code(lambda: store.collect(PODS, limit=1, place=page.rest)) == 410


def test_a_moment_that_has_not_come_is_refused(store: Store) -> None:
    future = store.revision + 1
    assert code(lambda: store.watch(PODS, revision=future)) == 504
    assert code(lambda: store.collect(PODS, place=Place(revision=future))) == 504


def test_a_cursor_without_a_revision_begins_with_what_is_there(store: Store) -> None:
    store.create(PODS, labelled("a"))
    cursor = store.watch(PODS)
    store.create(PODS, labelled("b"))
    assert told(cursor) == [("ADDED", "a"), ("ADDED", "b")]
    assert told(cursor) == []


def test_a_cursor_with_a_revision_tells_what_followed(store: Store) -> None:
    store.create(PODS, labelled("a"))
    cursor = store.watch(PODS, revision=store.revision)
    store.create(PODS, labelled("b"))
    relabel(store, "a", "b")
    store.delete(PODS, ("default", "b"), Deletion(grace=0))
    assert told(cursor) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]


def test_leaving_a_selection_is_a_deletion_and_entering_an_addition(store: Store) -> None:
    store.create(PODS, labelled("a"))
    cursor = store.watch(PODS, APP, store.revision)
    relabel(store, "a", "b")
    (left,) = cursor.read()
    assert (left.type, left.object["metadata"]["labels"]) == ("DELETED", {"app": "a"})
    assert version_of(left.object) == str(store.revision)
    relabel(store, "a", "a")
    (entered,) = cursor.read()
    assert (entered.type, version_of(entered.object)) == ("ADDED", str(store.revision))


def test_what_was_never_selected_is_not_told(store: Store) -> None:
    cursor = store.watch(PODS, APP, store.revision)
    store.create(PODS, labelled("a", "b"))
    relabel(store, "a", "c")
    store.delete(PODS, ("default", "a"), Deletion(grace=0))
    store.create(NAMESPACES, {"metadata": {"name": "other"}})
    assert told(cursor) == []


def test_a_cursor_that_fell_behind_a_compaction_has_lost_its_place(store: Store) -> None:
    cursor, reader = (store.watch(PODS, revision=store.revision) for _ in range(2))
    store.create(PODS, labelled("a"))
    assert told(reader) == [("ADDED", "a")]
    store.compact()
    assert code(lambda: told(cursor)) == 410
    store.create(PODS, labelled("b"))
    assert told(reader) == [("ADDED", "b")]


def test_a_bookmark_waits_for_something_newer_than_the_start(store: Store) -> None:
    store.create(PODS, labelled("a"))
    cursor = store.watch(PODS, APP, store.revision)
    store.create(NAMESPACES, {"metadata": {"name": "other"}})
    assert told(cursor) == []
    assert cursor.bookmark is None
    unseen = store.create(PODS, labelled("b", "b"))
    assert told(cursor) == []
    bookmark = cursor.bookmark
    assert bookmark is not None
    assert version_of(bookmark.object) == version_of(unseen)


def test_the_log_keeps_a_number_of_changes_and_forgets_the_rest() -> None:
    store = new_store(keep=10)
    start = store.revision
    for number in range(30):
        store.create(PODS, labelled(f"p-{number}"))
    assert code(lambda: told(store.watch(PODS, revision=start))) == 410
    assert len(told(store.watch(PODS, revision=store.revision - 10))) == 10


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["create", "relabel", "delete", "poll", "relist", "compact"]),
        st.sampled_from("abc"),
        st.sampled_from("ab"),
    ),
    max_size=40,
)


def act(store: Store, action: str, name: str, app: str) -> None:
    present = ("default", name) in store.objects(PODS)
    if action == "create" and not present:
        store.create(PODS, labelled(name, app))
    elif action == "relabel" and present:
        relabel(store, name, app)
    elif action == "delete" and present:
        store.delete(PODS, ("default", name), Deletion(grace=0))


def listed(store: Store) -> dict[str, Any]:
    return {name_of(obj): obj for obj in store.collect(PODS, APP).items}


def follow(cursor: Cursor, mirror: dict[str, Any]) -> None:
    for change in cursor.read():
        name = name_of(change.object)
        assert (name in mirror) is (change.type != "ADDED")
        if change.type == "DELETED":
            del mirror[name]
        else:
            mirror[name] = change.object


@given(ACTIONS)
def test_a_follower_of_a_watch_ends_with_what_a_list_shows(
    actions: list[tuple[str, str, str]],
) -> None:
    store = new_store()
    mirror: dict[str, Any] = {}
    cursor = store.watch(PODS, APP)
    for action, name, app in actions:
        act(store, action, name, app)
        if action == "poll":
            follow(cursor, mirror)
        elif action == "compact":
            follow(cursor, mirror)
            store.compact()
        elif action == "relist":
            cursor, mirror = store.watch(PODS, APP, store.revision), listed(store)
    follow(cursor, mirror)
    assert mirror == listed(store)


@given(ACTIONS, ACTIONS)
def test_a_list_as_of_an_earlier_time_is_the_list_of_that_time(
    before: list[tuple[str, str, str]], after: list[tuple[str, str, str]]
) -> None:
    store = new_store()
    for action, name, app in before:
        act(store, action, name, app)
    then, revision = store.collect(PODS, APP), store.revision
    for action, name, app in after:
        act(store, action, name, app)
    assert store.collect(PODS, APP, place=Place(revision=revision)).items == then.items
