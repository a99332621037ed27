"""What is told of the calls of plugins: where each took how long, and what went wrong in it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import pytest

from pointsman.kernel.keys import DataView, keys
from pointsman.kernel.model import REQUEST_PATH, Endpoint, Headers, Parsed
from pointsman.kernel.plugin import Results
from pointsman.kernel.testing import decide, endpoints, make_request, pool

from . import zoo
from .call_notes import noted
from .zoo import END, NOTE, TEXT, always, failing, listing

POOL: Final = pool(endpoints("a", "b"))


class Everything:
    """Has every role in which a plugin meets a request."""

    type_name = "everything"
    deciders = ("decider",)

    def on_request(self, data: DataView) -> None: ...

    def screen(self, data: DataView, given: Sequence[Endpoint]) -> Sequence[bool]:
        return [True] * len(given)

    def produce(self, data: DataView, given: Sequence[Endpoint]) -> None: ...

    def admit(self, data: DataView, given: Sequence[Endpoint]) -> None: ...

    def profiles(self, data: DataView, known: Sequence[str], results: Results) -> Sequence[str]:
        return [] if results else known

    def primary(self, data: DataView, results: Results) -> str:
        data.ask("decider", None)
        return next(iter(results))

    def destination(self, data: DataView, endpoint: Endpoint) -> str:
        return endpoint.host_port

    def keep(self, data: DataView, given: Sequence[Endpoint]) -> Sequence[bool]:
        return [True] * len(given)

    def score(self, data: DataView, given: Sequence[Endpoint]) -> Sequence[float]:
        return [1.0] * len(given)

    def pick(
        self, data: DataView, given: Sequence[Endpoint], scores: Sequence[float]
    ) -> Sequence[Endpoint]:
        return given[:1]

    def before_request(self, data: DataView, result: object) -> None: ...

    def on_response_headers(self, data: DataView, result: object) -> None: ...

    def on_response_chunk(self, data: DataView, chunk: bytes) -> None: ...

    def on_response_end(self, data: DataView, end: object) -> None: ...


class Decider:
    type_name = "decider"

    def disaggregate(self, data: DataView, endpoint: Endpoint | None) -> bool:
        return False


def test_every_call_is_told_with_its_extension_point() -> None:
    wiring, notes = noted(
        "plugins: [{type: everything}, {type: decider}]\n"
        "schedulingProfiles: [{name: p, plugins: [{pluginRef: everything}]}]",
        Everything,
        Decider,
    )
    outcome = decide(wiring, POOL)
    wiring.director.response_headers(outcome, Headers({}))
    wiring.director.response_chunk(outcome, b"")
    wiring.director.response_end(outcome, END)
    assert notes["everything"].points == [
        "RequestHeader",
        "Screener",
        "DataProducer",
        "Admission",
        "ProfilePicker",
        "Filter",
        "Scorer",
        "Picker",
        "ProfilePicker",
        "ProcessProfilesResults",
        "ProcessProfilesResults",
        "PreRequest",
        "ResponseReceived",
        "ResponseStreaming",
        "ResponseComplete",
    ]
    assert notes["decider"].points == ["Decider"]
    assert min(seconds for _, seconds in notes["everything"].times) >= 0


def test_a_call_that_fails_takes_its_time_too() -> None:
    classes = [zoo.admitter("broken", failing), zoo.scorer("odd", always([0.0]))]
    wiring, notes = noted(listing(*classes), *classes)
    decide(wiring, POOL)
    assert (notes["broken"].points, notes["broken"].failures) == (["Admission"], ["Admission"])
    assert (notes["odd"].points, notes["odd"].failures) == (["Scorer"], ["Scorer"])


async def test_a_producer_that_waits_takes_its_time_until_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("pointsman.kernel.keys.perf_counter", lambda: now[0])

    async def slow(data: DataView) -> None:
        now[0] += 3.0

    classes = [zoo.waiting("slow", slow, keys(TEXT))]
    wiring, notes = noted(listing(*classes), *classes)
    request = make_request()
    await wiring.director.decide(request, Parsed(), POOL)
    assert notes["slow"].times == [("DataProducer", 3.0)]


def test_what_is_not_declared_is_neither_read_nor_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def nosy(data: DataView, given: Sequence[Endpoint]) -> None:
        data[NOTE] = "mine"

    classes: list[type[Any]] = [
        zoo.admitter("nosy", lambda data, given: data[REQUEST_PATH]),
        zoo.producer("pushy", nosy, keys(TEXT)),
    ]
    wiring, notes = noted(listing(*classes), *classes)
    with caplog.at_level(logging.WARNING):
        decide(wiring, POOL)
    assert notes["pushy"].violations == [("DataProducer", "note", "write")]
    assert notes["nosy"].violations == [("Admission", "request-path", "read")]
    assert notes["pushy"].failures == ["DataProducer"]
    assert notes["nosy"].failures == ["Admission"]
    assert [record.getMessage() for record in caplog.records] == [
        "plugin pushy fails as DataProducer, its contribution is dropped: "
        "plugin 'pushy' tried to write 'note' without declaring it",
        "plugin nosy fails as Admission, its contribution is dropped: "
        "plugin 'nosy' tried to read 'request-path' without declaring it",
    ]
