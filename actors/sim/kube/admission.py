"""What becomes of an object on its way into the store, and what keeps it out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from attrs import frozen

from .crds import check_definition, establish
from .failures import Complaint, bad_request, changed_meanwhile, conflict, forbidden, invalid
from .kinds import DEFINITIONS, NAMESPACES, PODS, Kind
from .objects import (
    Object,
    at,
    clone,
    is_list,
    is_mapping,
    is_terminating,
    name_of,
    uid_of,
    version_of,
)
from .selectors import is_label_key, is_label_value

GRACE: Final = 30  # seconds, for pods that say nothing else
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_SEGMENT: Final = re.compile(r"(?!\.{1,2}\Z)[^/%]+\Z")
_KEPT: Final = (
    "name",
    "namespace",
    "generateName",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
"""Metadata that the server writes and clients cannot."""
_FIRST_STATUS: Final[Object] = {
    "Pod": {"phase": "Pending", "qosClass": "BestEffort"},
    "Namespace": {"phase": "Active"},
}


@frozen(kw_only=True)
class Write:
    """How a change is to be made."""

    part: str = ""
    """What of the object an update is about: everything but the status, or the *status*."""
    whole: bool = False
    """Take the object as it is, with its status, uid and age: the world's word, not a client's."""
    dry_run: bool = False
    strict: bool = False
    """Refuse unknown fields of custom kinds, which otherwise are dropped."""


PLAIN: Final = Write()


@frozen(kw_only=True)
class Birth:
    """What the server adds to a new object."""

    time: str
    uid: str
    suffix: str
    """For a name of which the client gave the beginning."""


def admit_new(kind: Kind, obj: Object, how: Write, birth: Birth) -> Object:
    """Make *obj* ready for its first time in the store; it is changed in place.

    Raises:
        ApiError: 400 or 422, it cannot be taken.
    """
    _check_identity(kind, obj)
    metadata = obj["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = f"{metadata['generateName']}{birth.suffix}"
    server_side = {"uid": birth.uid, "creationTimestamp": birth.time}
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"):
        metadata.pop(field, None)
    obj["metadata"] = {**metadata, **server_side, **(_given(metadata) if how.whole else {})}
    if kind.counts_generations:
        obj["metadata"]["generation"] = 1
    if kind.status and not how.whole:
        _reset_status(kind, obj)
    return _admit(kind, obj, None, how)


def _given(metadata: Object) -> Object:
    return {name: metadata[name] for name in ("uid", "creationTimestamp") if metadata.get(name)}


def _reset_status(kind: Kind, obj: Object) -> None:
    obj.pop("status", None)
    if not kind.custom:
        obj["status"] = clone(_FIRST_STATUS.get(kind.kind, {}))


def admit_change(kind: Kind, obj: Object, old: Object, how: Write) -> Object:
    """Make *obj* ready to replace *old*, which is returned when nothing would change.

    Raises:
        ApiError: 400, 409 or 422, it cannot be taken.
    """
    _check_identity(kind, obj)
    _check_base(kind, obj, old, how)
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _KEPT}
    kept = {name: old["metadata"][name] for name in _KEPT if name in old["metadata"]}
    obj["metadata"] = {**metadata, **kept, "resourceVersion": version_of(old)}
    if kind.status and not how.whole:
        obj = _status_of(kind, obj, old) if how.part == "status" else _with_status(obj, old)
    obj = _admit(kind, obj, old, how)
    if kind.counts_generations and _wanted(obj) != _wanted(old):
        obj["metadata"]["generation"] = kept["generation"] + 1
    return old if obj == old else obj


def _wanted(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name not in ("metadata", "status")}


def _with_status(obj: Object, old: Object) -> Object:
    rest = {name: value for name, value in obj.items() if name != "status"}
    return {**rest, "status": old["status"]} if "status" in old else rest


def _status_of(kind: Kind, obj: Object, old: Object) -> Object:
    """*old* with the status of *obj*; built-in kinds take the labels too."""
    metadata = old["metadata"] if kind.custom else obj["metadata"]
    changed = {**old, "metadata": dict(metadata), "status": obj.get("status")}
    return {name: value for name, value in changed.items() if value is not None}


def _check_identity(kind: Kind, obj: Object) -> None:
    """See that *obj* says what it is, and that it is a *kind*."""
    for field, expected in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if obj.setdefault(field, expected) != expected:
            raise bad_request(f"{field}: expected {expected!r}, got {obj[field]!r}")
    if not is_mapping(obj.get("metadata")):
        raise bad_request("metadata: expected an object")
    for field in ("name", "namespace", "generateName", "uid", "resourceVersion"):
        if not isinstance(obj["metadata"].get(field) or "", str):
            raise bad_request(f"metadata.{field}: expected a string")


def _check_base(kind: Kind, obj: Object, old: Object, how: Write) -> None:
    name, version = name_of(old), version_of(obj)
    if uid_of(obj) not in ("", uid_of(old)):
        raise conflict(kind, name, f"its uid is {uid_of(old)} and not {uid_of(obj)}")
    if not version and kind.needs_version and not how.whole:
        message = "Required value: an update must say what it is based on"
        raise invalid(kind, name, [Complaint("metadata.resourceVersion", message)])
    if version not in ("", version_of(old)):
        raise changed_meanwhile(kind, name)


def _admit(kind: Kind, obj: Object, old: Object | None, how: Write) -> Object:
    """What new and changed objects have in common."""
    obj["metadata"] = {n: v for n, v in obj["metadata"].items() if v not in (None, {}, [], "")}
    complaints = list(_metadata_complaints(kind, obj["metadata"]))
    if complaints:
        raise invalid(kind, name_of(obj), complaints)
    if old is not None and is_terminating(old):
        _check_finalizers(kind, obj, old)
    if kind.schema is not None:
        _fit(kind, obj, old, how)
    elif kind is DEFINITIONS:
        check_definition(obj)
        establish(obj)
    elif kind is PODS:
        _fill_in_pod(obj)
    elif kind is NAMESPACES:
        obj.setdefault("spec", {"finalizers": ["kubernetes"]})
    return obj


def _fit(kind: Kind, obj: Object, old: Object | None, how: Write) -> None:
    """Bring an object of a custom kind into its schema."""
    assert kind.schema is not None
    dropped = kind.schema.prune(obj)
    if dropped and how.strict:
        told = ", ".join(f'unknown field "{path}"' for path in dropped)
        raise bad_request(f"strict decoding error: {told}")
    kind.schema.fill_in(obj)
    complaints = kind.schema.complaints(obj, old)
    if complaints:
        raise invalid(kind, name_of(obj), complaints)


def _fill_in_pod(obj: Object) -> None:
    spec = obj.get("spec")
    if is_mapping(spec):
        spec.setdefault("restartPolicy", "Always")
        spec.setdefault("terminationGracePeriodSeconds", GRACE)


def _check_finalizers(kind: Kind, obj: Object, old: Object) -> None:
    added = set(at(obj, "metadata", "finalizers") or ()) - set(finalizers_of(old))
    if added:
        why = f"it is being deleted and takes no more finalizers: {', '.join(sorted(added))}"
        raise forbidden(kind, name_of(obj), why)


def finalizers_of(obj: Object) -> list[str]:
    return at(obj, "metadata", "finalizers") or []


def _metadata_complaints(kind: Kind, metadata: Object) -> Iterator[Complaint]:
    name = metadata.get("name")
    if not name:
        yield Complaint(
            "metadata.name",
            "Required value: name or generateName is required",
            "FieldValueRequired",
        )
    elif not _is_name(kind, name):
        yield Complaint("metadata.name", f"Invalid value: {name!r} is no name of {kind.plural}")
    yield from _texts("metadata.annotations", metadata.get("annotations"))
    labels = metadata.get("labels")
    yield from _texts("metadata.labels", labels)
    for key, value in labels.items() if is_mapping(labels) else ():
        if not is_label_key(key):
            yield Complaint("metadata.labels", f"Invalid value: {key!r} is no label name")
        if isinstance(value, str) and not is_label_value(value):
            yield Complaint("metadata.labels", f"Invalid value: {value!r} is no label value")
    finalizers = metadata.get("finalizers", [])
    if not is_list(finalizers) or not all(isinstance(item, str) for item in finalizers):
        yield Complaint("metadata.finalizers", "Invalid value: must be a list of strings")


def _texts(field: str, value: Any) -> Iterator[Complaint]:
    mistyped = value is not None and not is_mapping(value)
    if mistyped or (value and not all(isinstance(text, str) for text in value.values())):
        yield Complaint(field, "Invalid value: must map strings to strings")


def _is_name(kind: Kind, name: str) -> bool:
    if kind.group == "rbac.authorization.k8s.io":
        return _SEGMENT.match(name) is not None
    if kind is NAMESPACES:
        return len(name) <= 63 and _LABEL.match(name) is not None
    return len(name) <= 253 and ".." not in name and _SUBDOMAIN.match(name) is not None
