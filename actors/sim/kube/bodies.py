"""The bodies of requests: objects, patches and options, in JSON or YAML."""

from __future__ import annotations

from typing import Any, Final, TypeVar, final

import msgspec
from attrs import frozen

from .calls import Call
from .failures import ApiError, bad_request
from .kinds import Kind
from .manifests import read_yaml
from .objects import Object, is_list, is_mapping
from .patches import Patch, json_patch, merge_patch, strategic_patch
from .protobuf import MEDIA_TYPE, read_protobuf

T = TypeVar("T")

_JSON_PATCH: Final = "application/json-patch+json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
_APPLY_PATCH: Final = "application/apply-patch+yaml"


@final
@frozen
class Patching:
    """A patch, and whether it may be carried out on an object that is not there."""

    apply: Patch
    creates: bool = False


class Preconditions(msgspec.Struct):
    uid: str | None = None
    resourceVersion: str | None = None


class DeleteOptions(msgspec.Struct):
    """What a client may say of how to delete."""

    gracePeriodSeconds: int | None = None
    preconditions: Preconditions = msgspec.field(default_factory=Preconditions)
    dryRun: tuple[str, ...] = ()


def read_body(call: Call) -> Object:
    """The object in the body of a request.

    Raises:
        ApiError: 400 or 415, there is none.
    """
    value = _value(call)
    if not is_mapping(value):
        raise bad_request("the body is no object")
    if not is_mapping(value.get("metadata") or {}):
        raise bad_request("metadata: expected an object")
    return value


def read_options(call: Call) -> DeleteOptions:
    """Raises: ApiError: 400, the body is no such thing."""
    value = _value(call) if call.request.body else None
    try:
        return msgspec.convert(value or {}, DeleteOptions)
    except msgspec.ValidationError as error:
        raise bad_request(f"DeleteOptions: {error}") from None


def patch_of(kind: Kind, call: Call) -> Patching:
    """The patch in the body of a request.

    Raises:
        ApiError: 400, 415 or 422, there is none.
    """
    value, media = _value(call), _media_type(call)
    if media == _JSON_PATCH:
        if not is_list(value):
            raise bad_request("error decoding patch: a list of operations is needed")
        return Patching(json_patch(value))
    if not is_mapping(value):
        raise bad_request("error decoding patch: an object is needed")
    join = merge_patch if kind.custom else strategic_patch
    if media == _MERGE_PATCH:
        return Patching(merge_patch(value))
    if media == _STRATEGIC_PATCH and not kind.custom:
        return Patching(strategic_patch(value))
    if media == _APPLY_PATCH:
        _check_manager(call)
        return Patching(join(value), creates=True)
    raise _unknown_format(_JSON_PATCH, _MERGE_PATCH, _APPLY_PATCH)


def _check_manager(call: Call) -> None:
    if not call.text("fieldManager"):
        message = "fieldManager: Required value: is required for apply patch"
        raise ApiError(422, f'PatchOptions.meta.k8s.io "" is invalid: {message}')


def _value(call: Call) -> Any:
    media = _media_type(call)
    try:
        if media.endswith("yaml"):
            return read_yaml(call.request.body)
        if media == MEDIA_TYPE:
            return read_protobuf(call.request.body)
        if media.endswith("json"):
            return msgspec.json.decode(call.request.body)
    except ValueError as error:
        raise bad_request(f"the body cannot be read: {error}") from None
    raise _unknown_format("application/json", "application/yaml")


def _media_type(call: Call) -> str:
    given = call.request.headers.get("content-type", "application/json")
    return given.partition(";")[0].strip().lower()


def _unknown_format(*known: str) -> ApiError:
    return ApiError(415, f"the body can be one of these: {', '.join(known)}")
