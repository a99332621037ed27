"""How to reach an API server, and how that is kept up to date."""

from __future__ import annotations

import logging
import math
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, final

import anyio
from attrs import define, field, frozen

from .errors import AccessError

logger = logging.getLogger(__name__)

TRY_AGAIN: Final = 10.0  # seconds after a reading that failed while the last one is still good


@final
@frozen
class TlsMaterial:
    """What a TLS context is made of, as PEM. Empty: the system's authorities; no certificate."""

    authorities: str = ""
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    verify: bool = True


@lru_cache(maxsize=2)
def tls_context(material: TlsMaterial) -> ssl.SSLContext:
    """The context for *material*. It blocks: call it in a worker thread.

    Raises:
        OSError: the material is of no use (`ssl.SSLError` is one).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Python 3.13 sets it; many clusters' authorities lack the extensions that it wants.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if material.authorities:
        context.load_verify_locations(cadata=material.authorities)
    elif material.verify:
        context.load_default_certs()
    if not material.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if material.certificate:
        _load_certificate(context, material)
    return context


def _load_certificate(context: ssl.SSLContext, material: TlsMaterial) -> None:
    """The ssl module takes certificates from files only; this one is gone before we return."""
    with TemporaryDirectory() as directory:
        path = Path(directory, "client.pem")
        path.touch(mode=0o600)
        path.write_text(f"{material.certificate}\n{material.key}\n", encoding="ascii")
        context.load_cert_chain(path, password="")  # not to be asked for on a terminal


@final
@frozen
class Access:
    """One reading of the configuration: everything that a request needs."""

    host: str
    """``https://10.0.0.1:443``, perhaps with a path, without a slash at the end."""
    headers: Mapping[str, str] = field(factory=dict[str, str], repr=False)
    """Who we are: ``authorization``, or nothing with a client certificate."""
    material: TlsMaterial | None = None
    """None without TLS."""
    ssl_context: ssl.SSLContext | None = field(default=None, eq=False, repr=False)
    server_name: str = ""
    """The name in the server's certificate, where it is not the host's."""
    proxy: str | None = field(default=None, repr=False)
    good_for: float = field(default=math.inf, eq=False)
    """Seconds after which it should be read again."""

    def shares_connections_with(self, other: Access) -> bool:
        """Whether requests may go over connections that were opened for *other*."""
        return self._way == other._way

    @property
    def _way(self) -> tuple[object, ...]:
        return self.host, self.server_name, self.proxy, self.material


@final
@define(eq=False)
class Login:
    """Keeps access to one API server good: reads it again when that is due, and when refused."""

    read: Callable[[], Awaitable[Access]]
    """Raises AccessError."""
    _access: Access | None = field(default=None, init=False, repr=False)
    _due: float = field(default=0.0, init=False)
    _complaint: str = field(default="", init=False)
    _reading: anyio.Lock = field(factory=anyio.Lock, init=False)

    async def access(self) -> Access:
        """The access to use now; waits for a reading that is due.

        Raises:
            AccessError: there is none, and there is no earlier one that was not refused.
        """
        async with self._reading:
            if self._access is None or anyio.current_time() >= self._due:
                self._access = await self._read_again(self._access)
            return self._access

    async def refused(self, access: Access) -> None:
        """The server did not accept *access*: do not hand it out again without a new reading."""
        async with self._reading:
            if self._access is access:
                self._access = None

    async def _read_again(self, last: Access | None) -> Access:
        try:
            access = await self.read()
        except AccessError as exc:
            if last is None:
                raise
            self._complain(str(exc))
            self._due = anyio.current_time() + TRY_AGAIN
            return last
        self._complaint = ""
        self._due = anyio.current_time() + access.good_for
        return access

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            logger.warning("the credentials stay as they were: %s", complaint)
        self._complaint = complaint
