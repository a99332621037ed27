"""Where data about endpoints comes from: what the metrics actor fetches, and what it reads.

The plugins here only say what is wanted; the actors do the fetching.
"""

from __future__ import annotations

from typing import ClassVar, final

from attrs import define, field, frozen

from pointsman.kernel.registry import Stability
from pointsman.kernel.structure import Duration, at_least, not_blank, one_of, within


@frozen(kw_only=True)
class MetricsSourceParameters:
    """Where an endpoint's text is, how it is fetched and how often."""

    tells_load: ClassVar = True
    """Whether an endpoint that does not answer counts as one whose load is not known."""
    scheme: str = field(default="http", validator=one_of("http", "https"))
    path: str = field(default="/metrics", validator=not_blank)
    port: int | None = field(default=None, validator=within(1, 65535))
    """Instead of the endpoint's own port."""
    insecure_skip_verify: bool = True
    ca_cert_path: str = ""
    client_cert_path: str = ""
    client_key_path: str = ""
    interval: Duration | None = field(default=None, validator=at_least(0.05))
    """Instead of ``--refresh-metrics-interval``; seconds."""

    def __attrs_post_init__(self) -> None:
        if bool(self.client_cert_path) != bool(self.client_key_path):
            raise ValueError("clientCertPath and clientKeyPath go together")


@final
@define(eq=False)
class MetricsSource:
    """Fetches each endpoint's metrics over HTTP."""

    type_name: ClassVar = "metrics-data-source"
    stability: ClassVar = Stability.BETA
    parameters: MetricsSourceParameters

    def source(self) -> MetricsSourceParameters:
        return self.parameters


@final
@frozen(kw_only=True)
class FileDiscoveryParameters:
    path: str = field(validator=not_blank)
    watch_file: bool = False
    """Whether later changes of the file are taken in."""


@final
@define(eq=False)
class FileDiscovery:
    """Takes the endpoints from a file instead of from Kubernetes."""

    type_name: ClassVar = "file-discovery"
    stability: ClassVar = Stability.BETA
    parameters: FileDiscoveryParameters

    def discovery(self) -> FileDiscoveryParameters:
        return self.parameters
