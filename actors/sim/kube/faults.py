"""What can be made to go wrong with the server, by tests and over ``/sim/faults``.

A fault waits for requests it fits. Some strike the request: it is slow, refused, dropped or never
answered. Others strike a watch that is open: it ends, breaks, falls silent, goes wrong in the
middle of a line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Literal, final

import msgspec
from attrs import define, field
from msgspec import Meta

from .calls import Call

Action = Literal[
    "delay", "status", "drop", "hang", "truncate", "end", "break", "silence", "expire", "garbage"
]
_OF_STREAMS: Final = ("truncate", "end", "break", "silence", "expire", "garbage")
"""Actions on open watches. Of these, *truncate* strikes other answers too."""

_OF_LINES: Final = ("truncate", "garbage")
"""Those that need something to spoil."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that goes wrong, and with which requests."""

    action: Action
    verb: str = "*"
    resource: str = "*"
    """The plural, without its group."""
    namespace: str = "*"
    name: str = "*"
    count: Annotated[int, Meta(ge=1)] | None = None
    """How many times; None until it is cleared."""
    skip: Annotated[int, Meta(ge=0)] = 0
    """How many requests, or changes told by a watch, go well before."""
    seconds: Annotated[float, Meta(ge=0)] = 0.0
    """How long a *delay* takes; how long a *status* asks to stay away (``Retry-After``)."""
    status: Annotated[int, Meta(ge=400, le=599)] = 500
    message: str = "this was asked for"
    plain: bool = False
    """Answer a *status* in plain text, as for a path that does not exist."""

    def fits(self, call: Call) -> bool:
        found = (call.verb, call.resource, call.namespace, call.name)
        wanted = (self.verb, self.resource, self.namespace, self.name)
        return all(want in ("*", have) for want, have in zip(wanted, found, strict=True))

    def strikes_streams(self, call: Call) -> bool:
        return self.action in _OF_STREAMS and not (
            self.action == "truncate" and call.verb != "watch"
        )


@final
@define(eq=False)
class Armed:
    """A fault and how often it has met its like."""

    fault: Fault
    passed: int = 0
    struck: int = 0

    @property
    def spent(self) -> bool:
        return self.fault.count is not None and self.struck >= self.fault.count


@final
@define(eq=False)
class Faults:
    """The faults that are in force."""

    on_change: Callable[[], None] = lambda: None
    """Called when open watches have to look again."""
    _armed: list[Armed] = field(factory=list[Armed], init=False)
    disconnections: int = field(default=0, init=False)
    """Watches that were opened at a lower number are to break."""

    @property
    def armed(self) -> tuple[Armed, ...]:
        """Those that can still strike, in the order in which they were added."""
        return tuple(one for one in self._armed if not one.spent)

    def add(self, fault: Fault) -> None:
        """Put *fault* in force; open watches are struck at once."""
        self._armed = [*self.armed, Armed(fault)]
        self.on_change()

    def clear(self) -> None:
        self._armed.clear()

    def disconnect(self) -> None:
        """Break every watch that is open now, as a restart of the server does."""
        self.disconnections += 1
        self.on_change()

    def of_request(self, call: Call) -> list[Fault]:
        """What strikes a request as it comes in: delays, and what follows them."""
        struck: list[Fault] = []
        for one in self.armed:
            if not one.fault.fits(call) or one.fault.strikes_streams(call):
                continue
            one.passed += 1
            if one.passed > one.fault.skip:
                one.struck += 1
                struck.append(one.fault)
                if one.fault.action != "delay":
                    break
        return struck

    def of_stream(self, call: Call, told: int, *, telling: bool) -> Fault | None:
        """What strikes an open watch after *told* changes, when it is about to tell one or not."""
        for one in self.armed:
            fits = one.fault.fits(call) and one.fault.strikes_streams(call)
            possible = telling or one.fault.action not in _OF_LINES
            if fits and possible and told >= one.fault.skip:
                one.struck += 1
                return one.fault
        return None
