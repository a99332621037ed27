"""Takes in a changed configuration, or keeps the last good one."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

import anyio
from attrs import define, field

from pointsman.kernel.errors import ConfigError
from pointsman.kernel.wiring import Wiring

from .figures import Figures
from .file_discovery import read_text
from .settling import Settling

logger = logging.getLogger(__name__)

LOOK_EVERY: Final = 1.0  # seconds


@final
@define(eq=False)
class ConfigWatch:
    """Reloads a configuration file when its text changes, and on SIGHUP.

    What counts is the text, once it has settled.
    """

    path: Path
    rewire: Callable[[str, str], Wiring]
    """From text and source to a wiring that is in use from then on. Raises ConfigError."""
    figures: Figures
    _texts: Settling[str] = field(factory=Settling[str], init=False)

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen)
            self._texts = Settling(self._read())
            while True:
                await anyio.sleep(LOOK_EVERY)
                self.look()

    async def _listen(self) -> None:
        with anyio.open_signal_receiver(signal.SIGHUP) as hangups:
            async for _ in hangups:
                logger.info("SIGHUP: reading %s again", self.path)
                self.reload(self._read())

    def look(self) -> None:
        """Compare the file with what is in use; take it in when it has settled."""
        self.reload(self._texts.look(self._read()))

    def reload(self, text: str | None) -> None:
        """Put *text* to use, if it can be."""
        if text is None:
            return
        self._texts.used = text
        try:
            wiring = self.rewire(text, str(self.path))
        except ConfigError as exc:
            self.figures.reloads.labels("failure").inc()
            logger.error("the configuration stays as it was:\n%s", exc)
        else:
            self.figures.reloads.labels("success").inc()
            logger.info("%s is in use: %d plugins", self.path, len(wiring.installed))

    def _read(self) -> str | None:
        try:
            return read_text(self.path)
        except ConfigError as exc:
            logger.debug("not there now: %s", exc)
            return None
