"""Where endpoints come from: a file, an InferencePool, or pods by a selector."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

from pointsman.kernel.channel import Latest
from pointsman.kernel.mailbox import Address
from pointsman.kernel.wiring import Wiring
from pointsman.plugins.sources import FileDiscoveryParameters

from .file_discovery import FileDiscovery

HINT: Final = (
    "start with --pool-name or --endpoint-selector, or name a plugin of type file-discovery in "
    "dataLayer.discovery of a --config-file"
)


class Discovery(Protocol):
    """Feeds the datastore with endpoints."""

    @property
    def synced(self) -> Latest[bool]:
        """Whether it has told which endpoints there are, be it that there are none."""
        ...

    async def prepare(self) -> None:
        """Find out whether it can work at all. Raises ConfigError."""
        ...

    async def run(self) -> None: ...

    def ages(self) -> Mapping[str, float]:
        """Seconds since it last heard of its source, by kind of object."""
        ...

    def skipped(self) -> Mapping[str, Sequence[str]]:
        """What is not used as it is, with the reasons, by kind of object."""
        ...


def discovered(wiring: Wiring) -> FileDiscoveryParameters | None:
    """Where endpoints come from, if the configuration says so."""
    found = wiring.discovery.plugin.discovery() if wiring.discovery is not None else None
    return found if isinstance(found, FileDiscoveryParameters) else None


def make_discovery(
    options: argparse.Namespace, wiring: Wiring, datastore: Address[Any], random: Random
) -> Discovery:
    """The configuration comes before the command line, as in the reference system.

    Raises:
        ConfigError: neither says where endpoints come from.
    """
    found = discovered(wiring)
    if found is not None:
        return FileDiscovery(Path(found.path), found.watch_file, datastore)
    if not options.pool_name and not options.endpoint_selector:
        document = wiring.config.document
        document.blame(("dataLayer",), "nothing says where endpoints come from", HINT)
        document.refuse_if_mistaken()
    return _in_kubernetes(options, datastore, random)


def namespace_of(options: argparse.Namespace) -> str:
    """The pool's namespace: the flag, the environment, or ``default``."""
    return options.pool_namespace or os.environ.get("NAMESPACE", "") or "default"


def _in_kubernetes(
    options: argparse.Namespace, datastore: Address[Any], random: Random
) -> Discovery:
    # Whoever takes endpoints from a file does without all this.
    from .kube.config import login
    from .kube.discovery import KubernetesDiscovery, PoolSettings, SelectorSettings

    namespace = namespace_of(options)
    settings = (
        PoolSettings(namespace=namespace, name=options.pool_name, group=options.pool_group)
        if options.pool_name
        else SelectorSettings(
            namespace=namespace,
            name=_deployment(os.environ.get("POD_NAME", "")),
            selector=options.endpoint_selector,
            ports=tuple(dict.fromkeys(options.endpoint_target_ports)),
        )
    )
    access = login(kubeconfig=options.kubeconfig, context=options.context)
    return KubernetesDiscovery(access, settings, datastore, random)


def _deployment(pod: str) -> str:
    """The deployment that a pod's name tells: the name less its two last parts."""
    parts = pod.rsplit("-", 2)
    return parts[0] if len(parts) == 3 else pod or "endpoints"
