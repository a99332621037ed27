"""Certificates of the daemon's ports: of its own making, or from files that may change."""

from __future__ import annotations

import datetime
import ipaddress
import logging
import os
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

import anyio
from attrs import define, field
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .settling import Settling
from .tls_files import BadCertificate, Files, Pair
from .tls_policy import Policy

logger = logging.getLogger(__name__)

LOOK_EVERY: Final = 1.0  # seconds


@final
@define(eq=False)
class Certificates:
    """A server's certificate from ``tls.crt`` and ``tls.key`` in a folder, kept up to date.

    Give `context` to the listener; it stays the same object. With `run` as a child of the
    supervisor, files that changed are taken in for new connections once they have settled and
    fit together; open connections and everything else go on with what they have::

        certificates = Certificates.load(Path("/etc/certs"), Policy(protocols=("http/1.1",)))
        listen(tls=certificates.context)
        services.start(Child(name="certificates", run=certificates.run))

    With *clients*, a file of CA certificates, only clients that show a certificate by one of
    them are let in.
    """

    files: Files
    policy: Policy
    context: ssl.SSLContext
    _pairs: Settling[Pair]
    _missing: bool = field(default=False, init=False)

    @classmethod
    def load(
        cls, folder: Path, policy: Policy | None = None, clients: Path | None = None
    ) -> Certificates:
        """Read the files for the first time. Raises BadCertificate."""
        files, policy = Files(folder, clients), policy or Policy()
        pair = files.read()
        context = _context(files, policy, pair)
        logger.info("%s: %s", folder, pair.described())
        return cls(files, policy, context, Settling(pair))

    async def run(self) -> None:
        """Look at the files from time to time."""
        while True:
            await anyio.sleep(LOOK_EVERY)
            self.look()

    def look(self) -> None:
        """Take in the files, if they are new and good; say so once if they are not."""
        pair = self._read()
        settled = self._pairs.look(pair)
        if settled is None:
            return
        try:
            fresh = _context(self.files, self.policy, settled)
        except BadCertificate as exc:
            logger.error("the certificate stays as it was: %s", exc)
        else:
            self._swap(fresh)
            folder, described = self.files.folder, settled.described()
            logger.info("%s: new connections get another %s", folder, described)

    def _read(self) -> Pair | None:
        try:
            pair = self.files.read()
        except BadCertificate as exc:
            if not self._missing:
                self._missing = True
                logger.warning("the certificate stays as it was: %s", exc)
            return None
        self._missing = False
        return pair

    def _swap(self, fresh: ssl.SSLContext) -> None:
        """Let handshakes that begin from now on use *fresh*.

        Loading a pair into a context in use would leave a certificate of another kind of key in
        it, beside the new one.
        """

        def choose(connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
            connection.context = fresh

        self.context.sni_callback = choose  # is called for clients without SNI, too


def self_signed(policy: Policy | None = None) -> ssl.SSLContext:
    """A server context with a certificate of its own making, good until the process ends.

    Proxies that talk to a picker with such a certificate do not verify it; it keeps the
    conversation private, not authentic.
    """
    certificate, key = _make_pair()
    context = (policy or Policy()).context()
    _load(context, Pair(certificate, key))
    return context


def _context(files: Files, policy: Policy, pair: Pair) -> ssl.SSLContext:
    """A context of its own for *pair*. Raises BadCertificate, naming what is wrong."""
    files.check(pair)
    context = policy.context()
    try:
        _load(context, pair)
    except ssl.SSLError as exc:
        raise BadCertificate(files.folder, f"OpenSSL refuses it: {exc}") from None
    return context


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    with _readable(pair.key + b"\n" + pair.chain) as path:
        context.load_cert_chain(path, password="")  # or OpenSSL would ask the terminal
    if pair.clients:
        context.load_verify_locations(cadata=pair.authorities)
        context.verify_mode = ssl.CERT_REQUIRED


@contextmanager
def _readable(content: bytes) -> Generator[str, None, None]:
    """A path to *content* in memory, for want of a way to hand it to OpenSSL.

    No key reaches a disk, and a container may have none that can be written to.
    """
    with open(os.memfd_create("certificate"), "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _make_pair() -> tuple[bytes, bytes]:
    """A certificate and its key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Pointsman")])
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
