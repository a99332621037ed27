"""The files of a certificate, and what can be wrong with them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final, final

from attrs import field, frozen
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from pointsman.kernel.errors import KernelError

CERTIFICATE, KEY = "tls.crt", "tls.key"
SIZE_LIMIT: Final = 1024 * 1024  # bytes
UNREADABLE: Final = (ValueError, UnsupportedAlgorithm, x509.InvalidVersion)


class BadCertificate(KernelError):
    """Files of a certificate cannot be used."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@final
@frozen
class Pair:
    """The contents of the files of one certificate, in PEM."""

    chain: bytes
    """The server's own certificate first."""
    key: bytes = field(repr=False)
    clients: bytes = b""
    """The certificates of those who may vouch for clients; without any, clients show none."""

    @property
    def leaf(self) -> x509.Certificate:
        """The server's own certificate. Raises ValueError."""
        return x509.load_pem_x509_certificates(self.chain)[0]

    @property
    def authorities(self) -> bytes:
        """Those who may vouch for clients, in DER; whatever stands between them is left out.

        Raises ValueError.
        """
        found = x509.load_pem_x509_certificates(self.clients)
        return b"".join(one.public_bytes(serialization.Encoding.DER) for one in found)

    def described(self) -> str:
        """Which certificate it is, for the log."""
        number, until = self.leaf.serial_number, self.leaf.not_valid_after_utc
        expired = "" if until > datetime.now(UTC) else ", which has EXPIRED"
        return f"certificate {number:x}, valid until {until:%Y-%m-%d %H:%M} UTC{expired}"


@final
@frozen
class Files:
    """Where a certificate comes from."""

    folder: Path
    """With ``tls.crt`` and ``tls.key``."""
    clients: Path | None = None

    def read(self) -> Pair:
        """Raises BadCertificate."""
        clients = b"" if self.clients is None else _read(self.clients)
        return Pair(_read(self.folder / CERTIFICATE), _read(self.folder / KEY), clients)

    def check(self, pair: Pair) -> None:
        """Find the mistakes for which OpenSSL has no words that help. Raises BadCertificate."""
        try:
            shown = pair.leaf.public_key()
        except UNREADABLE:
            raise BadCertificate(self.folder / CERTIFICATE, "no certificate in PEM") from None
        if self._private_key(pair).public_key() != shown:
            raise BadCertificate(self.folder, f"{KEY} does not belong to {CERTIFICATE}")
        if self.clients is not None:
            try:
                _ = pair.authorities
            except UNREADABLE:
                raise BadCertificate(self.clients, "no certificate in PEM") from None

    def _private_key(self, pair: Pair) -> PrivateKeyTypes:
        try:
            return serialization.load_pem_private_key(pair.key, None)
        except TypeError:
            problem = "a key with a passphrase cannot be used"
        except UNREADABLE:
            problem = "no private key in PEM"
        raise BadCertificate(self.folder / KEY, problem)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_LIMIT + 1)
    except OSError as exc:
        raise BadCertificate(path, (exc.strerror or str(exc)).lower()) from None
    if len(content) > SIZE_LIMIT:
        raise BadCertificate(path, f"larger than {SIZE_LIMIT} bytes")
    if not content.strip():
        raise BadCertificate(path, "empty")
    return content
