"""Daemons as the command line makes them, from flags and a configuration."""

from __future__ import annotations

from collections.abc import Callable

from pointsman.actors.serve import Daemon

CONFIG = """\
plugins:
- {type: queue-scorer}
- {name: endpoints, type: file-discovery, parameters: {path: PATH}}
dataLayer: {discovery: {pluginRef: endpoints}}
"""

Make = Callable[..., Daemon]
"""A daemon from flags, with PATH in its configuration filled in; see the fixture `make`."""
