"""HTTP/1.1 requests at a rate, whatever the server does; latency counts from when each was due."""

from __future__ import annotations

import re
import select
import socket
from collections.abc import Generator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from attrs import define, field

from .stream import LoadError

PATIENCE: Final = 15.0  # seconds without a byte before a run counts as stalled
_LENGTH: Final = re.compile(rb"\ncontent-length: *(\d+)", re.IGNORECASE)


def post(path: str, body: bytes) -> bytes:
    """A request as bytes."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@define(eq=False)
class _Line:
    """A keep-alive connection, and the request that is on it."""

    sock: socket.socket
    due: float = 0.0
    answer: bytearray = field(factory=bytearray, init=False)

    def fileno(self) -> int:
        return self.sock.fileno()

    @property
    def answered(self) -> bool:
        """Whether the whole response is here.

        Raises:
            LoadError: it is not a 200.
        """
        head, end, body = bytes(self.answer).partition(b"\r\n\r\n")
        if not end:
            return False
        if not head.startswith(b"HTTP/1.1 200"):
            raise LoadError(f"answered {head[:200]!r} {body[:200]!r}")
        length = _LENGTH.search(head)
        return len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")


@define(eq=False)
class HttpClient:
    """Plays a request over as many connections to *port* as are needed at a time."""

    port: int
    _idle: list[_Line] = field(factory=list[_Line], init=False)
    _busy: list[_Line] = field(factory=list[_Line], init=False)

    def play(self, request: bytes, count: int, rate: float) -> list[float]:
        """Send *request* *count* times, *rate* times a second; the seconds that each took.

        Raises:
            LoadError: an answer is wrong or missing.
        """
        began, started = perf_counter(), 0
        latencies: list[float] = []
        while len(latencies) < count:
            now = perf_counter()
            while started < count and began + started / rate <= now:
                self._send(request, began + started / rate)
                started += 1
            due = began + started / rate if started < count else None
            latencies += self._receive(PATIENCE if due is None else max(0.0, due - perf_counter()))
            if due is None and self._busy and perf_counter() - self._busy[0].due > PATIENCE:
                raise LoadError(f"no answer within {PATIENCE:.0f} s")
        return latencies

    def close(self) -> None:
        for line in (*self._idle, *self._busy):
            line.sock.close()

    def _send(self, request: bytes, due: float) -> None:
        line = self._idle.pop() if self._idle else self._connect()
        line.due = due
        line.answer.clear()
        self._busy.append(line)
        line.sock.sendall(request)

    def _connect(self) -> _Line:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _Line(sock)

    def _receive(self, patience: float) -> list[float]:
        """Take in what comes, and free the connections whose answer is complete."""
        latencies: list[float] = []
        readable, _, _ = select.select(self._busy, [], [], patience)
        for line in readable:
            data = line.sock.recv(65_536)
            if not data:
                raise LoadError("the connection was closed in the middle of an answer")
            line.answer += data
            if line.answered:
                latencies.append(perf_counter() - line.due)
                self._busy.remove(line)
                self._idle.append(line)
        return latencies


@contextmanager
def http_client(port: int) -> Generator[HttpClient]:
    """A client whose connections are closed with the block."""
    made = HttpClient(port)
    try:
        yield made
    finally:
        made.close()
