"""A certificate authority for one run: the server's certificate and those of its clients."""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from attrs import frozen

from .identity import AUTHENTICATED, User

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

VALID: Final = timedelta(days=30)


@final
@frozen
class KeyPair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes


@final
@frozen
class Authority:
    """Signs certificates."""

    certificate: x509.Certificate
    _key: ec.EllipticCurvePrivateKey

    @classmethod
    def new(cls) -> Authority:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = _subject("pointsman-sim", ())
        builder = _builder(name, name, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
        builder = builder.add_extension(_key_usage(signs=True), critical=True)
        return cls(_signed(builder, key, key), key)

    @property
    def pem(self) -> bytes:
        from cryptography.hazmat.primitives import serialization

        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, *names: str) -> KeyPair:
        """A certificate for a server that is reached under these names and addresses."""
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        subject = _subject("kube-apiserver", ())
        return self._issue(subject, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, user: User) -> KeyPair:
        """A certificate with which a client is *user*."""
        from cryptography.x509.oid import ExtendedKeyUsageOID

        groups = [group for group in user.groups if group != AUTHENTICATED]
        return self._issue(_subject(user.name, groups), ExtendedKeyUsageOID.CLIENT_AUTH)

    def server_context(self, *names: str) -> ssl.SSLContext:
        """The TLS side of a server that asks for client certificates and can do without."""
        pair = self.server(*names)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.pem.decode())
        with tempfile.TemporaryDirectory() as folder:  # ssl reads keys from files only
            path = Path(folder) / "pair.pem"
            path.touch(mode=0o600)
            path.write_bytes(pair.key + pair.certificate)
            context.load_cert_chain(path)
        return context

    def _issue(
        self,
        subject: x509.Name,
        use: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None = None,
    ) -> KeyPair:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self.certificate.subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
        builder = builder.add_extension(_key_usage(signs=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(own, critical=False)
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        encoding, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        private = key.private_bytes(encoding, pkcs8, serialization.NoEncryption())
        return KeyPair(_signed(builder, key, self._key).public_bytes(encoding), private)


def _subject(name: str, groups: Sequence[str]) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + VALID)
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(
    builder: x509.CertificateBuilder,
    own: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    identifier = x509.SubjectKeyIdentifier.from_public_key(own.public_key())
    return builder.add_extension(identifier, critical=False).sign(signer, hashes.SHA256())
