"""Endpoints from a file, for pools without Kubernetes.

The file is read again when it has changed, also when it was replaced or its directory was
swapped by symlink. What cannot be read leaves the last good set in place; a bad entry costs
only itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final, final

import anyio
from attrs import define, field, frozen

from pointsman.kernel.channel import Latest
from pointsman.kernel.datastore import Change, EndpointSpec, ReplaceEndpoints
from pointsman.kernel.document import Document, Table, read_document
from pointsman.kernel.document import Path as Place
from pointsman.kernel.errors import ConfigError
from pointsman.kernel.mailbox import Address
from pointsman.kernel.structure import FieldError, not_blank, structure

logger = logging.getLogger(__name__)

LOOK_EVERY: Final = 0.5  # seconds
SIZE_LIMIT: Final = 1024 * 1024  # bytes


def _is_address(_: object, attribute: object, value: str) -> None:
    try:
        ip_address("" if "%" in value else value)  # a zone is of this machine, not of the proxy's
    except ValueError:
        raise FieldError("address", f"must be a literal IP address, not {value!r}") from None


def _is_port(_: object, attribute: object, value: str) -> None:
    if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= 65535):
        raise FieldError("port", f"must be a port number in quotes, not {value!r}")


@final
@frozen(kw_only=True)
class FileEndpoint:
    """One entry of the file."""

    name: str = field(validator=not_blank)
    namespace: str = "default"
    address: str = field(validator=_is_address)
    port: str = field(validator=_is_port)
    labels: Mapping[str, str] = field(factory=dict[str, str])
    at: Place = field(default=(), eq=False, repr=False)

    @property
    def spec(self) -> EndpointSpec:
        return EndpointSpec(
            uid=f"{self.namespace}/{self.name}",
            name=self.name,
            namespace=self.namespace,
            address=self.address,
            port=int(self.port),
            labels=self.labels,
        )


@final
@frozen(kw_only=True)
class EndpointsFile:
    endpoints: tuple[FileEndpoint, ...] = ()
    at: Place = field(default=(), eq=False, repr=False)


def read_endpoints(text: str, source: str) -> tuple[list[EndpointSpec], Document]:
    """The endpoints of a file's text; bad entries are left out and noted in the document.

    Raises:
        ConfigError: the text as a whole is no list of endpoints.
    """
    document = read_document(text, source)
    data: object = document.data
    if not isinstance(data, Table) or not isinstance(data.get("endpoints"), list):
        document.blame((), "must be a mapping with a list under the key 'endpoints'")
        document.refuse_if_mistaken()
    read = structure(document, data, EndpointsFile)
    specs: dict[str, EndpointSpec] = {}
    for entry in read.endpoints if read is not None else ():
        if entry.spec.id in specs:
            document.blame(entry.at, f"endpoint {entry.spec.id} is listed twice")
        specs.setdefault(entry.spec.id, entry.spec)
    return list(specs.values()), document


Stamp = tuple[int, int, int]


@final
@define(eq=False)
class FileDiscovery:
    """Feeds the datastore from an endpoints file."""

    path: Path
    watch: bool
    datastore: Address[Change]
    synced: Latest[bool] = field(factory=lambda: Latest(value=False), init=False)
    _complaint: str = field(default="", init=False)

    async def prepare(self) -> None:
        """Raises ConfigError: a file that cannot be read at the start is an error, not a hope."""
        self.read()

    def ages(self) -> Mapping[str, float]:
        return {}

    def skipped(self) -> Mapping[str, Sequence[str]]:
        """What is wrong with the file as it is now."""
        return {str(self.path): [self._complaint]} if self._complaint else {}

    async def run(self) -> None:
        """Deliver the file's endpoints, and its changes when they are watched."""
        taken = self._stamp()
        await self._take_in()
        while self.watch:
            await anyio.sleep(LOOK_EVERY)
            seen = self._stamp()
            if seen != taken:
                await self._settled(seen)
                taken = self._stamp()
                await self._take_in()

    async def _settled(self, seen: Stamp | None) -> None:
        """Wait until a file that is being written stays as it is for one look."""
        while True:
            await anyio.sleep(LOOK_EVERY)
            if (now := self._stamp()) == seen:
                return
            seen = now

    async def _take_in(self) -> None:
        try:
            specs = self.read()
        except ConfigError as exc:
            self._complain(f"the endpoints stay as they were: {exc}")
        else:
            await self._deliver(specs)

    async def _deliver(self, specs: list[EndpointSpec]) -> None:
        await self.datastore.tell(ReplaceEndpoints(specs))
        self.synced.set(True)
        logger.info("%s lists %d endpoints", self.path, len(specs))

    def _stamp(self) -> Stamp | None:
        """Changes whenever the file does, or another file takes its place."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size

    def read(self) -> list[EndpointSpec]:
        """What the file lists now. Raises ConfigError when it cannot be read."""
        specs, document = read_endpoints(read_text(self.path), str(self.path))
        self._complain("; ".join(map(str, document.mistakes)))
        return specs

    def _complain(self, complaint: str) -> None:
        """Say what is wrong, once for each thing that is."""
        if complaint and complaint != self._complaint:
            logger.warning("%s", complaint)
        self._complaint = complaint


def read_text(path: Path) -> str:
    """A configuration file's text.

    Raises:
        ConfigError: it cannot be read, is no text, or is too large to be meant.
    """
    document = Document(str(path))
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_LIMIT + 1)
        if len(content) > SIZE_LIMIT:
            document.blame((), f"the file is larger than {SIZE_LIMIT} bytes")
        text = content.decode("utf-8")
    except OSError as exc:
        document.blame((), exc.strerror or str(exc))
        text = ""
    except UnicodeDecodeError as exc:
        document.blame((), f"the file is no UTF-8 text: {exc.reason}")
        text = ""
    document.refuse_if_mistaken()
    return text
