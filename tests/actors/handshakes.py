"""TLS handshakes in memory, and folders of certificates."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from cryptography import x509

from pointsman.actors.sim.kube.certificates import Authority, KeyPair

AUTHORITY = Authority.new()


def issue() -> KeyPair:
    """Another certificate for this machine."""
    return AUTHORITY.server("localhost", "127.0.0.1")


def put(folder: Path, pair: KeyPair) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


class Mounted:
    """A secret as kubelet mounts it: files are links into a folder that is swapped whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._swaps = 0
        folder.mkdir()
        for name in ("tls.crt", "tls.key"):
            (folder / name).symlink_to(f"..data/{name}")

    def swap(self, pair: KeyPair) -> None:
        self._swaps += 1
        name = f"..{self._swaps}"
        put(self.folder / name, pair)
        (self.folder / "..data_tmp").symlink_to(name)
        os.replace(self.folder / "..data_tmp", self.folder / "..data")


def serial(pair: KeyPair) -> int:
    return x509.load_pem_x509_certificate(pair.certificate).serial_number


def client(*protocols: str, shows: Path | None = None) -> ssl.SSLContext:
    """A client that takes any certificate, and may show its own: a file with chain and key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(list(protocols or ("h2",)))
    if shows is not None:
        context.load_cert_chain(shows)
    return context


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, name: str | None = "localhost"
) -> ssl.SSLObject:
    """Both ends of a connection in memory; the client's. Without *name* there is no SNI."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
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


def shown_serial(connection: ssl.SSLObject | ssl.SSLSocket) -> int:
    """The serial number of the certificate that the server showed."""
    shown = connection.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number
