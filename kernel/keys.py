"""Typed data keys, what plugins declare about them, and the window through which they are used.

A key is made once, beside the class of its value, and is compared by identity: looking one up
costs a pointer, not a hash of its name. There are three scopes: one value per request
(`DataKey`), one per candidate endpoint (`EndpointKey`), and events (`EventKey`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, Final, Generic, NoReturn, Self, TypeVar, final, overload

from attrs import define, field, frozen

from .calls import Calls
from .errors import AbsentKey, UndeclaredKey, ViewClosed
from .state import CycleState, Lifetime, PluginState, RequestState
from .topic import Overflow

T = TypeVar("T")
S = TypeVar("S")


class _Named:
    """What the three kinds of key have in common; made once, so identity is equality."""

    __slots__ = ("name", "type")

    def __init__(self, name: str, value_type: type[Any]) -> None:
        self.name: Final = name
        self.type: Final = value_type

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type.__name__})"

    def __str__(self) -> str:
        return self.name


@final
class DataKey(_Named, Generic[T]):
    """Names one value of a request: ``DataKey("model-name", str)``."""

    __slots__ = ()

    def __init__(self, name: str, value_type: type[T]) -> None:
        super().__init__(name, value_type)


@final
class EndpointKey(_Named, Generic[T]):
    """Names one value per candidate endpoint: ``EndpointKey("kv-cache-usage", float)``.

    It reads as a column: one entry per candidate, in the candidates' order, None where the
    endpoint has no such value.
    """

    __slots__ = ()

    def __init__(self, name: str, value_type: type[T]) -> None:
        super().__init__(name, value_type)


@final
class EventKey(_Named, Generic[T]):
    """Names something that happens: ``EventKey("pod-deleted", PodDeleted)``."""

    __slots__ = ("of_requests",)

    def __init__(self, name: str, value_type: type[T], *, of_requests: bool = False) -> None:
        """*of_requests*: it is published on the path of a request, which waits for nobody."""
        super().__init__(name, value_type)
        self.of_requests: Final = of_requests


Key = DataKey[Any] | EndpointKey[Any] | EventKey[Any]
Keys = frozenset[Key]
Column = Sequence[T | None]


def keys(*keys: Key) -> Keys:
    return frozenset(keys)


@final
@frozen(init=False)
class Consumes:
    """The keys a plugin reads: ``Consumes(PREFIX_HIT, optional=[LORA_ADAPTERS])``.

    Without a producer of the required ones the plugin cannot be enabled.
    """

    required: Keys
    optional: Keys

    def __init__(self, *required: Key, optional: Sequence[Key] | Keys = ()) -> None:
        object.__setattr__(self, "required", frozenset(required))
        object.__setattr__(self, "optional", frozenset(optional))

    @property
    def all(self) -> Keys:
        return self.required | self.optional


@final
class _Absent:
    """The one value of a slot that nobody filled."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False


ABSENT: Final = _Absent()
Slots = list[Any]
_CLOSED: Final[Slots] = []  # what a view looks at between calls: every slot is out of range


@final
@define(eq=False)
class Frame:
    """The data of one request, as one stage of its life sees them: a value or a column a slot."""

    request: Lifetime
    values: Slots
    endpoints: Sequence[object] = ()
    """The candidates that the columns speak of."""
    _cycle: CycleState | None = field(default=None, init=False)

    @property
    def cycle(self) -> CycleState:
        """Made when first asked for: most plugins never do."""
        if self._cycle is None:
            self._cycle = CycleState()
        return self._cycle


@final
@define(eq=False)
class DataView:
    """One plugin's window on a request: only what it declared, with its type.

    Names are resolved to slots when the plan is made, so that a checked read costs one
    dictionary look-up. A view is lent for the duration of one call.
    """

    plugin: str
    _reads: Mapping[Key, int] = field(repr=False)
    _writes: Mapping[Key, int] = field(repr=False)
    _kept: PluginState = field(repr=False)
    _calls: Calls = field(repr=False)
    deciders: Mapping[str, Ask] = field(factory=dict[str, "Ask"], init=False, repr=False)
    """The plugins that it may ask, by name."""
    _values: Slots = field(default=_CLOSED, init=False, repr=False)
    _frame: Frame | None = field(default=None, init=False, repr=False)
    _point: str = field(default="", init=False, repr=False)
    _lent: float = field(default=0.0, init=False, repr=False)
    """When the call began."""

    def lend(self, frame: Frame, point: str) -> Self:
        """Open the view on *frame* for one call of its plugin; `close` ends the loan.

        Calls of one plugin do not nest: it has one view, which costs a request nothing.

        Args:
            point: the extension point, for the figures. What passes until `close` is the call.
        """
        self._frame = frame
        self._values = frame.values
        self._point = point
        self._lent = perf_counter()
        return self

    def retract(self) -> None:
        """Make absent what the plugin writes: half of it would be worse than nothing."""
        for slot in self._writes.values():
            self._values[slot] = ABSENT

    def close(self) -> None:
        self._values = _CLOSED
        self._frame = None
        self._calls.took(self._point, perf_counter() - self._lent)

    @property
    def read_slots(self) -> Iterable[int]:
        """Where everything is that the plugin may read."""
        return self._reads.values()

    def twin(self) -> DataView:
        """A view of its own for a call that waits, while others of its plugin go on."""
        view = DataView(self.plugin, self._reads, self._writes, self._kept, self._calls)
        view.deciders = self.deciders
        return view

    @overload
    def __getitem__(self, key: DataKey[T]) -> T: ...
    @overload
    def __getitem__(self, key: EndpointKey[T]) -> Column[T]: ...
    def __getitem__(self, key: Any) -> Any:
        """The value of a declared key.

        Raises:
            AbsentKey: nobody produced it in this request.
            UndeclaredKey: the plugin does not consume it.
        """
        try:
            value = self._values[self._reads[key]]
        except (KeyError, IndexError):
            self._refuse(key, "read", self._reads)
        if value is ABSENT:
            raise AbsentKey(self.plugin, key.name)
        return value

    @overload
    def get(self, key: DataKey[T]) -> T | None: ...
    @overload
    def get(self, key: EndpointKey[T]) -> Column[T] | None: ...
    def get(self, key: Any) -> Any:
        """The value of a declared key, or None where nobody produced it."""
        try:
            value = self._values[self._reads[key]]
        except (KeyError, IndexError):
            self._refuse(key, "read", self._reads)
        return None if value is ABSENT else value

    @overload
    def __setitem__(self, key: DataKey[T], value: T) -> None: ...
    @overload
    def __setitem__(self, key: EndpointKey[T], value: Column[T]) -> None: ...
    def __setitem__(self, key: Any, value: Any) -> None:
        """Publish the value of a key that the plugin produces."""
        try:
            self._values[self._writes[key]] = value
        except (KeyError, IndexError):
            self._refuse(key, "write", self._writes)

    def of(self, key: EndpointKey[T], endpoint: object) -> T | None:
        """What a declared column says of one candidate; None where it says nothing."""
        column = self.get(key)
        if column is not None:
            for candidate, value in zip(self._open().endpoints, column, strict=False):
                if candidate is endpoint:
                    return value
        return None

    def ask(self, decider: str, endpoint: object) -> bool:
        """What the decider of that name says of the request, and of *endpoint* if there is one.

        Raises:
            UndeclaredKey: the plugin did not name it in ``deciders``.
        """
        frame = self._open()
        asked = self.deciders.get(decider)
        if asked is None:
            self._calls.violated(self._point, decider, "ask")
            raise UndeclaredKey(self.plugin, decider, "ask")
        return asked(frame, endpoint)

    @property
    def state(self) -> RequestState:
        """What this plugin keeps for this request, until the request ends."""
        return RequestState(self._kept, self._open().request)

    @property
    def cycle(self) -> CycleState:
        """Scratch data of the profile run that is going on."""
        return self._open().cycle

    def _open(self) -> Frame:
        if self._frame is None:
            raise ViewClosed(self.plugin)
        return self._frame

    def _refuse(self, key: Key, verb: str, declared: Mapping[Key, int]) -> NoReturn:
        if key in declared:
            raise ViewClosed(self.plugin)
        self._calls.violated(self._point, key.name, verb)
        raise UndeclaredKey(self.plugin, key.name, verb)


Ask = Callable[[Frame, Any], bool]
Handler = Callable[[S, T], Awaitable[None] | None]


@final
@frozen
class Listens:
    """A method that hears of an event: which, and what happens when it does not keep up."""

    key: EventKey[Any]
    method: str
    overflow: Overflow
    capacity: int


def on(
    key: EventKey[T], *, overflow: Overflow | None = None, capacity: int = 256
) -> Callable[[Handler[S, T]], Handler[S, T]]:
    """Subscribe a method to the events published under *key*.

    The method's parameter must accept the key's type; a type checker tells. Events of the pool
    wait for a subscriber who has *capacity* of them unread, unless *overflow* says otherwise;
    events of requests never wait for anybody.

    Raises:
        ValueError: a request would have to wait for the subscriber.
    """
    if overflow is None:
        overflow = Overflow.DROP_OLDEST if key.of_requests else Overflow.WAIT
    if key.of_requests and overflow is Overflow.WAIT:
        raise ValueError(f"{key.name!r} is published on the path of requests: nobody is waited for")

    def mark(method: Handler[S, T]) -> Handler[S, T]:
        listens = Listens(key, getattr(method, "__name__", "?"), overflow, capacity)
        method.__on__ = listens  # type: ignore[attr-defined]
        return method

    return mark


def subscriptions(plugin_class: type[object]) -> tuple[Listens, ...]:
    """A plugin class's event handlers, in the order of their names."""
    marks = (getattr(getattr(plugin_class, name), "__on__", None) for name in dir(plugin_class))
    return tuple(mark for mark in marks if isinstance(mark, Listens))
