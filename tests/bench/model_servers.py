"""Model servers as far as a scraper can tell: one process, many addresses, one port.

A scrape costs next to nothing here, so what a bench measures is the scraper. Each address tells
another load, and another one with every scrape; ``GET /scrapes`` counts the scrapes so far.

    python -m tests.bench.model_servers 127.0.1 10      serves 127.0.1.1 to 127.0.1.10; prints
                                                        "ready PORT" and serves until a signal;
                                                        a third word "idle" takes the load away
"""

from __future__ import annotations

import selectors
import socket
import sys
from typing import Final

from attrs import define, field

from .vllm_metrics import Load, text

LOADS: Final = 16
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
        try:
            data = scraper.sock.recv(65_536)
            scraper.request += data
            if scraper.request.endswith(b"\r\n\r\n"):
                scraper.sock.sendall(self._answer(scraper))
                scraper.request = b""
        except ConnectionError:
            data = b""
        if not data:
            self._selector.unregister(scraper.sock)
            scraper.sock.close()

    def _answer(self, scraper: _Scraper) -> bytes:
        if scraper.request.startswith(b"GET /scrapes "):
            return _response(str(self.scrapes))
        self.scrapes += 1
        return self._answers[(self.scrapes + scraper.endpoint) % LOADS]


def _scrape(number: int, idle: bool) -> bytes:
    load = Load(0, 0, 0.0) if idle else Load(number % 5, 16 + number, 0.05 + number / 20)
    return _response(text(load))


def _response(body: str) -> bytes:
    kind = "text/plain; version=0.0.4; charset=utf-8"
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return (head + body).encode()


def main(network: str, count: str, state: str = "busy") -> None:
    servers = ModelServers(listen(addresses(network, int(count))), idle=state == "idle")
    print("ready", servers.port, flush=True)
    servers.serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
