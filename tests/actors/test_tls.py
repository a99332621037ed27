"""The certificate of the daemon's own making."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from pointsman.actors import tls

from .handshakes import client, handshake


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
