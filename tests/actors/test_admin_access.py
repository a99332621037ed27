"""Who may ask the admin port what, as the command line has it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
import trio
from anyio.abc import SocketAttribute
from anyio.streams.tls import TLSStream
from attrs import define
from trio.testing import MockClock

from pointsman.actors.admin import AdminServer
from pointsman.actors.admin_access import AdminAccess, LoggedIn, admin_access
from pointsman.actors.admin_guards import CertificateGuard, Guard
from pointsman.actors.admin_tokens import TokenGuard
from pointsman.actors.cli import make_parser
from pointsman.actors.figures import Figures
from pointsman.actors.http import Request, Response, text_response
from pointsman.actors.kube.access import Access, Login
from pointsman.actors.kube.client import http_transport
from pointsman.actors.serve_flags import check_serve_options
from pointsman.actors.sim.kube.certificates import Authority
from pointsman.actors.sim.kube.identity import User
from pointsman.actors.tls_files import BadCertificate
from pointsman.kernel.channel import Latest

from .daemons import Make
from .handshakes import AUTHORITY, client, issue, put
from .raw_http import GET, Client

OTHERS: Final = Authority.new()
LOOPBACK: Final = "--bind-address=127.0.0.1"
ON, OFF = "--metrics-endpoint-auth", "--metrics-endpoint-auth=false"


@define(eq=False)
class InCluster:
    """What knows a way to the API server."""

    login: Login
    open_transport: Any = http_transport


async def _read() -> Access:
    return Access("http://api")


CLUSTER: Final = InCluster(Login(_read))
FILE: Final = object()


def parsed(*flags: str) -> Any:
    top, parser_of = make_parser()
    options = top.parse_args(["serve", *flags])
    check_serve_options(parser_of("serve"), options)
    return options


def access(*flags: str, discovery: object = CLUSTER) -> AdminAccess:
    return admin_access(parsed(*flags), discovery)


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    put(tmp_path / "certs", issue())
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.pem)
    return tmp_path / "certs"


def mtls(certs: Path) -> tuple[str, str]:
    return f"--metrics-cert-dir={certs}", f"--metrics-client-ca-file={certs.parent / 'ca.crt'}"


# -- the flags ------------------------------------------------------------------------------------


def test_a_way_to_the_api_server_is_recognised() -> None:
    assert isinstance(CLUSTER, LoggedIn)
    assert not isinstance(FILE, LoggedIn)


@pytest.mark.parametrize(
    ("flags", "guarded", "confidential"),
    [
        ((), True, True),
        (("--bind-address=10.0.0.1",), True, True),
        ((OFF,), False, False),
        ((LOOPBACK,), False, True),
        ((LOOPBACK, ON), True, True),
    ],
)
def test_in_a_cluster_a_token_is_wanted_unless_only_the_machine_can_ask(
    flags: tuple[str, ...], guarded: bool, confidential: bool
) -> None:
    found = access(*flags)
    assert [type(guard) for guard in found.guards] == ([TokenGuard] if guarded else [])
    assert found.confidential is confidential
    assert found.tls is None


@pytest.mark.parametrize("flags", [(), (ON,), (OFF,)])
def test_without_an_api_server_no_token_can_be_wanted(
    flags: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    found = access(*flags, discovery=FILE)
    assert found.guards == ()
    assert not found.confidential
    assert ("has no effect" in caplog.text) is (flags == (ON,))


def test_a_certificate_and_a_token_may_both_be_wanted(certs: Path) -> None:
    kinds = [type(guard) for guard in access(*mtls(certs)).guards]
    assert kinds == [CertificateGuard, TokenGuard]
    kinds = [type(guard) for guard in access(*mtls(certs), OFF).guards]
    assert kinds == [CertificateGuard]


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadCertificate, match=r"nowhere/tls\.crt"):
        access(f"--metrics-cert-dir={tmp_path / 'nowhere'}")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--metrics-client-ca-file=f",), "--metrics-client-ca-file needs --metrics-cert-dir"),
        (("--metrics-cert-dir=d", OFF), "--metrics-cert-dir needs --metrics-client-ca-file or"),
    ],
)
def test_flags_that_do_not_fit_together_are_refused(
    flags: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(*flags)
    assert complaint in capsys.readouterr().err


# -- the pages ------------------------------------------------------------------------------------


class Closed:
    """Lets nobody pass."""

    closed = False

    async def refusal(self, request: Request) -> Response | None:
        return text_response("no", 403)

    async def aclose(self) -> None:
        self.closed = True


def server(*guards: Guard, tls: ssl.SSLContext | None = None, port: int = 0) -> AdminServer:
    return AdminServer(
        "127.0.0.1",
        port,
        Latest(value=True),
        Figures(),
        why_not_ready=lambda: "",
        debug={"/debug/answer": lambda: 42},
        guards=guards,
        tls=tls,
    )


@pytest.mark.parametrize(
    ("path", "status"),
    [("/healthz", 200), ("/readyz", 200), ("/metrics", 403), ("/debug/answer", 403), ("/x", 404)],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_guards_stand_before_all_pages_but_health(
    path: str, status: int, method: str
) -> None:
    assert (await server(Closed()).answer(Request(method, path))).status == status


async def test_a_stranger_does_not_learn_which_pages_there_are() -> None:
    response = await server(Closed()).answer(Request("GET", "/x"))
    assert response.body == b'{"error":"no such page"}'


async def test_every_guard_has_to_let_a_request_pass() -> None:
    shown = Request("GET", "/metrics", certified=True)
    assert (await server(CertificateGuard(), Closed()).answer(shown)).status == 403
    assert (await server(CertificateGuard()).answer(shown)).status == 200
    plain = Request("GET", "/metrics")
    assert (await server(CertificateGuard()).answer(plain)).status == 403


# -- over TLS -------------------------------------------------------------------------------------


@asynccontextmanager
async def running(tls: ssl.SSLContext, *guards: Guard) -> AsyncGenerator[int]:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as free:
        port = free.extra(SocketAttribute.local_port)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            await tasks.start(server(*guards, tls=tls, port=port).run)
            yield port
            tasks.cancel_scope.cancel()


async def ask(port: int, path: str, context: ssl.SSLContext) -> int:
    """The status of a page; 0 when the connection is refused."""
    async with await anyio.connect_tcp("127.0.0.1", port) as plain:
        try:
            secure = await TLSStream.wrap(
                plain, server_side=False, ssl_context=context, standard_compatible=False
            )
            status, _ = await Client(secure).ask(GET.replace(b"/a", path.encode()))
        except (ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream):
            return 0
        return status


def showing(authority: Authority, folder: Path) -> ssl.SSLContext:
    """A client with a certificate by *authority*, in TLS 1.2: there it is checked at once."""
    pair = authority.client(User("prometheus"))
    path = folder / "client.pem"
    path.write_bytes(pair.key + pair.certificate)
    context = client("http/1.1", shows=path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


async def test_figures_are_for_clients_with_a_certificate_and_health_for_all(
    certs: Path, tmp_path: Path
) -> None:
    found = access(*mtls(certs), OFF)
    assert found.tls is not None
    async with running(found.tls, *found.guards) as port:
        known, unknown, none = showing(AUTHORITY, tmp_path), showing(OTHERS, tmp_path), client()
        assert await ask(port, "/metrics", known) == 200
        assert await ask(port, "/metrics", none) == 403
        assert await ask(port, "/healthz", none) == 200
        assert await ask(port, "/metrics", unknown) == 0
        assert await ask(port, "/debug/answer", known) == 200


async def test_it_stays_so_with_a_later_certificate(
    certs: Path, tmp_path: Path, autojump_clock: MockClock
) -> None:
    found = access(*mtls(certs), OFF)
    assert found.certificates is not None
    (tmp_path / "ca.crt").write_bytes(OTHERS.pem)
    put(certs, issue())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.certificates.run)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    autojump_clock.autojump_threshold = float("inf")
    autojump_clock.rate = 1.0
    async with running(found.certificates.context, *found.guards) as port:
        assert await ask(port, "/metrics", showing(OTHERS, tmp_path)) == 200
        assert await ask(port, "/metrics", showing(AUTHORITY, tmp_path)) == 0
        assert await ask(port, "/metrics", client()) == 403
        assert await ask(port, "/healthz", client()) == 200


async def test_a_client_that_does_not_speak_tls_holds_up_nobody(certs: Path) -> None:
    found = access(f"--metrics-cert-dir={certs}")
    assert found.tls is not None
    async with running(found.tls) as port, await anyio.connect_tcp("127.0.0.1", port) as plain:
        assert await ask(port, "/metrics", client()) == 200
        await plain.send(GET)
        assert await Client(plain).at_end()
        assert await ask(port, "/metrics", client()) == 200


async def test_the_port_closes_what_its_guards_have_open(certs: Path) -> None:
    found = access(f"--metrics-cert-dir={certs}")
    guard = Closed()
    assert found.tls is not None
    async with running(found.tls, guard) as port:
        assert await ask(port, "/healthz", client()) == 200
        assert not guard.closed
    assert guard.closed


# -- the daemon -----------------------------------------------------------------------------------

IN_KUBERNETES: Final = "plugins: [{type: queue-scorer}]"


@pytest.mark.parametrize(
    ("flags", "guards", "shown"),
    [((), 1, True), ((OFF,), 0, False), ((LOOPBACK,), 0, True), ((LOOPBACK, ON), 1, True)],
)
def test_a_daemon_shows_its_inside_to_whom_it_knows(
    make: Make, flags: tuple[str, ...], guards: int, shown: bool
) -> None:
    daemon = make("--pool-name=p", "--kubeconfig=nowhere", *flags, config=IN_KUBERNETES)
    assert len(daemon.access.guards) == guards
    assert bool(daemon._debug_pages()) is shown
