"""How one simulated server fails and what it tells of itself: the switchable part of its face."""

from __future__ import annotations

from random import Random
from typing import Final, final

import anyio
import msgspec
from attrs import define, field

from pointsman.actors.http import HangUp, Request, Response, json_response, text_response

from .api import ApiError
from .driver import Driver
from .exposition import CONTENT_TYPE, Exposition
from .faults import FAILURES, Failure, Faults, Figure

_GARBAGE: Final = b"\x00\xffvllm:num_requests_waiting{engine=\n# TYPE\n}{ NaNsense 12..5\n" * 64
_GAUGES: Final = {
    "waiting": "vllm:num_requests_waiting",
    "running": "vllm:num_requests_running",
    "kv": "vllm:kv_cache_usage_perc",
}


@final
@define(eq=False)
class Misbehaviour:
    """Serves ``/metrics`` and ``/admin/config``, and says which requests fail."""

    faults: Faults
    driver: Driver
    exposition: Exposition
    random: Random
    _figures: dict[str, Figure] = field(factory=dict[str, Figure], init=False)
    """Gauges that tell a made-up value."""
    _since: float | None = field(default=None, init=False)
    """When they were first told."""

    def __attrs_post_init__(self) -> None:
        self._set(self.faults)

    def strike(self, request: Request) -> None:
        """Raises: ApiError: the request asks for one, or is one of those that fail by chance."""
        wanted = request.headers.get("x-return-error")
        if wanted is not None:
            raise ApiError.of(_failure(wanted))
        if self.faults.failure_rate and self.random.random() * 100 < self.faults.failure_rate:
            raise ApiError.of(FAILURES[self.random.choice(self.faults.failure_types)])

    async def metrics(self, _request: Request) -> Response:
        match self.faults.metrics_fault:
            case "hang":
                await anyio.sleep_forever()
            case "close":
                raise HangUp
            case "error":
                return text_response("Internal Server Error", 500)
            case "garbage":
                return Response(200, _GARBAGE, (("content-type", CONTENT_TYPE),))
            case "slow":
                await anyio.sleep(self.faults.metrics_delay)
            case "none":
                pass
        self.driver.catch_up()
        missing = self.faults.metrics_missing
        text = self.exposition.text(missing=missing, overrides=self._told())
        return Response(200, text, (("content-type", CONTENT_TYPE),))

    async def show(self, _request: Request) -> Response:
        return json_response(self.faults)

    async def change(self, request: Request) -> Response:
        try:
            faults = self.faults.patched(request.body)
        except msgspec.DecodeError as error:
            raise ApiError(400, "Bad Request", str(error)) from None
        self._set(faults)
        self.driver.set_background(faults.background)
        return json_response(faults)

    def _set(self, faults: Faults) -> None:
        self.faults = faults
        told = {"waiting": faults.waiting, "running": faults.running, "kv": faults.kv}
        self._figures = {
            _GAUGES[name]: Figure.parse(text) for name, text in told.items() if text is not None
        }
        self._since = None

    def _told(self) -> dict[str, float]:
        if not self._figures:
            return {}
        if self._since is None:
            self._since = anyio.current_time()
        elapsed = anyio.current_time() - self._since
        return {name: figure.at(elapsed) for name, figure in self._figures.items()}


def _failure(wanted: str) -> Failure:
    """The failure that a client asked for by status or by name."""
    for name, failure in FAILURES.items():
        if wanted in (name, str(failure.status)):
            return failure
    status = int(wanted) if wanted.isdecimal() and 400 <= int(wanted) <= 599 else 500
    return Failure(status, "InternalServerError", f"Returned as asked for: {wanted}.")
