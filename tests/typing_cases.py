"""Never run: what a type checker must accept, and (marked) must refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, assert_type

from attrs import frozen

from pointsman.kernel.channel import Channel, Latest, Receiver, Sender
from pointsman.kernel.keys import (
    Column,
    Consumes,
    DataKey,
    DataView,
    EndpointKey,
    EventKey,
    Keys,
    keys,
    on,
)
from pointsman.kernel.mailbox import Address, Mailbox, Reply
from pointsman.kernel.model import (
    KV_CACHE_USAGE,
    LORA_ADAPTERS,
    MODEL_NAME,
    POD_ADDED,
    POD_DELETED,
    REQUEST_HEADERS,
    RESPONSE_USAGE,
    Endpoint,
    Headers,
    LoraAdapters,
    PodAdded,
    PodDeleted,
    ProfileResult,
    RequestEnd,
    SchedulingResult,
    Usage,
)
from pointsman.kernel.plugin import (
    Admitter,
    Filter,
    Picker,
    PreRequest,
    Producer,
    ProfileHandler,
    ResponseEndHook,
    Results,
    Scorer,
    Screener,
)
from pointsman.kernel.state import CycleState, PluginState, RequestState, StateKey
from pointsman.kernel.structure import Duration, Quantity, parse_duration, parse_quantity
from pointsman.kernel.supervisor import Child
from pointsman.kernel.testing import Bench, make_request
from pointsman.kernel.topic import Subscription, Topic


@frozen
class Pick:
    reply: Reply[list[str]]
    model: str


@frozen
class Count:
    reply: Reply[int]


@frozen
class Forget:
    pod: str


ReaperMessage = Forget | Count


async def asks(picker: Address[Pick], reaper: Address[ReaperMessage]) -> None:
    assert_type(await picker.ask(Pick, "llama"), list[str])
    assert_type(await picker.ask(Pick, model="llama"), list[str])
    await picker.ask(Pick)  # type: ignore[call-arg]
    await picker.ask(Pick, 3)  # type: ignore[arg-type]
    await picker.ask(Count)  # type: ignore[arg-type]
    assert_type(await reaper.ask(Count), int)
    await reaper.tell(Forget("a"))
    await reaper.tell("a")  # type: ignore[arg-type]
    assert_type(reaper.offer(Forget("a")), bool)
    narrow: Address[Forget] = reaper  # contravariant: the right to say less
    await narrow.tell(Forget("b"))
    wide: Address[ReaperMessage | str] = reaper  # type: ignore[assignment]
    await wide.tell("c")


async def answers(inbox: Mailbox[ReaperMessage]) -> None:
    assert_type(inbox.address, Address[Forget | Count])
    async for message in inbox:
        match message:
            case Count(reply):
                assert_type(reply, Reply[int])
                reply.send("three")  # type: ignore[arg-type]
            case Forget(pod):
                assert_type(pod, str)


async def channels(channel: Channel[int], cell: Latest[str]) -> None:
    assert_type(await channel.receiver.receive(), int)
    assert_type(channel.receiver.poll(), int | None)
    await channel.sender.send("a")  # type: ignore[arg-type]
    bools: Sender[bool] = channel.sender  # contravariant
    objects: Receiver[object] = channel.receiver  # covariant
    strings: Receiver[str] = channel.receiver  # type: ignore[assignment]
    assert_type(await cell.newer(0), tuple[int, str])
    cell.set(3)  # type: ignore[arg-type]
    Channel[int].open()  # type: ignore[call-arg]
    del bools, objects, strings


def topics(topic: Topic[PodDeleted], event: PodAdded) -> None:
    assert_type(topic.subscribe("a", capacity=1), Subscription[PodDeleted])
    topic.offer(event)  # type: ignore[arg-type]


TEXT = DataKey("text", str)
SHARE = EndpointKey("share", float)
HAPPENED = EventKey("happened", int)


def makes_keys() -> None:
    assert_type(TEXT, DataKey[str])
    assert_type(SHARE, EndpointKey[float])
    assert_type(HAPPENED, EventKey[int])
    assert_type(Consumes(TEXT, SHARE, optional=[HAPPENED]).all, Keys)
    Consumes("text")  # type: ignore[arg-type]
    keys(3)  # type: ignore[arg-type]


def reads(data: DataView) -> None:
    assert_type(data[MODEL_NAME], str)
    assert_type(data.get(MODEL_NAME), str | None)
    assert_type(data[REQUEST_HEADERS], Headers)
    assert_type(data[RESPONSE_USAGE].prompt_tokens, int | None)
    assert_type(data.get(RESPONSE_USAGE), Usage | None)
    assert_type(data[KV_CACHE_USAGE], Column[float])
    assert_type(data.get(LORA_ADAPTERS), Column[LoraAdapters] | None)
    data[POD_DELETED]  # type: ignore[call-overload]
    data["model-name"]  # type: ignore[call-overload]


def writes(data: DataView) -> None:
    data[TEXT] = "a"
    data[SHARE] = [0.5, None]
    data[TEXT] = 3  # type: ignore[misc]
    data[SHARE] = 0.5  # type: ignore[call-overload]
    data[SHARE] = ["a"]  # type: ignore[misc]


COUNTED = StateKey("counted", int)


def states(plugin: PluginState, request: RequestState, cycle: CycleState) -> None:
    assert_type(plugin.read(make_request(), COUNTED), int | None)
    assert_type(request.write(COUNTED, 1), bool)
    request.write(COUNTED, "a")  # type: ignore[misc]
    assert_type(cycle.read(COUNTED), int | None)


class Listener:
    @on(POD_DELETED)
    async def good(self, event: PodDeleted) -> None: ...

    @on(POD_ADDED, capacity=1)
    def also_good(self, event: PodAdded) -> None: ...

    @on(POD_DELETED)
    def wide(self, event: PodDeleted | PodAdded) -> None: ...

    @on(POD_DELETED)  # type: ignore[arg-type]
    async def bad(self, event: PodAdded) -> None: ...


class Everything:
    """Has the shape of every role that a pick is made by."""

    type_name: ClassVar = "everything"

    def screen(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[bool]:
        return [True] * len(endpoints)

    async def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> None: ...

    def admit(self, data: DataView, endpoints: Sequence[Endpoint]) -> None: ...

    def profiles(self, data: DataView, available: Sequence[str], results: Results) -> Sequence[str]:
        return () if results else available

    def primary(self, data: DataView, results: Results) -> str:
        return next(iter(results))

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[bool]:
        return [True] * len(endpoints)

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float | None]:
        return [None] * len(endpoints)

    def pick(
        self, data: DataView, endpoints: Sequence[Endpoint], scores: Sequence[float]
    ) -> Sequence[Endpoint]:
        return endpoints

    def before_request(self, data: DataView, result: SchedulingResult) -> Mapping[str, str]:
        return {}

    def on_response_end(self, data: DataView, end: RequestEnd) -> None: ...


def fits(everything: Everything) -> None:
    screener: Screener = everything
    producer: Producer = everything
    admitter: Admitter = everything
    handler: ProfileHandler = everything
    keeper: Filter = everything
    picker: Picker = everything
    before: PreRequest = everything
    end: ResponseEndHook = everything
    scorer: Scorer = Listener()  # type: ignore[assignment]
    del screener, producer, admitter, handler, keeper, picker, before, end, scorer


def frozen_values(endpoint: Endpoint, result: SchedulingResult) -> None:
    endpoint.port = 1  # type: ignore[misc]
    endpoint.labels["a"] = "b"  # type: ignore[index]
    assert_type(result.target, Endpoint)
    assert_type(result.profiles["a"], ProfileResult | None)


def units() -> None:
    assert_type(parse_duration("5s"), Duration)
    assert_type(parse_quantity("5k"), Quantity)
    seconds: float = parse_duration("5s")
    duration: Duration = 5.0  # type: ignore[assignment]
    del seconds, duration


async def children(inbox: Mailbox[Count]) -> None:
    async def run() -> None: ...

    Child(name="a", run=run, inbox=inbox)
    Child("a", run)  # type: ignore[call-arg]
    Child(name="a", run=run())  # type: ignore[arg-type]


async def kit(bench: Bench) -> None:
    assert_type(bench.score({KV_CACHE_USAGE: [0.5]}), list[float | None])
    assert_type(bench.keep(), list[Endpoint])
    assert_type(bench.pick([0.5]), list[Endpoint])
