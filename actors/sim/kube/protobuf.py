"""The few objects that kubectl sends in protobuf only, read into JSON data.

Kubernetes wraps a message in an envelope with its kind. The message's fields have numbers and no
names, so each kind that can be read needs its table here; the server itself always answers JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, final

from attrs import frozen

from .objects import Object

MAGIC: Final = b"k8s\x00"
MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"

Form = Literal["one", "many", "map"]


@final
@frozen
class Field:
    """How one field is called, what it holds, and how often."""

    name: str
    message: Message | None = None
    form: Form = "one"


Message = Mapping[int, Field]

_META: Final[Message] = {
    1: Field("name"),
    2: Field("generateName"),
    3: Field("namespace"),
    11: Field("labels", form="map"),
    12: Field("annotations", form="map"),
    14: Field("finalizers", form="many"),
}
_PLAIN: Final[Message] = {1: Field("metadata", _META)}
_RULE: Final[Message] = {
    1: Field("verbs", form="many"),
    2: Field("apiGroups", form="many"),
    3: Field("resources", form="many"),
    4: Field("resourceNames", form="many"),
    5: Field("nonResourceURLs", form="many"),
}
_ROLE: Final[Message] = {**_PLAIN, 2: Field("rules", _RULE, "many")}
_SUBJECT: Final[Message] = {
    1: Field("kind"),
    2: Field("apiGroup"),
    3: Field("name"),
    4: Field("namespace"),
}
_ROLE_REF: Final[Message] = {1: Field("apiGroup"), 2: Field("kind"), 3: Field("name")}
_BINDING: Final[Message] = {
    **_PLAIN,
    2: Field("subjects", _SUBJECT, "many"),
    3: Field("roleRef", _ROLE_REF),
}
_RESOURCE: Final[Message] = {
    1: Field("namespace"),
    2: Field("verb"),
    3: Field("group"),
    4: Field("version"),
    5: Field("resource"),
    6: Field("subresource"),
    7: Field("name"),
}
_PATH: Final[Message] = {1: Field("path"), 2: Field("verb")}
_ACCESS: Final[Message] = {
    1: Field("resourceAttributes", _RESOURCE),
    2: Field("nonResourceAttributes", _PATH),
}
_KINDS: Final[Mapping[str, Message]] = {
    "Namespace": _PLAIN,
    "ServiceAccount": _PLAIN,
    "ConfigMap": {**_PLAIN, 2: Field("data", form="map")},
    "Role": _ROLE,
    "ClusterRole": _ROLE,
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "SelfSubjectReview": _PLAIN,
    "SelfSubjectAccessReview": {**_PLAIN, 2: Field("spec", _ACCESS)},
}
_IDENTITY: Final[Message] = {1: Field("apiVersion"), 2: Field("kind")}
_PAIR: Final[Message] = {1: Field("key"), 2: Field("value")}


def read_protobuf(data: bytes) -> Object:
    """The object in *data*.

    Raises:
        ValueError: there is none, or none of a kind that can be read.
    """
    if not data.startswith(MAGIC):
        raise ValueError("the message has no envelope")
    parts = dict(_fields(data[len(MAGIC) :]))
    identity = _read(parts.get(1, b""), _IDENTITY)
    message = _KINDS.get(identity.get("kind", ""))
    if message is None:
        raise ValueError(f"{identity.get('kind')} cannot be read from protobuf, only from JSON")
    return {**identity, **_read(parts.get(2, b""), message)}


def _read(data: bytes, message: Message) -> Object:
    found: Object = {}
    for number, value in _fields(data):
        field = message.get(number)
        if field is None:
            continue
        if field.form == "map":
            pair = _read(value, _PAIR)
            found.setdefault(field.name, {})[pair.get("key", "")] = pair.get("value", "")
            continue
        content = _read(value, field.message) if field.message else value.decode()
        if field.form == "many":
            found.setdefault(field.name, []).append(content)
        elif content:  # texts that were not given come as empty ones
            found[field.name] = content
    return found


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The numbers and contents of the fields that have a length; others are passed over."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                _, position = _varint(data, position)
            case 1 | 5:
                position += 8 if tag & 7 == 1 else 4
            case 2:
                length, position = _varint(data, position)
                if position + length > len(data):
                    raise ValueError("the message is cut off")
                yield tag >> 3, data[position : position + length]
                position += length
            case _:
                raise ValueError("this is no message")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("the message is cut off")
