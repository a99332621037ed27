"""What a proxy's processing modes let the picker see, and what to make of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pointsman.kernel.model import RESPONSE_CHUNK, RESPONSE_HEADERS, RESPONSE_USAGE
from pointsman.kernel.wiring import Processing, Wiring

from .conversation import BodyMode, Modes

BUFFERED = (BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL)


def name_of(modes: Modes) -> str:
    """A mode's name in figures and in the documentation."""
    lean = modes.response is BodyMode.NONE
    match modes.request:
        case BodyMode.FULL_DUPLEX:
            return "lean-duplex" if lean else "full-duplex"
        case BodyMode.BUFFERED | BodyMode.BUFFERED_PARTIAL:
            return "lean-buffered" if lean else "buffered"
        case BodyMode.STREAMED:
            return "streamed"
        case BodyMode.NONE:
            return "headers-only"


def to_ask_for(
    modes: Modes, processing: Processing, *, may_rename: Callable[[], bool]
) -> Modes | None:
    """The modes that show what the proxy would not show by itself; None when it shows enough.

    Proxies listen to that with ``allow_mode_override``, and never in full duplex.

    Args:
        may_rename: whether the response may have to name another model; asked only if it matters.
    """
    if modes.request is BodyMode.FULL_DUPLEX or modes.response is not BodyMode.NONE:
        return None
    if processing.usage or processing.response_chunks or may_rename():
        return Modes(modes.request, BodyMode.STREAMED)
    return Modes(modes.request, BodyMode.NONE) if processing.response_headers else None


def remarks(modes: Modes, wiring: Wiring, *, figures: bool) -> Iterator[str]:
    """What an operator should know of these modes with that configuration.

    Args:
        figures: responses are waited for also for the sake of the figures about them.
    """
    processing = wiring.processing
    if processing.body and modes.request in (BodyMode.NONE, BodyMode.STREAMED):
        yield "request bodies are not seen before the decision, so what is read of them is missing"
    if modes.response is BodyMode.NONE:
        yield from _unseen(modes, wiring)
    elif modes.response is BodyMode.FULL_DUPLEX and not processing.response:
        yield "responses pass the picker and no plugin looks at them: lean-buffered is cheaper"
        if figures and not processing.response_end:
            yield "responses pass only for the sake of figures: see --response-figures"


def _unseen(modes: Modes, wiring: Wiring) -> Iterator[str]:
    processing = wiring.processing
    wanted = {
        RESPONSE_USAGE.name: processing.usage,
        RESPONSE_CHUNK.name: processing.response_chunks,
        RESPONSE_HEADERS.name: processing.response_headers and modes.request in BUFFERED,
    }
    missing = [name for name, asked in wanted.items() if asked]
    if not missing:
        return
    what = " and ".join(missing)
    if modes.request is BodyMode.FULL_DUPLEX:
        yield f"{what} cannot be observed: set the response body mode to FULL_DUPLEX_STREAMED"
    else:
        yield f"{what} can be observed only where the proxy has allow_mode_override"
