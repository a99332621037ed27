"""The daemons that the scripts are played to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from attrs import define, field

from pointsman.actors.conversation import SessionSettings
from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import (
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    RESPONSE_USAGE,
    SERVED_ENDPOINT,
    Endpoint,
    RequestEnd,
    SchedulingResult,
)

from .script import Setup


class Waiting:
    """A producer that may wait for I/O."""

    type_name: ClassVar = "waiting"

    async def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> None: ...


class Meter:
    """Reads what responses used."""

    type_name: ClassVar = "meter"
    consumes: ClassVar = Consumes(optional=[RESPONSE_USAGE])

    def on_response_end(self, data: DataView, end: RequestEnd) -> None:
        data.get(RESPONSE_USAGE)


class Marker:
    """Tells the client who served, as the proxy says."""

    type_name: ClassVar = "marker"
    consumes: ClassVar = Consumes(optional=[SERVED_ENDPOINT])

    def on_response_headers(self, data: DataView, result: SchedulingResult) -> Mapping[str, str]:
        return {"x-served-by": data.get(SERVED_ENDPOINT) or result.target.name}


class Echo:
    """Says to either side what the other one said."""

    type_name: ClassVar = "echo"
    consumes: ClassVar = Consumes(REQUEST_HEADERS, RESPONSE_HEADERS)

    def before_request(self, data: DataView, result: SchedulingResult) -> Mapping[str, str]:
        return {"x-echo": data[REQUEST_HEADERS].get("x-odd") or "nothing"}

    def on_response_headers(self, data: DataView, result: SchedulingResult) -> Mapping[str, str]:
        return {"x-echo": data[RESPONSE_HEADERS].get("x-odd") or "nothing"}


class Doorman:
    """Refuses what asks for it: ``x-refuse: status reason retry-after``, a hyphen for neither."""

    type_name: ClassVar = "doorman"
    consumes: ClassVar = Consumes(REQUEST_HEADERS)

    def admit(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        status, reason, after = (data[REQUEST_HEADERS].get("x-refuse") or "").split()
        raise Refusal(
            int(status),
            "not today",
            reason=None if reason == "-" else reason,
            retry_after=None if after == "-" else int(after),
        )


@define(eq=False)
class Ears:
    """Hears how requests end."""

    type_name: ClassVar = "ears"
    heard: list[RequestEnd] = field(factory=list[RequestEnd], init=False)

    def on_response_end(self, data: DataView, end: RequestEnd) -> None:
        self.heard.append(end)


def _with(plugin: Any) -> Setup:
    """With this plugin beside the one that decides."""
    config = f"plugins: [{{type: queue-scorer}}, {{type: {plugin.type_name}}}]"
    return Setup(config=config, plugins=(plugin,))


PLAIN: Final = Setup()
COUNTING: Final = Setup(
    config="plugins: [{type: queue-scorer}, {type: inflight-load-producer}, {type: ears}]",
    plugins=(Ears,),
)
WAITING: Final = Setup(
    config=COUNTING.config.replace("]", ", {type: waiting}]"), plugins=(Ears, Waiting)
)
METER: Final = _with(Meter)
MARKER: Final = _with(Marker)
ECHO: Final = _with(Echo)
DOORMAN: Final = _with(Doorman)
NOBODY: Final = Setup(pool=())
RENAMING: Final = Setup(renames={"pub": "int"})
SCORES: Final = Setup(settings=SessionSettings(emits_scores=True))
RENAMING_SCORES: Final = Setup(settings=SessionSettings(emits_scores=True), renames={"pub": "int"})
DEAF: Final = Setup(settings=SessionSettings(heeds_subset=False))
LIMIT: Final = 1000
NARROW: Final = Setup(settings=SessionSettings(body_limit=LIMIT))
LEAVING: Final = Setup(response_figures=False)
UNREAD: Final = Setup(
    config=f"{PLAIN.config}\nrequestHandler: {{parsers: [{{pluginRef: passthrough-parser}}]}}"
)
OPENAI: Final = Setup(
    config=f"{PLAIN.config}\nrequestHandler: {{parsers: [{{pluginRef: openai-parser}}]}}"
)
