"""Definitions of custom kinds: what they add to the server, and what they say of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from .failures import Complaint, invalid
from .kinds import DEFINITIONS, GroupResource, Kind
from .objects import Object, at, is_list, is_mapping, name_of
from .schema import TYPES, Schema

_DNS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")


def resource_of(definition: Object) -> GroupResource:
    return at(definition, "spec", "group"), at(definition, "spec", "names", "plural")


def kinds_of(definition: Object) -> list[Kind]:
    """The kind that *definition* describes, once for each version that is served."""
    spec = definition["spec"]
    names = spec["names"]
    return [
        Kind(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames", ())),
            status=at(version, "subresources", "status") is not None,
            fields=tuple(
                field.get("jsonPath", "").removeprefix(".")
                for field in version.get("selectableFields", ())
            ),
            schema=Schema.of(version["schema"]["openAPIV3Schema"]),
            columns=tuple(version.get("additionalPrinterColumns", ())),
        )
        for version in spec["versions"]
        if version.get("served")
    ]


def check_definition(definition: Object) -> None:
    """Raises: ApiError: 422, the definition cannot be one."""
    complaints = list(_complaints(definition))
    if complaints:
        raise invalid(DEFINITIONS, name_of(definition), complaints)


def _complaints(definition: Object) -> Iterator[Complaint]:
    required = [
        ("spec", "group"),
        ("spec", "scope"),
        ("spec", "names", "plural"),
        ("spec", "names", "kind"),
    ]
    missing = [path for path in required if not isinstance(at(definition, *path), str)]
    for path in missing:
        yield Complaint(".".join(path), "Required value", "FieldValueRequired")
    if missing:
        return
    group, plural = resource_of(definition)
    if name_of(definition) != f"{plural}.{group}":
        yield Complaint("metadata.name", f"Invalid value: must be {plural}.{group}")
    if _DNS_NAME.match(group) is None:
        yield Complaint("spec.group", f"Invalid value: {group!r} is no domain")
    if definition["spec"]["scope"] not in ("Namespaced", "Cluster"):
        yield Complaint("spec.scope", "Unsupported value", "FieldValueNotSupported")
    yield from _version_complaints(definition["spec"].get("versions"))


def _version_complaints(versions: object) -> Iterator[Complaint]:
    if not is_list(versions) or not versions:
        yield Complaint("spec.versions", "Required value", "FieldValueRequired")
        return
    for number, version in enumerate(versions):
        where = f"spec.versions[{number}]"
        if not is_mapping(version) or not isinstance(version.get("name"), str):
            yield Complaint(f"{where}.name", "Required value", "FieldValueRequired")
        elif not is_mapping(at(version, "schema", "openAPIV3Schema")):
            yield Complaint(
                f"{where}.schema.openAPIV3Schema", "Required value", "FieldValueRequired"
            )
        else:
            root = version["schema"]["openAPIV3Schema"]
            yield from _schema_complaints(root, f"{where}.schema.openAPIV3Schema")
    if sum(1 for version in versions if is_mapping(version) and version.get("storage")) != 1:
        yield Complaint("spec.versions", "Invalid value: must have exactly one storage version")


def _schema_complaints(schema: object, where: str) -> Iterator[Complaint]:
    if not is_mapping(schema):
        yield Complaint(where, "Invalid value: must be a schema")
        return
    if schema.get("type", "object") not in TYPES:
        yield Complaint(f"{where}.type", "Unsupported value", "FieldValueNotSupported")
    try:
        re.compile(schema.get("pattern", ""))
    except (re.error, TypeError):
        yield Complaint(f"{where}.pattern", "Invalid value: must be a regular expression")
    properties = schema.get("properties", {})
    if not is_mapping(properties):
        yield Complaint(f"{where}.properties", "Invalid value: must be schemas")
        return
    for name, part in properties.items():
        yield from _schema_complaints(part, f"{where}.properties[{name}]")
    for part in ("items", "additionalProperties"):
        if not isinstance(schema.get(part, True), bool):
            yield from _schema_complaints(schema[part], f"{where}.{part}")


def establish(definition: Object) -> None:
    """Write into *definition* what a server says of one that it has accepted."""
    names = dict(definition["spec"]["names"])
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    definition["spec"]["names"] = names
    definition["spec"].setdefault("conversion", {"strategy": "None"})
    since = definition["metadata"]["creationTimestamp"]
    definition["status"] = {
        "acceptedNames": names,
        "conditions": [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", since),
            _condition("Established", "InitialNamesAccepted", "accepted and served", since),
        ],
        "storedVersions": [v["name"] for v in definition["spec"]["versions"] if v.get("storage")],
    }


def _condition(kind: str, reason: str, message: str, since: str) -> Object:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }
