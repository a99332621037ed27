"""Who may ask the admin port what, as the command line has it."""

from __future__ import annotations

import argparse
import logging
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, final, runtime_checkable

from attrs import frozen

from .admin_guards import CertificateGuard, Guard
from .tls import Certificates
from .tls_policy import Policy

if TYPE_CHECKING:  # whoever takes endpoints from a file does without all this
    from .kube.access import Login
    from .kube.client import OpenTransport

logger = logging.getLogger(__name__)


@runtime_checkable
class LoggedIn(Protocol):
    """Whoever has a way to the API server."""

    login: Login
    open_transport: OpenTransport


@final
@frozen(kw_only=True)
class AdminAccess:
    """What stands before the pages that are not for everybody."""

    guards: tuple[Guard, ...] = ()
    certificates: Certificates | None = None
    """None: plain HTTP."""
    local: bool = False
    """Only the machine itself can ask."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        return None if self.certificates is None else self.certificates.context

    @property
    def confidential(self) -> bool:
        """Whether the inside may be shown."""
        return self.local or bool(self.guards)


def admin_access(options: argparse.Namespace, discovery: object) -> AdminAccess:
    """As the options say; tokens are for the API server by which *discovery* finds endpoints.

    Raises:
        BadCertificate: the files cannot be used.
    """
    local = options.bind_address is not None and ip_address(options.bind_address).is_loopback
    guards: list[Guard] = []
    certificates = _certificates(options)
    if certificates is not None and options.metrics_client_ca_file:
        guards.append(CertificateGuard())
    wanted = options.metrics_endpoint_auth
    if isinstance(discovery, LoggedIn):
        if wanted or (wanted is None and not local):
            guards.append(_token_guard(discovery))
    elif wanted:
        logger.warning("--metrics-endpoint-auth has no effect: there is no API server to ask")
    return AdminAccess(guards=tuple(guards), certificates=certificates, local=local)


def _token_guard(discovery: LoggedIn) -> Guard:
    from .admin_tokens import TokenGuard
    from .kube.reviews import Reviews

    return TokenGuard(Reviews(discovery.login, discovery.open_transport))


def _certificates(options: argparse.Namespace) -> Certificates | None:
    if not options.metrics_cert_dir:
        return None
    clients = Path(options.metrics_client_ca_file) if options.metrics_client_ca_file else None
    policy = Policy(protocols=("http/1.1",))
    certificates = Certificates.load(Path(options.metrics_cert_dir), policy, clients)
    if clients is not None:
        # Probes have no certificate, and have to be answered: the guard looks at it instead.
        # Connections keep the mode of this context also when they get a later certificate.
        certificates.context.verify_mode = ssl.CERT_OPTIONAL
    return certificates
