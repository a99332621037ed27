"""The answers of a server that does not do what it was asked, as ``Status`` objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from pointsman.kernel.errors import KernelError

from .kinds import Kind
from .objects import Object

REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ApiError(Exception):
    """A request that is refused with a ``Status``."""

    def __init__(
        self, code: int, message: str, *, reason: str = "", details: Object | None = None
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.reason = reason or REASONS.get(code, "")
        self.details = details

    def __str__(self) -> str:
        return self.message

    @property
    def status(self) -> Object:
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }
        return {field: value for field, value in status.items() if value is not None}


class NoSuchPath(Exception):
    """The server has nothing at all at a path; it says so in plain text, not with a ``Status``."""


class NoSuchKind(KernelError):
    """The simulation is to hold an object of a kind that it does not serve."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind

    def __str__(self) -> str:
        return f"no such kind is served: {self.kind}"


@frozen
class Complaint:
    """What is wrong with one field of an object."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


def not_found(kind: Kind, name: str) -> ApiError:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return ApiError(404, f'{kind.qualified} "{name}" not found', details=details)


def already_exists(kind: Kind, name: str) -> ApiError:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    message = f'{kind.qualified} "{name}" already exists'
    return ApiError(409, message, reason="AlreadyExists", details=details)


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    message = f'{kind.qualified} "{name}" cannot be changed: {why}'
    return ApiError(409, message, details=details)


def changed_meanwhile(kind: Kind, name: str) -> ApiError:
    return conflict(kind, name, "it is based on an older version than the one that is there")


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return ApiError(403, f'{kind.qualified} "{name}" is forbidden: {why}', details=details)


def invalid(kind: Kind, name: str, complaints: Sequence[Complaint]) -> ApiError:
    causes = [
        {"reason": complaint.reason, "message": complaint.message, "field": complaint.field}
        for complaint in complaints
    ]
    told = [f"{complaint.field}: {complaint.message}" for complaint in complaints]
    what = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    listed = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    details = {"name": name, "group": kind.group, "kind": kind.kind, "causes": causes}
    return ApiError(422, f'{what} "{name}" is invalid: {listed}', details=details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, message)


def too_old(wanted: int, oldest: int) -> ApiError:
    return ApiError(410, f"too old resource version: {wanted} ({oldest})")


def continue_too_old() -> ApiError:
    return ApiError(410, "the rest of this list is no longer known; list from the beginning")


def too_new(wanted: int, newest: int) -> ApiError:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(
        504,
        f"Too large resource version: {wanted}, current: {newest}",
        details={"retryAfterSeconds": 1, "causes": causes},
    )
