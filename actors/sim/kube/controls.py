"""The pages under ``/sim``, over which the server is led into trouble and asked what it saw."""

from __future__ import annotations

from collections import deque
from typing import Any, final

import attrs
import msgspec
from attrs import define, frozen

from pointsman.actors.http import Request, Response, json_response

from .faults import Armed, Fault, Faults
from .objects import Object, is_mapping
from .store import Store


@final
@define(eq=False)
class Record:
    """A request that came in."""

    time: float
    """Unix time."""
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    path: str
    query: dict[str, str]
    agent: str
    user: str = ""
    status: int | None = None
    """None as long as it was not answered, and if its connection was dropped."""


@final
@frozen
class Controls:
    """Answers what is asked of the simulation and not of the API."""

    store: Store
    faults: Faults
    requests: deque[Record]

    def answer(self, request: Request) -> Response:
        match request.method, request.path:
            case "GET", "/sim/faults":
                return json_response([_shown(armed) for armed in self.faults.armed])
            case "POST", "/sim/faults":
                return self._add(request)
            case "DELETE", "/sim/faults":
                self.faults.clear()
                return json_response([])
            case "GET", "/sim/requests":
                return json_response([attrs.asdict(record) for record in self.requests])
            case "DELETE", "/sim/requests":
                self.requests.clear()
                return json_response([])
            case _:
                pages = "GET, POST and DELETE /sim/faults, GET and DELETE /sim/requests"
                return json_response({"error": f"there are only {pages}"}, 404)

    def _add(self, request: Request) -> Response:
        """Take a fault; *compact* and *disconnect* are done at once and stay nowhere."""
        try:
            body: Any = msgspec.json.decode(request.body)
            match body:
                case {"action": "compact", **rest} if not rest:
                    self.store.compact()
                case {"action": "disconnect", **rest} if not rest:
                    self.faults.disconnect()
                case _:
                    self.faults.add(msgspec.convert(body, Fault))
        except msgspec.DecodeError as error:
            return json_response({"error": str(error)}, 400)
        return json_response([_shown(armed) for armed in self.faults.armed], 201)


def _shown(armed: Armed) -> Object:
    shown: Any = msgspec.to_builtins(armed.fault)
    assert is_mapping(shown)
    return {**shown, "struck": armed.struck}
