"""Fetching over real loopback sockets. M-xx are field reports whose fault a test keeps away."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from weakref import ref

import anyio
import h11
import pytest
from anyio.abc import ByteStream, Listener, SocketAttribute
from anyio.streams.tls import TLSListener
from attrs import define, evolve, field
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from pointsman.actors import fetching
from pointsman.actors.fetching import FetchError, HttpFetching, Line
from pointsman.plugins.sources import MetricsSourceParameters

PLAIN: Final = MetricsSourceParameters()
SECURE: Final = MetricsSourceParameters(scheme="https", insecure_skip_verify=False)
INSECURE: Final = MetricsSourceParameters(scheme="https")
OK: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nx 1\r\n"


@define(eq=False)
class Site:
    """A server that gives the same bytes to every request."""

    answer: bytes = OK
    closes: bool = False
    """Whether each connection ends with its first answer."""
    hangs: bool = False
    requests: list[bytes] = field(factory=list[bytes])
    connections: int = 0
    open: int = 0
    port: int = 0

    async def serve(self, stream: ByteStream) -> None:
        self.connections += 1
        self.open += 1
        try:
            async with stream:
                await self._converse(stream)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return
        finally:
            self.open -= 1

    async def _converse(self, stream: ByteStream) -> None:
        while True:
            self.requests.append(await stream.receive())
            if self.hangs:
                await stream.receive()
            answer, closes = self.answer, self.closes  # those of when it was asked
            await stream.send(answer)
            if closes:
                return

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/metrics"


@asynccontextmanager
async def serving(site: Site, context: ssl.SSLContext | None = None) -> AsyncGenerator[Site]:
    tcp = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    site.port = tcp.extra(SocketAttribute.local_port)
    listener: Listener[Any] = tcp
    if context is not None:
        listener = TLSListener(tcp, ssl_context=context, standard_compatible=False)
    with anyio.fail_after(10):
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, site.serve)
            yield site
            tasks.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await anyio.lowlevel.checkpoint()


async def fetched(site: Site, source: MetricsSourceParameters = PLAIN) -> bytes:
    async with HttpFetching().open(source) as fetch:
        return await fetch(site.url.replace("http", source.scheme, 1))


async def test_a_text_is_fetched() -> None:
    async with serving(Site()) as site:
        assert await fetched(site) == b"x 1\r\n"
        (request,) = site.requests
    assert request.startswith(b"GET /metrics HTTP/1.1\r\n")
    head = request.lower()
    assert f"host: 127.0.0.1:{site.port}\r\n".encode() in head
    assert b"accept-encoding: identity\r\n" in head


async def test_one_connection_serves_one_fetch_after_another() -> None:
    async with serving(Site()) as site, HttpFetching().open(PLAIN) as fetch:
        for _ in range(3):
            await fetch(site.url)
        assert (len(site.requests), site.connections) == (3, 1)


async def test_the_connection_ends_with_the_block() -> None:
    async with serving(Site()) as site:
        async with HttpFetching().open(PLAIN) as fetch:
            await fetch(site.url)
            assert site.open == 1
        await until(lambda: site.open == 0)


async def test_a_connection_that_the_server_closed_is_opened_again() -> None:
    async with serving(Site(closes=True)) as site, HttpFetching().open(PLAIN) as fetch:
        await fetch(site.url)
        await until(lambda: site.open == 0)
        assert await fetch(site.url) == b"x 1\r\n"
        assert site.connections == 2


@pytest.mark.usefixtures("uncollected")
async def test_nothing_is_left_of_a_connection_that_the_server_closed() -> None:
    async with serving(Site(closes=True)) as site:
        line = Line(None)
        await line.fetch(site.url)
        closed = ref(line._http)
        await until(lambda: site.open == 0)
        await line.fetch(site.url)
        assert closed() is None
        await line.close()


async def test_an_answer_that_broke_off_is_not_asked_for_again() -> None:
    async with serving(Site()) as site, HttpFetching().open(PLAIN) as fetch:
        await fetch(site.url)
        site.answer, site.closes = OK[:-1], True
        with pytest.raises(FetchError, match="no proper answer"):
            await fetch(site.url)
        assert (len(site.requests), site.connections) == (2, 1)
        site.answer, site.closes = OK, False
        assert await fetch(site.url) == b"x 1\r\n"


async def test_another_url_has_a_connection_of_its_own() -> None:
    async with (
        serving(Site()) as one,
        serving(Site()) as other,
        HttpFetching().open(PLAIN) as fetch,
    ):
        for site in (one, other, one):
            await fetch(site.url)
        assert (one.connections, other.connections) == (2, 1)


CHUNKED: Final = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nx 1\r\n1\r\n\n\r\n0\r\n\r\n"
)


@pytest.mark.parametrize("answer", [CHUNKED, b"HTTP/1.0 200 OK\r\n\r\nx 1\n"])
async def test_a_text_may_come_without_its_length(answer: bytes) -> None:
    async with serving(Site(answer, closes=True)) as site:
        assert await fetched(site) == b"x 1\n"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n", "HTTP status 500"),
        (b"HTTP/1.1 404 No\r\ncontent-length: 6\r\n\r\nSECRET", "HTTP status 404"),
        (b"HTTP/1.1 302 There\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", "HTTP status 302"),
        (b"\0\xff garbage\r\n\r\n", "no proper answer: "),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nx 1", "no proper answer: "),
        (b"", "no proper answer: "),
    ],
)
async def test_an_answer_that_is_none_says_why(answer: bytes, reason: str) -> None:
    async with serving(Site(answer, closes=True)) as site:
        with pytest.raises(FetchError, match=reason) as failed:
            await fetched(site)
    assert "SECRET" not in str(failed.value)


async def test_a_failure_holds_nothing_of_its_connection() -> None:
    async with serving(Site(b"\0garbage\r\n\r\n")) as site:
        with pytest.raises(FetchError) as failed:
            await fetched(site)
    cause = failed.value.__cause__
    assert isinstance(cause, h11.RemoteProtocolError)
    assert (cause.__traceback__, cause.__context__) == (None, None)


async def test_a_failure_is_no_obstacle_to_the_next_fetch() -> None:
    broken = Site(b"HTTP/1.1 500 Oops\r\ncontent-length: 3\r\n\r\nno!")
    async with serving(broken) as site, HttpFetching().open(PLAIN) as fetch:
        with pytest.raises(FetchError):
            await fetch(site.url)
        site.answer = OK
        assert await fetch(site.url) == b"x 1\r\n"


async def test_a_port_where_nobody_listens_is_a_failure() -> None:
    async with serving(Site()) as site:
        pass
    with pytest.raises(FetchError, match=r"the connection fails: .*refused"):
        await fetched(site)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:x/", "http://127.0.0.1:1/\1", "ftp://127.0.0.1/", "/metrics"]
)
async def test_an_address_that_is_none_is_a_failure(url: str) -> None:
    async with HttpFetching().open(PLAIN) as fetch:
        with pytest.raises(FetchError):
            await fetch(url)


async def test_a_text_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "TEXT_LIMIT", 1000)
    endless = Site(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n" + b"x" * 2000)
    async with serving(endless) as site, HttpFetching().open(PLAIN) as fetch:
        with pytest.raises(FetchError, match="more than 1000 bytes"):
            await fetch(site.url)
        site.answer = OK
        assert await fetch(site.url) == b"x 1\r\n"


async def fetch_after_giving_up() -> None:
    async with serving(Site(hangs=True)) as site, HttpFetching().open(PLAIN) as fetch:

        async def wait_for_an_answer() -> None:
            await fetch(site.url)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_an_answer)
            await until(lambda: bool(site.requests))
            tasks.cancel_scope.cancel()
        site.hangs = False
        assert await fetch(site.url) == b"x 1\r\n"


async def test_a_fetch_that_was_given_up_is_no_obstacle_to_the_next() -> None:
    await fetch_after_giving_up()


def test_a_fetch_that_was_given_up_is_no_obstacle_to_the_next_in_production() -> None:
    """asyncio, as the daemon runs: the pool of one connection must not stay occupied."""
    anyio.run(fetch_after_giving_up)


# -- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a certificate for 127.0.0.1, good for either end, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    here: list[x509.GeneralName] = [x509.IPAddress(ip_address("127.0.0.1"))]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(here), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = tmp_path_factory.mktemp("tls") / "pair.pem"
    path.write_bytes(certificate.public_bytes(Encoding.PEM) + secret)
    return path


def server_context(pair: Path, *, clients: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    if clients:
        context.load_verify_locations(pair)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_a_certificate_is_not_verified_unless_wanted(pair: Path) -> None:
    async with serving(Site(), server_context(pair)) as site:
        assert await fetched(site, INSECURE) == b"x 1\r\n"


async def test_a_certificate_can_be_verified(pair: Path) -> None:
    async with serving(Site(), server_context(pair)) as site:
        assert await fetched(site, evolve(SECURE, ca_cert_path=str(pair))) == b"x 1\r\n"


async def test_a_client_can_show_a_certificate_of_its_own(pair: Path) -> None:
    known = evolve(INSECURE, client_cert_path=str(pair), client_key_path=str(pair))
    async with serving(Site(), server_context(pair, clients=True)) as site:
        assert await fetched(site, known) == b"x 1\r\n"
        with pytest.raises(FetchError):
            await fetched(site, INSECURE)


@pytest.mark.parametrize("order", [(SECURE, INSECURE), (INSECURE, SECURE)])
async def test_m_11_the_leniency_of_one_source_is_not_another_s(
    pair: Path, order: tuple[MetricsSourceParameters, ...]
) -> None:
    together = HttpFetching()

    async def works(site: Site, source: MetricsSourceParameters) -> bool:
        async with together.open(source) as fetch:
            try:
                return await fetch(site.url.replace("http", "https", 1)) == b"x 1\r\n"
            except FetchError:
                return False

    async with serving(Site(), server_context(pair)) as site:
        assert {s.insecure_skip_verify: await works(site, s) for s in (*order, *order)} == {
            True: True,
            False: False,
        }


@pytest.mark.parametrize("ca", ["missing.pem", "garbage.pem"])
async def test_unusable_tls_files_fail_the_fetch_and_nothing_else(tmp_path: Path, ca: str) -> None:
    (tmp_path / "garbage.pem").write_text("not a certificate")
    source = evolve(SECURE, ca_cert_path=str(tmp_path / ca))
    with pytest.raises(FetchError, match="the TLS files of the source cannot be used"):
        await fetched(Site(), source)
