"""What the plugins make it necessary to look at, and who hears of what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import pytest

from pointsman.kernel.keys import Consumes, DataView, EventKey, Key, Keys, keys, on
from pointsman.kernel.model import (
    KV_CACHE_USAGE,
    MODEL_NAME,
    POD_ADDED,
    POD_DELETED,
    RESPONSE_CHUNK,
    RESPONSE_HEADERS,
    RESPONSE_USAGE,
    WAITING_QUEUE_SIZE,
    Parsed,
    PodAdded,
    PodDeleted,
)
from pointsman.kernel.testing import decide, endpoints, pool, wired

from . import zoo
from .zoo import (
    NOTE,
    TEXT,
    always,
    giving,
    listed,
    listing,
    producer,
    reader,
    scorer,
)

POOL: Final = pool(endpoints("a", "b"), {WAITING_QUEUE_SIZE: [1.0, 2.0]})


class Ears:
    type_name: ClassVar = "ears"

    @on(POD_ADDED)
    def arrived(self, event: PodAdded) -> None: ...

    @on(POD_DELETED)
    def left(self, event: PodDeleted) -> None: ...


class DeclaredEars(Ears):
    """Says in `consumes`, too, what it listens to."""

    consumes: ClassVar = Consumes(POD_DELETED)


@pytest.mark.parametrize(
    ("plugin_class", "choice", "topics"),
    [
        (Ears, "", ["pod-added", "pod-deleted"]),
        (DeclaredEars, "", ["pod-added", "pod-deleted"]),
        (Ears, ", consumes: [pod-deleted]", ["pod-deleted"]),
        (DeclaredEars, ", consumes: [pod-deleted]", ["pod-deleted"]),
        (Ears, ", consumes: []", []),
    ],
)
def test_the_configuration_may_narrow_what_a_plugin_hears(
    plugin_class: type[Any], choice: str, topics: list[str]
) -> None:
    wiring = wired(f"plugins: [{{type: ears{choice}}}]", plugin_class)
    assert [one.topic for one in wiring.listeners] == topics
    assert {one.installed for one in wiring.listeners} <= {wiring.installed["ears"]}


def test_without_consumers_nothing_is_looked_at() -> None:
    processing = wired("requestHandler: {parsers: [{pluginRef: passthrough-parser}]}").processing
    assert not processing.body
    assert not processing.response
    assert not processing.response_end
    assert processing.endpoint_values == frozenset()


@pytest.mark.parametrize(
    ("key", "what"),
    [
        (RESPONSE_HEADERS, "response_headers"),
        (RESPONSE_CHUNK, "response_chunks"),
        (RESPONSE_USAGE, "usage"),
    ],
)
def test_a_consumed_key_of_the_response_makes_it_pass_by(key: Key, what: str) -> None:
    processing = listed(zoo.on_response_end("end", always(None), Consumes(key))).processing
    assert processing.response
    assert processing.response_end
    observed = ("response_headers", "response_chunks", "usage")
    assert [one for one in observed if getattr(processing, one)] == [what]


def test_a_role_in_the_response_makes_it_pass_by() -> None:
    assert listed(zoo.on_response_headers("h", always(None))).processing.response_headers
    assert listed(zoo.on_response_chunk("c", always(None))).processing.response_chunks


def test_only_what_is_read_is_asked_of_endpoints() -> None:
    queue = scorer("queue", always([0, 0]), Consumes(WAITING_QUEUE_SIZE))
    wiring = listed(queue)
    assert wiring.processing.endpoint_values == {"waiting-queue-size"}
    ((extraction,),) = (one.extractions for one in wiring.collections)
    assert extraction.names == {WAITING_QUEUE_SIZE: "waiting-queue-size"}


def test_a_source_that_nobody_wants_anything_of_fetches_nothing() -> None:
    (collection,) = wired("").collections
    assert collection.extractions == ()


def test_what_a_producer_writes_per_endpoint_is_asked_of_nobody() -> None:
    own = producer(
        "own", lambda data, given: data.__setitem__(KV_CACHE_USAGE, [0, 1]), keys(KV_CACHE_USAGE)
    )
    user = scorer("user", lambda data, given: data[KV_CACHE_USAGE], Consumes(KV_CACHE_USAGE))
    text = f"{listing(own, user)}dataLayer: {{injectDefaults: false}}"
    wiring = wired(text, own, user)
    assert wiring.processing.endpoint_values == frozenset()
    assert decide(wiring, POOL).decision.result.primary_result.scores == [0.0, 1.0]


def test_parsers_are_asked_for_the_model_and_what_is_read() -> None:
    asked: list[Keys] = []

    def make_reader(self: object, path: str, wanted: Keys) -> Callable[[bytes], Parsed]:
        asked.append(wanted)
        return lambda body: Parsed()

    parser = zoo.plugin(
        "openai-parser", produces=keys(MODEL_NAME, TEXT, NOTE), reader=make_reader, paths=()
    )
    note, _ = reader()
    wired(listing(note), note, parser)
    assert asked == [keys(MODEL_NAME, TEXT)]


def test_waiting_producers_have_a_time_out_of_their_own() -> None:
    async def produce(data: DataView) -> None: ...

    director = listed(
        zoo.waiting("w", produce, keys(TEXT), timeout=2),
        zoo.producer("n", always(None), keys(NOTE)),
    ).director
    assert [(one.waits, one.timeout) for one in director.producers] == [(True, 2.0), (False, 0.4)]


def test_a_plugin_sets_how_long_its_state_may_idle() -> None:
    patient = scorer("patient", always([0, 0]), state_idle_seconds=7)
    wiring = listed(patient, giving("usual", 0, 0))
    thresholds = [wiring.installed[name].state.threshold for name in ("patient", "usual")]
    assert thresholds == [7.0, 300.0]


def test_an_event_that_a_plugin_publishes_is_a_key_like_others() -> None:
    happened = EventKey("happened", int)
    herald = producer("herald", always(None), keys(happened, TEXT))

    @on(happened)
    def hear(self: object, event: int) -> None: ...

    wiring = listed(herald, zoo.plugin("hearing", hear=hear))
    (listener,) = wiring.listeners
    assert listener.topic == "happened"
    assert "happened" not in wiring.plan.slots
