"""A plugin in use: its view, its state, and what happens when it raises."""

from __future__ import annotations

import logging
import traceback
from typing import Any, final

from attrs import define, field

from .calls import Calls
from .errors import AbsentKey, UndeclaredKey
from .keys import DataView, Frame
from .plugin import Role
from .state import PluginState

logger = logging.getLogger(__name__)


@final
@define(eq=False)
class Installed:
    """One plugin instance, isolated: its failures cost its own contribution and nothing else."""

    name: str
    type_name: str
    plugin: Any
    view: DataView
    state: PluginState
    calls: Calls = field(repr=False)
    failures: int = field(default=0, init=False)
    _failing: bool = field(default=False, init=False)

    def __str__(self) -> str:
        return self.name if self.name == self.type_name else f"{self.name} ({self.type_name})"

    def decides(self, frame: Frame, endpoint: object) -> bool:
        """What it says as a decider; one that fails or lacks its data decides for no."""
        try:
            answer = bool(self.plugin.disaggregate(self.view.lend(frame, Role.DECIDER), endpoint))
        except AbsentKey:
            return False
        except Exception as exc:
            self.failed(Role.DECIDER, exc)
            return False
        finally:
            self.view.close()
        self.worked()
        return answer

    def failed(self, role: Role, exc: Exception) -> None:
        """Note that a call raised: counted each time, logged when it starts.

        The exception's text stays out of the log, for it may hold a prompt; not so the names of
        keys.
        """
        self.failures += 1
        self.calls.failed(role)
        if not self._failing:
            self._failing = True
            logger.warning(
                "plugin %s fails as %s, its contribution is dropped: %s",
                self,
                role.value,
                exc if isinstance(exc, UndeclaredKey) else where_raised(exc),
            )
        logger.debug("plugin %s failed", self, exc_info=exc)

    def worked(self) -> None:
        """Note that a call went well: logged after a failure only."""
        if self._failing:
            self._failing = False
            logger.info("plugin %s works again", self)


def where_raised(exc: BaseException) -> str:
    """``ZeroDivisionError at queue.py:12``: the kind of an error and its place, not its text."""
    frames = traceback.extract_tb(exc.__traceback__)
    if not frames:
        return type(exc).__name__
    place = frames[-1]
    return f"{type(exc).__name__} at {place.filename.rpartition('/')[2]}:{place.lineno}"
