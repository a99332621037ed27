"""Which parser reads which path, with readers made once for what the plan wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from sys import maxsize as MAX_SIZE
from typing import Any, Final, final

from attrs import define, field, frozen

from .errors import Refusal
from .keys import Keys
from .model import Headers, Parsed

DEFAULT_PATH: Final = "/v1/completions"
Reader = Callable[[bytes], Parsed]


@final
@frozen(eq=False)
class Origin:
    """What a reader was made from, for whoever has to make it again in another process."""

    parser: Any
    claim: str
    wanted: Keys

    def reader(self) -> Reader | None:
        """None: of these bodies nothing is wanted."""
        read: Reader | None = self.parser.reader(self.claim, self.wanted)
        return read


@final
@frozen
class Route:
    """How bodies of one path are read."""

    parser: str
    """The plugin's name; empty when the path is nobody's."""
    read: Reader | None
    """None: the body is of no interest."""
    origin: Origin | None = None
    at_once: int = MAX_SIZE
    """Bytes from which on a body is large for this parser, if that is less than for others."""


LONGEST_PATH: Final = 1024
"""Characters of a path that are looked at, from its end: far more than any parser claims."""
NOBODY: Final = Route("", None)


def path_of(headers: Headers) -> str:
    """The request's path without query and fragment, as the proxy first saw it."""
    path = headers.first(":path", "x-original-path", "x-forwarded-path") or DEFAULT_PATH
    return path.partition("?")[0].partition("#")[0]


@final
@define(eq=False)
class Routes:
    """Path endings by parser: the longest that matches whole segments wins."""

    _endings: Mapping[tuple[str, ...], Route]
    _fallback: Route
    find: Callable[[str], Route] = field(init=False)
    """The route of a path; paths come from clients, so only so many are remembered."""

    def __attrs_post_init__(self) -> None:
        longest = max(map(len, self._endings), default=0)
        find = partial(_find, self._endings, longest, self._fallback)
        remembered = lru_cache(maxsize=1024)(find)  # of a method it would be a circle
        self.find = lambda path: remembered(path[-LONGEST_PATH:])

    @property
    def reads_bodies(self) -> bool:
        """Whether there is a path whose bodies are of interest."""
        return any(route.read for route in (*self._endings.values(), self._fallback))


def _find(
    endings: Mapping[tuple[str, ...], Route], longest: int, fallback: Route, path: str
) -> Route:
    """Of *path* no more segments are looked at than the longest ending has."""
    segments = tuple(segment for segment in path.strip().split("/") if segment)
    for start in range(max(0, len(segments) - longest), len(segments)):
        if (route := endings.get(segments[start:])) is not None:
            return route
    return fallback


def make_routes(parsers: Sequence[tuple[str, Any]], wanted: Keys) -> Routes:
    """Routes over parsers in the order of the configuration.

    A parser without paths takes what the others leave; the first claim of a path wins.
    """
    endings: dict[tuple[str, ...], Route] = {}
    fallback = NOBODY
    for name, parser in parsers:
        for claim in parser.paths:
            ending = tuple(segment for segment in claim.split("/") if segment)
            endings.setdefault(ending, _route(name, Origin(parser, claim, wanted)))
        if not parser.paths and fallback is NOBODY:
            fallback = _route(name, Origin(parser, "", wanted))
    return Routes(endings, fallback)


def _route(name: str, origin: Origin) -> Route:
    return Route(name, origin.reader(), origin, getattr(origin.parser, "bytes_at_once", MAX_SIZE))


def refuse_path(path: str) -> Refusal:
    """The answer to a path that no parser reads."""
    return Refusal(400, f"no parser handles the path {path[:200]!r}")
