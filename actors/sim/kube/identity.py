"""Who is asking: bearer tokens and client certificates, turned into users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from attrs import define, field, frozen

from .failures import ApiError

AUTHENTICATED: Final = "system:authenticated"
MASTERS: Final = "system:masters"


@final
@frozen
class User:
    """A name and the groups that it belongs to."""

    name: str
    groups: tuple[str, ...] = ()

    @classmethod
    def known(cls, name: str, *groups: str) -> User:
        """A user who has shown who it is."""
        return cls(name, (*groups, AUTHENTICATED))


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))
ADMIN: Final = User.known("kubernetes-admin", MASTERS)


def service_account(namespace: str, name: str) -> User:
    """The user that pods of a service account are."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return User.known(f"system:serviceaccount:{namespace}:{name}", *groups)


def read_user(text: str) -> User:
    """``NAME[,GROUP...]``, where a service account has the groups that go with its name."""
    name, *groups = text.split(",")
    match name.split(":"):
        case ["system", "serviceaccount", namespace, account]:
            return service_account(namespace, account)
        case _:
            return User.known(name, *groups)


def certified(certificate: Mapping[str, Any]) -> User | None:
    """The user whom a client certificate names; as ``ssl`` gives it, None without one."""
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for key, value in subject if key == "commonName"]
    groups = [value for key, value in subject if key == "organizationName"]
    return User.known(names[0], *groups) if names else None


@final
@define(eq=False)
class Authenticator:
    """Knows the tokens. Tokens may be added and taken away at any time."""

    tokens: dict[str, User] = field(factory=dict[str, User])
    anonymous: bool = True
    """Whether whoever shows nothing is let in, as nobody in particular."""

    def user_of(self, headers: Mapping[str, str], peer: User | None) -> User:
        """The user behind a request that came over the connection of *peer*.

        Raises:
            ApiError: 401, it has shown a wrong token, or nothing where that is too little.
        """
        if peer is not None:
            return peer
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if not scheme:
            if self.anonymous:
                return ANONYMOUS
            raise ApiError(401, "Unauthorized")
        user = self.tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise ApiError(401, "Unauthorized")
        return user
