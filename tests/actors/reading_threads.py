"""Readers of large bodies that are threads: they do what the process does, and begin at once."""

from __future__ import annotations

import socket
from threading import Event, Semaphore, Thread

from attrs import define, field

from pointsman.actors.reading import Child
from pointsman.actors.reading_process import serve


@define(eq=False)
class Threads:
    """Starts them once they may start, and notes which ended."""

    @classmethod
    def at_once(cls) -> Threads:
        threads = cls()
        threads.may_start.set()
        return threads

    started: list[Child] = field(factory=list[Child])
    may_start: Event = field(factory=Event)
    asked: Semaphore = field(factory=lambda: Semaphore(0))
    """Is released for each that is to be started."""
    ended: int = 0

    def start(self) -> Child:
        self.asked.release()
        self.may_start.wait()
        ours, its = socket.socketpair()
        thread = Thread(target=self._serve, args=(its,), daemon=True)
        thread.start()
        self.started.append(Child(ours, _Process(thread)))
        return self.started[-1]

    def _serve(self, daemon: socket.socket) -> None:
        with daemon:
            serve(daemon)
        self.ended += 1


@define(eq=False)
class _Process:
    """What is asked of a process, of a thread: it ends when the line does."""

    thread: Thread

    def kill(self) -> None: ...
    def wait(self) -> None:
        self.thread.join()
