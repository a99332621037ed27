"""Kubernetes objects, kept as the JSON data they are, and how to look into them.

Objects in the store are never changed in place: whoever writes makes a copy with `clone`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeGuard, TypeVar

import msgspec

T = TypeVar("T")

Object: TypeAlias = dict[str, Any]
"""A JSON object; what its fields hold is a schema's business, not the type checker's."""
ObjectKey = tuple[str, str]
"""Namespace (empty for what belongs to the whole cluster) and name."""


def is_mapping(value: object) -> TypeGuard[Object]:
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def clone(value: T) -> T:
    """A deep copy of JSON data."""
    copy: T = msgspec.json.decode(msgspec.json.encode(value))
    return copy


def at(value: object, *path: str) -> Any:
    """What stands at *path* inside *value*; None when there is nothing."""
    for step in path:
        if not is_mapping(value):
            return None
        value = value.get(step)
    return value


def key_of(obj: Object) -> ObjectKey:
    return at(obj, "metadata", "namespace") or "", name_of(obj)


def name_of(obj: Object) -> str:
    return at(obj, "metadata", "name") or ""


def uid_of(obj: Object) -> str:
    return at(obj, "metadata", "uid") or ""


def version_of(obj: Object) -> str:
    return at(obj, "metadata", "resourceVersion") or ""


def labels_of(obj: Object) -> Mapping[str, str]:
    return at(obj, "metadata", "labels") or {}


def is_terminating(obj: Object) -> bool:
    return at(obj, "metadata", "deletionTimestamp") is not None


def with_metadata(obj: Object, **fields: object) -> Object:
    """A shallow copy of *obj* with some of its metadata replaced."""
    metadata: Object = at(obj, "metadata") or {}
    return {**obj, "metadata": {**metadata, **fields}}


def timestamp(seconds: float) -> str:
    """Unix time as the API writes it, in whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
