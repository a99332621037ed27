"""What can go wrong between us and an API server. All of it may be over at the next attempt."""

from __future__ import annotations

from typing import Final


class KubeError(Exception):
    """Base of the errors that a follower survives."""

    retry_after: float = 0.0
    """Seconds for which the server asked not to be asked again."""


class AccessError(KubeError):
    """There is no usable configuration or no credential; says where that was found out."""


class ApiError(KubeError):
    """A request that did not bring what it was sent for."""

    def __init__(self, verb: str, resource: str, reason: str, *, retry_after: float = 0.0) -> None:
        super().__init__(verb, resource, reason)
        self.verb = verb
        self.resource = resource
        self.reason = reason
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"cannot {self.verb} {self.resource}: {self.reason}"


class Unauthorized(ApiError):
    """401, also with credentials that were read again."""


class Forbidden(ApiError):
    """403: the role lacks this verb on this resource."""

    def __str__(self) -> str:
        return f"no right to {self.verb} {self.resource}: {self.reason}"


class NotInstalled(ApiError):
    """404: the server does not know the resource, because its definition is missing."""

    def __str__(self) -> str:
        return f"cannot {self.verb} {self.resource}, is its definition installed? {self.reason}"


class Expired(ApiError):
    """410: the history after this version, or the rest of this list, is no longer kept."""


class Throttled(ApiError):
    """429."""


class Unavailable(ApiError):
    """No answer, or one that is of no use: network, TLS, time-out, 5xx, garbage."""


class Interrupted(Unavailable):
    """A watch that was running broke off or ended before its time."""


_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotInstalled,
    410: Expired,
    429: Throttled,
}


def error_for(status: int) -> type[ApiError]:
    """The class for an HTTP status, or for the code of a Status object."""
    return _BY_STATUS.get(status, Unavailable)
