"""One API server and one namespace in it, as all followers see them."""

from __future__ import annotations

from random import Random
from typing import final

from attrs import frozen

from .access import Login
from .client import Client, OpenTransport, http_transport
from .kinds import Kind, O, Selection
from .reflector import Publish, Reflector


@final
@frozen(eq=False)
class Cluster:
    """Makes reflectors, each with a connection of its own."""

    login: Login
    namespace: str
    random: Random
    open_transport: OpenTransport = http_transport

    def reflector(
        self, kind: Kind[O], publish: Publish[O], *, labels: str = "", fields: str = ""
    ) -> Reflector[O]:
        """A reflector for a kind that must be there."""
        selection = Selection(kind, self.namespace, labels, fields)
        return Reflector(selection, self._client(), publish, self.random)

    def optional_reflector(
        self, kind: Kind[O], publish: Publish[O], *, absence: int
    ) -> Reflector[O]:
        """A reflector for a kind that need not be installed, and the log level to say so."""
        return Reflector(
            Selection(kind, self.namespace),
            self._client(),
            publish,
            self.random,
            optional=True,
            absence=absence,
        )

    def _client(self) -> Client:
        return Client(self.login, self.random, self.open_transport)
