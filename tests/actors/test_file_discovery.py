"""Endpoints from a file, watched under a virtual clock."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import define
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from pointsman.actors.file_discovery import (
    SIZE_LIMIT,
    FileDiscovery,
    read_endpoints,
    read_text,
)
from pointsman.kernel.datastore import Change, EndpointSpec, ReplaceEndpoints
from pointsman.kernel.errors import ConfigError
from pointsman.kernel.mailbox import Mailbox

ONE = "endpoints:\n- {name: a, address: 10.0.0.1, port: '8000'}\n"
TWO = ONE + "- {name: b, address: 10.0.0.2, port: '8001'}\n"
LONG_ENOUGH = 2.0  # seconds: a look, a second one that finds the file settled, and some more


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "endpoints.yaml"
    path.write_text(ONE)
    return path


@define(eq=False)
class Feed:
    """What file discovery has said so far."""

    inbox: Mailbox[Change]
    discovery: FileDiscovery

    def news(self) -> list[list[str]]:
        """The names of each whole set that came since the last call."""
        return [[spec.name for spec in specs] for specs in self.sets()]

    def sets(self) -> list[Sequence[EndpointSpec]]:
        return [self._next() for _ in range(len(self.inbox))]

    def _next(self) -> Sequence[EndpointSpec]:
        envelope = self.inbox._channel.receiver.poll()
        assert envelope is not None
        assert isinstance(envelope.message, ReplaceEndpoints)
        return envelope.message.endpoints


@asynccontextmanager
async def feeding(path: Path, *, watch: bool = True) -> AsyncGenerator[Feed]:
    with Mailbox[Change].open("datastore", capacity=100) as inbox:
        discovery = FileDiscovery(path, watch, inbox.address)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(discovery.run)
            await anyio.sleep(0.01)
            yield Feed(inbox, discovery)
            tasks.cancel_scope.cancel()


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


# -- reading --------------------------------------------------------------------------------------


def read(text: str) -> list[EndpointSpec]:
    specs, document = read_endpoints(text, "e.yaml")
    document.refuse_if_mistaken()
    return specs


def test_an_entry_says_all_there_is_to_say() -> None:
    text = "endpoints: [{name: a, namespace: x, address: 10.0.0.1, port: '8000', labels: {k: v}}]"
    (spec,) = read(text)
    assert spec == EndpointSpec(
        uid="x/a", name="a", namespace="x", address="10.0.0.1", port=8000, labels={"k": "v"}
    )


def test_the_namespace_is_default_when_left_out() -> None:
    (spec,) = read(ONE)
    assert spec.id == "default/a"


def test_the_file_may_be_json() -> None:
    entry = {"name": "a", "address": "10.0.0.1", "port": "8000"}
    assert read(json.dumps({"endpoints": [entry]})) == read(ONE)


@pytest.mark.parametrize("address", ["fd00::7", "::1", "2001:db8:0:0::1"])
def test_an_address_may_be_ipv6(address: str) -> None:
    (spec,) = read(f"endpoints: [{{name: a, address: '{address}', port: '1'}}]")
    assert spec.address == address


def test_an_empty_list_is_a_list() -> None:
    assert read("endpoints: []") == []


BAD_ENTRIES = {
    "{address: 10.0.0.1, port: '1'}": "endpoints[1].name: is required",
    "{name: '', address: 10.0.0.1, port: '1'}": "endpoints[1].name: must not be empty",
    "{name: b, port: '1'}": "endpoints[1].address: is required",
    "{name: b, address: host, port: '1'}": "endpoints[1].address: must be a literal IP",
    "{name: b, address: 10.0.0, port: '1'}": "endpoints[1].address: must be a literal IP",
    "{name: b, address: '[::1]', port: '1'}": "endpoints[1].address: must be a literal IP",
    "{name: b, address: 'fe80::1%eth0', port: '1'}": "endpoints[1].address: must be a literal IP",
    "{name: b, address: 10.0.0.1}": "endpoints[1].port: is required",
    "{name: b, address: 10.0.0.1, port: 8000}": "endpoints[1].port: must be a text, not 8000",
    "{name: b, address: 10.0.0.1, port: '0'}": "endpoints[1].port: must be a port number",
    "{name: b, address: 10.0.0.1, port: '65536'}": "endpoints[1].port: must be a port number",
    "{name: b, address: 10.0.0.1, port: 'x'}": "endpoints[1].port: must be a port number",
    "{name: b, address: 10.0.0.1, port: '²'}": "endpoints[1].port: must be a port number",
    "{name: b, address: 10.0.0.1, port: '1', label: {}}": "endpoints[1].label: unknown field",
    "{name: b, address: 10.0.0.1, port: '1', labels: {a: 1}}": "endpoints[1].labels",
    "5": "endpoints[1]: must be a mapping, not 5",
    "{name: a, address: 10.0.0.9, port: '1'}": "endpoints[1]: endpoint default/a is listed twice",
}


@pytest.mark.parametrize(("entry", "complaint"), BAD_ENTRIES.items())
def test_a_bad_entry_costs_itself_only_and_is_named(entry: str, complaint: str) -> None:
    text = f"{ONE}- {entry}\n- {{name: z, address: 10.0.0.3, port: '1'}}\n"
    specs, document = read_endpoints(text, "e.yaml")
    assert {"a", "z"} <= {spec.name for spec in specs}
    assert str(document.mistakes[0]).startswith(f"line 3: {complaint}")


def test_a_name_may_stand_in_two_namespaces() -> None:
    more = "- {name: a, namespace: other, address: 10.0.0.2, port: '1'}\n"
    assert [spec.id for spec in read(ONE + more)] == ["default/a", "other/a"]


NO_LISTS = ["endpoints", "endpoints:", "endpoints: 5", "endpoints: {}", "[]", "{}", "endpoint: []"]
NO_YAML = ['endpoints: [{name: "', "\0", "a: b: c", "[" * 600]


@pytest.mark.parametrize("text", ["", *NO_LISTS, *NO_YAML])
def test_a_text_that_is_no_list_of_endpoints_is_refused_whole(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^e\.yaml: "):
        read_endpoints(text, "e.yaml")


scalars = st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["10.0.0.1", "1"])
names = st.sampled_from(["endpoints", "name", "namespace", "address", "port", "labels", "x"])
trees: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(names, inner), max_leaves=12
)
entries = st.dictionaries(names, trees)


@given(st.text() | trees.map(json.dumps) | entries.map(lambda e: json.dumps({"endpoints": [e]})))
def test_no_text_makes_reading_fail_otherwise(text: str) -> None:
    with suppress(ConfigError):
        read_endpoints(text, "e.yaml")


# -- the file -------------------------------------------------------------------------------------


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "missing.yaml"
    with pytest.raises(ConfigError, match=r"missing\.yaml: No such file or directory"):
        read_text(path)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        read_text(tmp_path)


def test_a_file_that_is_no_text_is_refused(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="no UTF-8 text"):
        read_text(path)


def test_the_size_of_a_file_is_limited(path: Path) -> None:
    path.write_text(ONE + "#" * (SIZE_LIMIT - len(ONE)))
    assert len(read_text(path)) == SIZE_LIMIT
    path.write_text(ONE + "#" * (SIZE_LIMIT - len(ONE) + 1))
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        read_text(path)


async def test_the_first_read_refuses_a_missing_file(tmp_path: Path) -> None:
    with Mailbox[Change].open("datastore", capacity=1) as inbox:
        discovery = FileDiscovery(tmp_path / "missing.yaml", True, inbox.address)
        with pytest.raises(ConfigError, match="No such file"):
            discovery.read()


async def test_the_first_read_takes_the_good_entries_of_a_file_with_bad_ones(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(ONE + "- {name: b}\n")
    with Mailbox[Change].open("datastore", capacity=1) as inbox:
        discovery = FileDiscovery(path, True, inbox.address)
        assert [spec.name for spec in discovery.read()] == ["a"]
        assert [spec.name for spec in discovery.read()] == ["a"]
    (complaint,) = complaints(caplog)
    assert "line 3: endpoints[1].address: is required" in complaint


# -- watching -------------------------------------------------------------------------------------


async def test_the_endpoints_are_delivered_at_once(path: Path, autojump_clock: MockClock) -> None:
    async with feeding(path) as feed:
        assert feed.news() == [["a"]]


async def test_a_file_that_does_not_change_is_delivered_once(
    path: Path, autojump_clock: MockClock
) -> None:
    async with feeding(path) as feed:
        await anyio.sleep(60)
        assert feed.news() == [["a"]]


async def test_a_file_that_is_not_watched_is_read_once(
    path: Path, autojump_clock: MockClock
) -> None:
    async with feeding(path, watch=False) as feed:
        path.write_text(TWO)
        await anyio.sleep(60)
        assert feed.news() == [["a"]]


async def test_a_changed_file_is_taken_in(path: Path, autojump_clock: MockClock) -> None:
    async with feeding(path) as feed:
        path.write_text(TWO)
        await anyio.sleep(LONG_ENOUGH)
        assert feed.news() == [["a"], ["a", "b"]]


async def test_a_file_that_is_being_written_is_left_alone(
    path: Path, autojump_clock: MockClock
) -> None:
    async with feeding(path) as feed:
        feed.news()
        for end in range(len(ONE), len(TWO)):
            path.write_text(TWO[:end])
            await anyio.sleep(0.4)
        assert feed.news() == []
        path.write_text(TWO)
        await anyio.sleep(LONG_ENOUGH)
        assert feed.news() == [["a", "b"]]


@pytest.mark.parametrize(
    "torn", ["endpoints:\n", "endpoints:\n- {name: b, addr", "", "endpoints: 1"]
)
async def test_a_half_written_file_keeps_the_last_good_set_and_says_so_once(
    path: Path, torn: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with feeding(path) as feed:
        feed.news()
        path.write_text(torn)
        await anyio.sleep(60)
        assert feed.news() == []
        (complaint,) = complaints(caplog)
        assert complaint.startswith("the endpoints stay as they were: ")
        assert str(path) in complaint
        path.write_text(TWO)
        await anyio.sleep(LONG_ENOUGH)
        assert feed.news() == [["a", "b"]]


async def test_a_deleted_file_keeps_the_last_good_set_until_it_is_back(
    path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with feeding(path) as feed:
        feed.news()
        path.unlink()
        await anyio.sleep(60)
        assert feed.news() == []
        assert len(complaints(caplog)) == 1
        path.write_text(TWO)
        await anyio.sleep(LONG_ENOUGH)
        assert feed.news() == [["a", "b"]]


async def test_endpoints_that_are_not_listed_any_more_are_gone(
    path: Path, autojump_clock: MockClock
) -> None:
    path.write_text(TWO)
    async with feeding(path) as feed:
        path.write_text("endpoints: []")
        await anyio.sleep(LONG_ENOUGH)
        assert feed.news() == [["a", "b"], []]


async def test_an_atomic_replacement_is_taken_in(path: Path, autojump_clock: MockClock) -> None:
    async with feeding(path) as feed:
        new = path.with_name("new")
        new.write_text(TWO)
        new.replace(path)
        await anyio.sleep(LONG_ENOUGH)
        assert feed.news() == [["a"], ["a", "b"]]


async def test_a_symlink_swap_as_kubelet_does_it_is_taken_in(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The file is a link into ..data, which is a link to a directory with a time in its name."""
    for name, text in (("..1", ONE), ("..2", TWO)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "endpoints.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("..1")
    path = tmp_path / "endpoints.yaml"
    path.symlink_to("..data/endpoints.yaml")
    async with feeding(path) as feed:
        (tmp_path / "..data_tmp").symlink_to("..2")
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")
        await anyio.sleep(LONG_ENOUGH)
        assert feed.news() == [["a"], ["a", "b"]]


async def test_a_bad_entry_that_appears_later_costs_itself_only(
    path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with feeding(path) as feed:
        path.write_text(TWO + "- {name: c, address: nowhere, port: '1'}\n")
        await anyio.sleep(30)
        assert feed.news() == [["a"], ["a", "b"]]
        (complaint,) = complaints(caplog)
        assert "line 4: endpoints[2].address: must be a literal IP address" in complaint
