"""What can be made to go wrong with a simulated server, and figures that it can be made to tell.

One value, `Faults`, is the whole of what may be changed while a server runs. The command line and
``POST /admin/config`` both fill it, with the same names and the same checks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal, final

import msgspec
from attrs import frozen
from msgspec import Meta

FailureType = Literal[
    "rate_limit",
    "invalid_api_key",
    "context_length",
    "server_error",
    "invalid_request",
    "model_not_found",
]
MetricsFault = Literal["none", "hang", "close", "garbage", "error", "slow"]


@frozen
class Failure:
    """An error reply that is sent in place of an answer."""

    status: int
    type: str
    message: str


FAILURES: Final[Mapping[FailureType, Failure]] = {
    "rate_limit": Failure(429, "RateLimitError", "Too many requests were sent to this model."),
    "invalid_api_key": Failure(401, "AuthenticationError", "The API key is not known here."),
    "context_length": Failure(400, "BadRequestError", "The prompt is longer than the context."),
    "server_error": Failure(503, "Service Unavailable", "The server cannot answer right now."),
    "invalid_request": Failure(400, "BadRequestError", "The request is not valid."),
    "model_not_found": Failure(404, "NotFoundError", "The model does not exist."),
}
FAILURE_TYPES: Final = tuple(FAILURES)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
_SHAPES: Final[Mapping[str, Callable[[float], float]]] = {
    "oscillate": lambda turns: (1.0 - math.cos(2.0 * math.pi * turns)) / 2.0,
    "ramp": lambda turns: min(turns, 1.0),
    "rampreset": lambda turns: turns % 1.0,
    "squarewave": lambda turns: float(turns % 1.0 >= 0.5),
}


@final
@frozen
class Figure:
    """A made-up figure: constant, or a shape between two values over a period of seconds."""

    shape: str
    start: float
    end: float
    period: float

    @classmethod
    def parse(cls, text: str | float) -> Figure:
        """Read ``3``, ``0.5`` or ``shape:start:end:period``.

        Raises:
            ValueError: it is neither.
        """
        if isinstance(text, int | float) or re.fullmatch(r"[\d.]+", text):
            return cls("ramp", float(text), float(text), 1.0)
        shape, *numbers = text.split(":")
        if shape not in _SHAPES or len(numbers) != 3:
            shapes = ", ".join(_SHAPES)
            raise ValueError(f"{text!r} is neither a number nor SHAPE:START:END:PERIOD ({shapes})")
        return cls(shape, float(numbers[0]), float(numbers[1]), _seconds(numbers[2]))

    def at(self, elapsed: float) -> float:
        """Its value that many seconds after it was set."""
        return self.start + (self.end - self.start) * _SHAPES[self.shape](elapsed / self.period)


def _seconds(text: str) -> float:
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", text)
    if parts is None or float(parts[1]) == 0.0:
        raise ValueError(f"{text!r} is not a period such as 500ms, 30s or 2m")
    return float(parts[1]) * _UNITS[parts[2]]


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a server misbehaves. Every field may be changed while it runs."""

    failure_rate: Annotated[
        float, Meta(ge=0, le=100, description="percent of the requests that fail at once")
    ] = 0.0
    failure_types: Annotated[
        tuple[FailureType, ...],
        Meta(min_length=1, description=f"how they fail: some of {', '.join(FAILURE_TYPES)}"),
    ] = FAILURE_TYPES
    metrics_fault: Annotated[
        MetricsFault,
        Meta(description="how /metrics fails: none, hang, close, garbage, error (500) or slow"),
    ] = "none"
    metrics_delay: Annotated[
        float, Meta(ge=0, description="seconds that a slow /metrics takes")
    ] = 1.0
    metrics_missing: Annotated[
        tuple[str, ...], Meta(description="families that /metrics leaves out, with their prefix")
    ] = ()
    waiting: Annotated[
        str | float | None,
        Meta(description="tell this queue length: a number or SHAPE:START:END:PERIOD"),
    ] = None
    running: Annotated[
        str | float | None, Meta(description="tell this number of running requests, likewise")
    ] = None
    kv: Annotated[
        str | float | None, Meta(description="tell this cache usage (0 to 1), likewise")
    ] = None
    background: Annotated[
        int, Meta(ge=0, description="requests that the server keeps going by itself")
    ] = 0

    def __post_init__(self) -> None:
        figures = {"waiting": self.waiting, "running": self.running, "kv": self.kv}
        for name, text in figures.items():
            try:
                Figure.parse(text or 0)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None

    def patched(self, body: bytes) -> Faults:
        """These faults with the fields of a JSON object replaced: all of them or none.

        Raises:
            msgspec.DecodeError: with the reason, when one of them is unknown or wrong.
        """
        patch = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        fields: dict[str, object] = {name: msgspec.json.decode(raw) for name, raw in patch.items()}
        return msgspec.convert({**msgspec.to_builtins(self), **fields}, Faults)
