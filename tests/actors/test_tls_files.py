"""Certificates from files: taken in when they are good, left alone when they are not."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from pointsman.actors.sim.kube.certificates import Authority, KeyPair
from pointsman.actors.sim.kube.identity import User
from pointsman.actors.tls import Certificates
from pointsman.actors.tls_files import BadCertificate
from pointsman.actors.tls_policy import Policy

from .handshakes import AUTHORITY, Mounted, client, handshake, issue, put, serial, shown_serial


@pytest.fixture
def first() -> KeyPair:
    return issue()


@pytest.fixture
def folder(tmp_path: Path, first: KeyPair) -> Path:
    put(tmp_path / "certs", first)
    return tmp_path / "certs"


@pytest.fixture
def watched(folder: Path, nursery: trio.Nursery, autojump_clock: MockClock) -> Certificates:
    certificates = Certificates.load(folder)
    nursery.start_soon(certificates.run)
    return certificates


def shown(certificates: Certificates) -> int:
    return shown_serial(handshake(certificates.context, client()))


def problems(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


# -- at start ----------------------------------------------------------------------------------


def test_the_files_are_what_clients_see(folder: Path, first: KeyPair) -> None:
    certificates = Certificates.load(folder)
    assert shown(certificates) == serial(first)
    assert handshake(certificates.context, client("h2")).selected_alpn_protocol() == "h2"


def test_a_client_that_verifies_is_content(folder: Path) -> None:
    strict = ssl.create_default_context(cadata=AUTHORITY.pem.decode())
    connection = handshake(Certificates.load(folder).context, strict)
    assert connection.version() == "TLSv1.3"


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def with_text(name: str, text: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(text)

    return write


def cut(name: str) -> Callable[[Path], None]:
    def cut(folder: Path) -> None:
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: len(whole) // 2])

    return cut


def foreign_key(folder: Path) -> None:
    (folder / "tls.key").write_bytes(issue().key)


def locked_key(folder: Path) -> None:
    key = serialization.load_pem_private_key((folder / "tls.key").read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    (folder / "tls.key").write_bytes(locked)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without("tls.crt"), "tls.crt: no such file or directory"),
        (without("tls.key"), "tls.key: no such file or directory"),
        (with_text("tls.crt", b""), "tls.crt: empty"),
        (with_text("tls.crt", b"hello"), "tls.crt: no certificate in PEM"),
        (with_text("tls.key", b"x" * (1024 * 1024 + 1)), "tls.key: larger than 1048576 bytes"),
        (cut("tls.crt"), "tls.crt: no certificate in PEM"),
        (cut("tls.key"), "tls.key: no private key in PEM"),
        (foreign_key, "certs: tls.key does not belong to tls.crt"),
        (locked_key, "tls.key: a key with a passphrase cannot be used"),
    ],
)
def test_files_that_cannot_be_used_are_refused_by_name(
    folder: Path, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(folder)
    with pytest.raises(BadCertificate) as refused:
        Certificates.load(folder)
    assert str(refused.value).endswith(said)
    assert str(refused.value).startswith(str(folder))


def test_the_log_says_which_certificate_and_until_when(
    folder: Path, first: KeyPair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    Certificates.load(folder)
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"certificate {serial(first):x}, valid until 20" in line
    assert "EXPIRED" not in line


def in_rsa(valid: timedelta, bits: int = 2048) -> KeyPair:
    """A pair with a key of another kind, valid for that long from an hour ago on."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    start = datetime.now(UTC) - timedelta(hours=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + valid)
        .sign(key, hashes.SHA256())
    )
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    return KeyPair(certificate.public_bytes(pem), key.private_bytes(pem, pkcs8, plain))


def test_the_log_says_when_a_certificate_has_expired(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    put(folder, in_rsa(timedelta(minutes=1)))
    Certificates.load(folder)
    assert caplog.records[-1].getMessage().endswith("UTC, which has EXPIRED")


SOME = issue()
BLOCK = st.sampled_from(
    [
        SOME.certificate,
        SOME.key,
        issue().key,
        AUTHORITY.pem,
        in_rsa(timedelta(days=1)).certificate,
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        b"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n",
    ]
)


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """Something like a PEM file: blocks, some with another byte or cut off."""
    text = bytearray(b"".join(draw(st.lists(BLOCK, max_size=3))) or b"-")
    for _ in range(draw(st.integers(0, 2))):
        text[draw(st.integers(0, len(text) - 1))] = draw(st.integers(0, 255))
    return bytes(text[: draw(st.integers(0, len(text)))])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spoilt(), spoilt(), spoilt())
def test_whatever_is_in_the_files_nothing_else_is_raised(
    tmp_path: Path, chain: bytes, key: bytes, clients: bytes
) -> None:
    """A crash would be repeated until the daemon gives up."""
    for name, content in (("tls.crt", chain), ("tls.key", key), ("ca.crt", clients)):
        (tmp_path / name).write_bytes(content)
    with suppress(BadCertificate):
        Certificates.load(tmp_path, clients=tmp_path / "ca.crt")


def test_what_openssl_refuses_is_refused_with_its_reason(folder: Path) -> None:
    put(folder, in_rsa(timedelta(days=1), bits=1024))
    with pytest.raises(BadCertificate, match=r"certs: OpenSSL refuses it: .*EE_KEY_TOO_SMALL"):
        Certificates.load(folder)


# -- while running -----------------------------------------------------------------------------


async def test_unchanged_files_change_nothing(
    autojump_clock: MockClock, watched: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    before = shown(watched)
    await anyio.sleep(60)
    assert (shown(watched), caplog.records) == (before, [])


async def test_another_pair_is_for_new_connections(
    autojump_clock: MockClock, watched: Certificates, folder: Path
) -> None:
    open_before = handshake(watched.context, client())
    shown_before = shown_serial(open_before)
    second = issue()
    put(folder, second)
    await anyio.sleep(10)
    assert shown(watched) == serial(second)
    assert shown_serial(open_before) == shown_before != serial(second)


async def test_clients_that_name_no_server_get_the_new_pair_too(
    autojump_clock: MockClock, watched: Certificates, folder: Path
) -> None:
    second = issue()
    put(folder, second)
    await anyio.sleep(10)
    nameless = handshake(watched.context, client(), None)
    assert shown_serial(nameless) == serial(second)
    assert nameless.selected_alpn_protocol() == "h2"


async def test_a_pair_is_taken_in_again_and_again(
    autojump_clock: MockClock, watched: Certificates, folder: Path
) -> None:
    for _ in range(3):
        pair = issue()
        put(folder, pair)
        await anyio.sleep(10)
        assert shown(watched) == serial(pair)


async def test_nothing_is_left_of_a_certificate_with_another_kind_of_key(
    autojump_clock: MockClock, watched: Certificates, folder: Path
) -> None:
    """OpenSSL keeps one certificate per kind of key, and would go on showing the old one."""
    put(folder, in_rsa(timedelta(days=1)))
    await anyio.sleep(10)
    old_fashioned = client()
    old_fashioned.maximum_version = ssl.TLSVersion.TLSv1_2
    old_fashioned.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with pytest.raises(ssl.SSLError):
        handshake(watched.context, old_fashioned)


async def test_p_15_a_swap_as_kubelet_does_it_is_noticed(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: MockClock, first: KeyPair
) -> None:
    mounted = Mounted(tmp_path / "secret")
    mounted.swap(first)
    certificates = Certificates.load(mounted.folder)
    nursery.start_soon(certificates.run)
    second = issue()
    mounted.swap(second)
    await anyio.sleep(30)
    assert shown(certificates) == serial(second)


async def test_p_15_a_certificate_whose_key_is_late_waits_for_it(
    autojump_clock: MockClock,
    watched: Certificates,
    folder: Path,
    first: KeyPair,
    caplog: pytest.LogCaptureFixture,
) -> None:
    second = issue()
    (folder / "tls.crt").write_bytes(second.certificate)
    for _ in range(5):
        await anyio.sleep(1)
        assert shown(watched) == serial(first)
    assert problems(caplog) == [
        f"the certificate stays as it was: {folder}: tls.key does not belong to tls.crt"
    ]
    (folder / "tls.key").write_bytes(second.key)
    await anyio.sleep(5)
    assert shown(watched) == serial(second)
    assert len(problems(caplog)) == 1


async def test_p_15_a_half_written_pair_keeps_the_old_one(
    autojump_clock: MockClock, watched: Certificates, folder: Path, first: KeyPair
) -> None:
    second = issue()
    for name, whole in (("tls.key", second.key), ("tls.crt", second.certificate)):
        for size in range(0, len(whole), 100):
            (folder / name).write_bytes(whole[:size])
            await anyio.sleep(1)
            assert shown(watched) == serial(first)
        (folder / name).write_bytes(whole)
    await anyio.sleep(5)
    assert shown(watched) == serial(second)


async def test_files_that_are_gone_are_said_once_per_disappearance(
    autojump_clock: MockClock,
    watched: Certificates,
    folder: Path,
    first: KeyPair,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        (folder / "tls.crt").unlink()
        await anyio.sleep(30)
        assert shown(watched) == serial(first)
        put(folder, first)
        await anyio.sleep(30)
    missing = f"the certificate stays as it was: {folder}/tls.crt: no such file or directory"
    assert problems(caplog) == [missing, missing]


# -- clients -----------------------------------------------------------------------------------


@pytest.fixture
def shows(tmp_path: Path) -> Callable[[Authority], ssl.SSLContext]:
    """Clients that show a certificate by an authority, in TLS 1.2: there it is checked at once."""

    def make(authority: Authority) -> ssl.SSLContext:
        pair = authority.client(User("prometheus"))
        path = tmp_path / "client.pem"
        path.write_bytes(pair.key + pair.certificate)
        context = client("http/1.1", shows=path)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context

    return make


def test_only_clients_of_the_authority_are_let_in(
    folder: Path, tmp_path: Path, shows: Callable[[Authority], ssl.SSLContext]
) -> None:
    (tmp_path / "ca.crt").write_bytes("# Zürich\n".encode() + AUTHORITY.pem)
    certificates = Certificates.load(folder, Policy(protocols=("http/1.1",)), tmp_path / "ca.crt")
    connection = handshake(certificates.context, shows(AUTHORITY))
    assert connection.selected_alpn_protocol() == "http/1.1"
    for stranger in (shows(Authority.new()), client("http/1.1")):
        with pytest.raises(ssl.SSLError):
            handshake(certificates.context, stranger)


async def test_another_authority_for_clients_is_taken_in(
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    folder: Path,
    tmp_path: Path,
    shows: Callable[[Authority], ssl.SSLContext],
) -> None:
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.pem)
    certificates = Certificates.load(folder, clients=tmp_path / "ca.crt")
    nursery.start_soon(certificates.run)
    other = Authority.new()
    (tmp_path / "ca.crt").write_bytes(other.pem)
    await anyio.sleep(10)
    handshake(certificates.context, shows(other))
    with pytest.raises(ssl.SSLError):
        handshake(certificates.context, shows(AUTHORITY))


def test_a_file_of_authorities_that_holds_none_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"hello")
    with pytest.raises(BadCertificate, match=r"ca\.crt: no certificate in PEM"):
        Certificates.load(folder, clients=tmp_path / "ca.crt")
