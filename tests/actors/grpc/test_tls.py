"""ext_proc over TLS, with real sockets, while certificates change."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.actors.handshakes import AUTHORITY, Mounted, client, issue, serial, shown_serial
from tests.actors.scripts import Desk
from tests.actors.scripts import body as completion

from pointsman.actors.extproc_server_host import TreeServer
from pointsman.actors.tls import Certificates

from .hosting import Conversation, body, grpc, hosted, opening, response_body, response_headers

pytestmark = pytest.mark.long


@contextmanager
def channel_to(port: int) -> Generator[Any]:
    """A client that verifies."""
    credentials = grpc.ssl_channel_credentials(AUTHORITY.pem)
    options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
    with grpc.secure_channel(f"localhost:{port}", credentials, options=options) as channel:
        yield channel


def shown_at(port: int) -> int:
    """The serial number that a new connection sees; ALPN has to come to h2."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        client("h2").wrap_socket(plain) as secure,
    ):
        assert secure.selected_alpn_protocol() == "h2"
        return shown_serial(secure)


@pytest.mark.parametrize("plain", [False, True])
def test_p_15_open_streams_survive_another_certificate(tmp_path: Path, plain: bool) -> None:
    mounted, first, second = Mounted(tmp_path / "secret"), issue(), issue()
    mounted.swap(first)
    certificates = Certificates.load(mounted.folder)
    with hosted(Desk(), plain=plain, tls=certificates.context) as host:
        with channel_to(host.port) as before:
            talk = Conversation(before)
            talk.say(opening(), body(completion()))
            talk.hear(2)
            assert shown_at(host.port) == serial(first)
            mounted.swap(second)
            for _ in range(2):
                host.portal.call(certificates.look)
            assert shown_at(host.port) == serial(second)
            talk.say(response_headers(), response_body(b"still here", end=True))
            assert len(talk.rest()) == 2
            assert talk.code is grpc.StatusCode.OK
        with channel_to(host.port) as after:
            talk = Conversation(after)
            talk.say(opening(), body(completion()))
            assert len(talk.hear(2)) == 2
            talk.call.cancel()


def test_a_client_that_refuses_the_certificate_disturbs_nobody(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path / "secret")
    mounted.swap(issue())
    certificates = Certificates.load(mounted.folder)
    with hosted(Desk(), tls=certificates.context) as host, channel_to(host.port) as channel:
        talk = Conversation(channel)
        talk.say(opening(), body(completion()))
        talk.hear(2)
        with socket.create_connection(("127.0.0.1", host.port), timeout=10) as plain:
            strict = ssl.create_default_context()
            with pytest.raises(ssl.SSLCertVerificationError):
                strict.wrap_socket(plain, server_hostname="localhost")
        talk.say(response_headers(), response_body(b"", end=True))
        assert len(talk.rest()) == 2


def test_a_client_that_has_not_finished_its_handshake_does_not_stop_the_server_from_ending(
    tmp_path: Path,
) -> None:
    """And when it does finish, there is nobody any more."""
    mounted = Mounted(tmp_path / "secret")
    mounted.swap(issue())
    certificates = Certificates.load(mounted.folder)
    with (
        hosted(Desk(), tls=certificates.context) as host,
        socket.create_connection(("127.0.0.1", host.port), timeout=10) as silent,
    ):
        assert shown_at(host.port)  # who came before is accepted, too
        server = host.server._server
        assert server is not None
        host.portal.call(partial(host.server.drain, most=10, quiet=0))
        host.portal.call(server._hang_up)
        with client("h2").wrap_socket(silent) as late:
            while late.recv(1024):
                pass  # the settings that the server begins with


def test_a_peer_without_a_handshake_leaves_nothing_behind(tmp_path: Path) -> None:
    """As do the probes that only look whether the port is open."""
    mounted = Mounted(tmp_path / "secret")
    mounted.swap(issue())
    certificates = Certificates.load(mounted.folder)
    with hosted(Desk(), tls=certificates.context) as host:
        for _ in range(3):
            socket.create_connection(("127.0.0.1", host.port), timeout=10).close()
        assert shown_at(host.port)
        server = host.server._server
        assert server is not None
        host.portal.call(_soon_alone, server)


async def _soon_alone(server: TreeServer) -> None:
    with anyio.fail_after(10):
        await server.until_alone()
