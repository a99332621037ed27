"""The certificate of the daemon's own making."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from pointsman.actors import tls


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Both ends of a connection in memory; the client's."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for end in (ours, theirs):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                continue
    return ours


def client(*protocols: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(list(protocols))
    return context


@pytest.fixture(scope="module")
def server() -> ssl.SSLContext:
    return tls.self_signed()


def test_the_server_speaks_http_2(server: ssl.SSLContext) -> None:
    assert handshake(server, client("h2", "http/1.1")).selected_alpn_protocol() == "h2"


def test_the_certificate_is_the_server_s_own(server: ssl.SSLContext) -> None:
    shown = handshake(server, client("h2")).getpeercert(binary_form=True)
    assert shown is not None
    certificate = x509.load_der_x509_certificate(shown)
    assert certificate.issuer == certificate.subject
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    now = datetime.now(UTC)
    assert certificate.not_valid_before_utc < now
    assert certificate.not_valid_after_utc > now + timedelta(days=3000)


def test_every_process_makes_another_certificate(server: ssl.SSLContext) -> None:
    def shown(context: ssl.SSLContext) -> bytes | None:
        return handshake(context, client("h2")).getpeercert(binary_form=True)

    assert shown(server) == shown(server)
    assert shown(tls.self_signed()) != shown(server)


def test_a_client_that_verifies_refuses_it(server: ssl.SSLContext) -> None:
    strict = ssl.create_default_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, strict)
