"""Model servers as far as a scraper can tell: one process, many addresses, one port.

A scrape costs next to nothing here, so what a bench measures is the scraper. Each address tells
another load, and another one with every scrape; ``GET /scrapes`` counts the scrapes so far, and
``GET /fault/2/silence`` lets the address with that number misbehave (``GET /fault/2/`` ends it).
A POST gets a completion.

    python -m tests.bench.model_servers 127.0.1 10      serves 127.0.1.1 to 127.0.1.10; prints
                                                        "ready PORT" and serves until a signal;
                                                        a third word "idle" takes the load away
"""

from __future__ import annotations

import re
import selectors
import socket
import sys
from typing import Final

from attrs import define, field

from .vllm_metrics import Load, text

LOADS: Final = 16
FAULTS: Final = ("error", "garbage", "cut", "silence")
"""What a server can do in place of answering."""
_ATTEMPTS: Final = 20


def addresses(network: str, count: int) -> list[str]:
    """The first *count* addresses of *network*, which is three numbers of 127.0.0.0/8."""
    return [f"{network}.{host}" for host in range(1, count + 1)]


def listen(hosts: list[str]) -> list[socket.socket]:
    """Listen on all *hosts*, on one port that is free on every one of them."""
    for _ in range(_ATTEMPTS):
        listeners: list[socket.socket] = []
        try:
            for host in hosts:
                port = listeners[0].getsockname()[1] if listeners else 0
                listeners.append(socket.create_server((host, port)))
        except OSError:
            for listener in listeners:
                listener.close()
        else:
            return listeners
    raise OSError(f"no port is free on all of {hosts[0]} to {hosts[-1]}")


@define(eq=False)
class _Scraper:
    """One connection, and how much of a request has come on it."""

    sock: socket.socket
    endpoint: int
    request: bytes = b""


@define(eq=False)
class ModelServers:
    """Answers every request on *listeners* from prepared bytes, one request after the other."""

    listeners: list[socket.socket]
    idle: bool = False
    """Nothing runs, and every scrape says the same."""
    scrapes: int = field(default=0, init=False)
    faults: dict[int, str] = field(factory=dict[int, str], init=False)
    """By the number of the address."""
    _answers: list[bytes] = field(init=False)
    _selector: selectors.BaseSelector = field(factory=selectors.DefaultSelector, init=False)

    def __attrs_post_init__(self) -> None:
        self._answers = [_scrape(0 if self.idle else n, self.idle) for n in range(LOADS)]

    @property
    def port(self) -> int:
        port: int = self.listeners[0].getsockname()[1]
        return port

    def serve(self) -> None:
        """Serve until the process ends."""
        for endpoint, listener in enumerate(self.listeners):
            self._selector.register(listener, selectors.EVENT_READ, endpoint)
        while True:
            for key, _ in self._selector.select():
                source: _Scraper | int = key.data
                if isinstance(source, _Scraper):
                    self._receive(source)
                else:
                    self._accept(source)

    def _accept(self, endpoint: int) -> None:
        sock, _ = self.listeners[endpoint].accept()
        # Room for a whole answer: a slow reader does not hold up the others.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
        self._selector.register(sock, selectors.EVENT_READ, _Scraper(sock, endpoint))

    def _receive(self, scraper: _Scraper) -> None:
        data: bytes | None
        try:
            data = scraper.sock.recv(65_536)
            scraper.request += data
            if _is_whole(scraper.request):
                data = self._answer(scraper)
                scraper.sock.sendall(data or b"")
                scraper.request = b""
        except ConnectionError:
            data = b""
        if data == b"":
            self._selector.unregister(scraper.sock)
            scraper.sock.close()

    def _answer(self, scraper: _Scraper) -> bytes | None:
        """What to send now; nothing, and the connection ends; None, and it stays as it is."""
        method, path = scraper.request.split(maxsplit=2)[:2]
        return _COMPLETION if method == b"POST" else self._page(scraper, path.decode())

    def _page(self, scraper: _Scraper, path: str) -> bytes | None:
        if path == "/scrapes":
            return _response(str(self.scrapes))
        if path.startswith("/fault/"):
            number, fault = path.split("/")[2:]
            self.faults[int(number)] = fault
            return _response(fault)
        self.scrapes += 1
        match self.faults.get(scraper.endpoint):
            case "error":
                return b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n"
            case "garbage":
                return _response("vllm:num_requests_waiting{ \x00 nan nan\n" * 50)
            case "cut":
                return b""
            case "silence":
                return None
            case _:
                return self._answers[(self.scrapes + scraper.endpoint) % LOADS]


def _is_whole(request: bytes) -> bool:
    """Whether a request has come to its end."""
    head, end, body = request.partition(b"\r\n\r\n")
    if not end:
        return False
    length = re.search(rb"\ncontent-length: *(\d+)", head, re.IGNORECASE)
    if length is not None:
        return len(body) >= int(length[1])
    chunked = re.search(rb"\ntransfer-encoding: *chunked", head, re.IGNORECASE)
    return chunked is None or body.endswith(b"0\r\n\r\n")


def _scrape(number: int, idle: bool) -> bytes:
    load = Load(0, 0, 0.0) if idle else Load(number % 5, 16 + number, 0.05 + number / 20)
    return _response(text(load))


def _response(body: str) -> bytes:
    kind = "text/plain; version=0.0.4; charset=utf-8"
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return (head + body).encode()


_COMPLETION: Final = _response(
    '{"id": "c-1", "object": "chat.completion", "model": "m", "choices": [],'
    ' "usage": {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}}'
)


def main(network: str, count: str, state: str = "busy") -> None:
    servers = ModelServers(listen(addresses(network, int(count))), idle=state == "idle")
    print("ready", servers.port, flush=True)
    servers.serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
