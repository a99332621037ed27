"""The four ways to say what should change of an object, as functions from old to new.

Merge (RFC 7386), JSON (RFC 6902) and strategic merge patches. Server-side apply is taken as a
merge that creates what is not there: who owns which field is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from .failures import ApiError, bad_request
from .objects import Object, clone, is_list, is_mapping

Patch = Callable[[Object], Object]

MERGE_KEYS: Final = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "port"),
    "conditions": ("type",),
    "containerStatuses": ("name",),
    "podIPs": ("ip",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "secrets": ("name",),
}
"""Lists of built-in kinds that a strategic merge joins item by item; others are replaced."""
_MERGED_VALUES: Final = ("finalizers",)


def merge_patch(patch: Object) -> Patch:
    return lambda old: _merged(old, patch)


def _merged(old: Any, patch: Any) -> Any:
    if not is_mapping(patch):
        return patch
    merged: Object = dict(old) if is_mapping(old) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


def strategic_patch(patch: Object) -> Patch:
    return lambda old: _joined(old, patch)


def _joined(old: Any, patch: Object) -> Object:
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    joined: Object = dict(old) if is_mapping(old) else {}
    for name, value in patch.items():
        if name.startswith("$"):
            _direct(joined, name, value)
        elif value is None:
            joined.pop(name, None)
        else:
            joined[name] = _joined_value(name, joined.get(name), value)
    return joined


def _direct(joined: Object, directive: str, value: Any) -> None:
    """Carry out what a patch says beside its values."""
    if directive.startswith("$deleteFromPrimitiveList/"):
        name = directive.partition("/")[2]
        joined[name] = [item for item in joined.get(name, []) if item not in value]
    elif directive == "$retainKeys":
        for name in joined.keys() - set(value):
            del joined[name]


def _joined_value(name: str, old: Any, value: Any) -> Any:
    if is_mapping(value):
        return _joined(old, value)
    if not is_list(value):
        return value
    if name in _MERGED_VALUES and is_list(old):
        return old + [item for item in value if item not in old]
    key = next((key for key in MERGE_KEYS.get(name, ()) if _all_have(key, value)), None)
    return value if key is None else _joined_list(key, old if is_list(old) else [], value)


def _all_have(key: str, items: list[Any]) -> bool:
    return all(is_mapping(item) and (key in item or "$patch" in item) for item in items)


def _joined_list(key: str, old: list[Any], patches: list[Any]) -> list[Any]:
    if any(patch.get("$patch") == "replace" for patch in patches):
        return [patch for patch in patches if "$patch" not in patch]
    joined = {item.get(key): item for item in old if is_mapping(item)}
    for patch in patches:
        if patch.get("$patch") == "delete":
            joined.pop(patch.get(key), None)
        else:
            joined[patch[key]] = _joined(joined.get(patch[key]), patch)
    return list(joined.values())


def json_patch(operations: Sequence[object]) -> Patch:
    """The patch of a list of operations.

    Raises:
        ApiError: 400 when they are none, 422 (from the patch) when one cannot be carried out.
    """
    checked = [_checked(operation) for operation in operations]

    def patch(old: Object) -> Object:
        document: Object = clone(old)
        for operation in checked:
            _apply(document, operation)
        return document

    return patch


def _checked(operation: object) -> Object:
    if not is_mapping(operation) or not _is_pointer(operation.get("path")):
        raise bad_request(f"error decoding patch: {operation!r} is no operation")
    needs = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from"}
    kind = operation.get("op")
    if kind != "remove" and needs.get(str(kind)) not in operation:
        raise bad_request(f"error decoding patch: {operation!r} is no operation")
    if kind in ("move", "copy") and not _is_pointer(operation["from"]):
        raise bad_request(f"error decoding patch: {operation!r} is no operation")
    return operation


def _is_pointer(value: object) -> bool:
    return isinstance(value, str) and value.startswith("/")


def _apply(document: Object, operation: Object) -> None:
    kind, path = operation["op"], operation["path"]
    match kind:
        case "add":
            _put(document, path, clone(operation["value"]), insert=True)
        case "replace":
            _take(document, path, remove=False)
            _put(document, path, clone(operation["value"]), insert=False)
        case "remove":
            _take(document, path, remove=True)
        case "test":
            if _take(document, path, remove=False) != operation["value"]:
                raise _impossible(f"testing value {path} failed")
        case _:
            value = _take(document, operation["from"], remove=kind == "move")
            _put(document, path, clone(value), insert=True)


def _take(document: Object, pointer: str, *, remove: bool) -> Any:
    parent, step = _find(document, pointer)
    value = _child(parent, step, pointer)
    if remove:
        del parent[int(step) if is_list(parent) else step]
    return value


def _put(document: Object, pointer: str, value: Any, *, insert: bool) -> None:
    parent, step = _find(document, pointer)
    if is_mapping(parent):
        parent[step] = value
        return
    if not is_list(parent) or not (step == "-" or step.isdecimal()):
        raise _nothing_at(pointer)
    index = len(parent) if step == "-" else int(step)
    if index > len(parent):
        raise _impossible(f"{pointer}: the list has only {len(parent)} items")
    parent[index : index + (not insert)] = [value]


def _find(document: Object, pointer: str) -> tuple[Any, str]:
    """The container of what *pointer* points to, and the last step to it."""
    *path, last = [s.replace("~1", "/").replace("~0", "~") for s in pointer.split("/")[1:]]
    value: Any = document
    for step in path:
        value = _child(value, step, pointer)
    return value, last


def _child(parent: Any, step: str, pointer: str) -> Any:
    if is_mapping(parent) and step in parent:
        return parent[step]
    if is_list(parent) and step.isdecimal() and int(step) < len(parent):
        return parent[int(step)]
    raise _nothing_at(pointer)


def _nothing_at(pointer: str) -> ApiError:
    return _impossible(f"{pointer}: there is nothing at this path")


def _impossible(why: str) -> ApiError:
    return ApiError(422, f"the patch cannot be carried out: {why}")
