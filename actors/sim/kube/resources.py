"""What the verbs do with the objects in the store: calls in, responses out."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, final

import msgspec
from attrs import define, field

from pointsman.actors.http import JSON, Response, json_response
from pointsman.kernel.channel import Latest

from .admission import Write
from .bodies import patch_of, read_body, read_options
from .calls import Call
from .failures import ApiError, Complaint, NoSuchPath, bad_request, invalid, too_new
from .faults import Faults
from .identity import User
from .kinds import Kind
from .objects import Object, ObjectKey, at, name_of, uid_of, version_of, with_metadata
from .reviews import Reviewer
from .selectors import FieldTerm, Selection, parse_fields, parse_labels
from .store import Deletion, Page, Place, Store
from .tables import table, wants_table
from .watching import Watch

WATCH_TIME: Final = (1800.0, 3600.0)  # seconds; a watch that names no end has one between these
_OF_STATUS: Final = ("get", "patch", "update")

Answer = Callable[[Kind, Call, User], Response]


@final
@define(eq=False)
class Resources:
    """Answers the calls that are about objects."""

    store: Store
    reviewer: Reviewer
    faults: Faults
    pulse: Latest[int]
    random: Random
    watches: set[Watch] = field(factory=set[Watch], init=False)
    """Those that are open."""
    _verbs: Mapping[str, Answer] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._verbs = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_all,
        }

    def answer(self, call: Call, user: User) -> Response:
        """Carry out *call*, to which *user* has the right.

        Raises:
            ApiError: it cannot be done.
            NoSuchPath: there is no such resource.
        """
        kind = self.store.kinds.get(call.group, call.version, call.resource)
        if kind is None or (call.name and kind.namespaced and not call.namespace):
            raise NoSuchPath
        if call.subresource and not (call.subresource == "status" and kind.status):
            raise ApiError(404, f"{kind.qualified} have no {call.subresource}")
        if call.verb not in self._verbs or not _allows(kind, call):
            raise _not_allowed()
        return self._verbs[call.verb](kind, call, user)

    def _get(self, kind: Kind, call: Call, user: User) -> Response:
        obj = self.store.get(kind, _key(kind, call))
        return json_response(self._shown(kind, call)(obj))

    def _list(self, kind: Kind, call: Call, user: User) -> Response:
        selection, limit = _selection(kind, call), call.number("limit") or 0
        if call.text("resourceVersion") == "0":
            limit = 0
        page = self.store.collect(kind, selection, limit=limit, place=self._place(call))
        metadata = _list_metadata(page, counted=not selection.narrows)
        if wants_table(call):
            return json_response(table(kind, call, page.items, self.store.now(), metadata))
        return json_response(_listed(kind, page, metadata))

    def _shown(self, kind: Kind, call: Call) -> Callable[[Object], Object]:
        """How an object is shown to the client."""
        if not wants_table(call):
            return lambda obj: obj
        return lambda obj: table(
            kind, call, [obj], self.store.now(), {"resourceVersion": version_of(obj)}
        )

    def _place(self, call: Call) -> Place | None:
        """As of when a list is wanted, and after which object."""
        token, revision = call.text("continue"), _revision(call)
        match call.text("resourceVersionMatch"):
            case "" | "NotOlderThan":
                exact = False
            case "Exact" if revision:
                exact = True
            case other:
                raise bad_request(f"resourceVersionMatch: {other!r} is not possible here")
        if token and revision:
            raise bad_request("resourceVersion: not possible together with continue")
        if token:
            return _read_token(token)
        if exact and revision:
            return Place(revision=revision)
        if revision and revision > self.store.revision:
            raise too_new(revision, self.store.revision)
        return None

    def _watch(self, kind: Kind, call: Call, user: User) -> Response:
        if call.text("sendInitialEvents"):
            message = "Forbidden: sendInitialEvents is not known to this server"
            raise invalid(kind, "", [Complaint("sendInitialEvents", message)])
        cursor = self.store.watch(kind, _selection(kind, call), _revision(call) or None)
        timeout = call.number("timeoutSeconds")
        watch = Watch(
            call,
            cursor,
            self.store.kinds,
            self.faults,
            self.pulse,
            timeout or self.random.uniform(*WATCH_TIME),
            call.flag("allowWatchBookmarks"),
            self._shown(kind, call),
        )
        self.watches.add(watch)
        return Response(200, watch.lines(), JSON, lambda: self.watches.discard(watch))

    def _create(self, kind: Kind, call: Call, user: User) -> Response:
        obj = _in_namespace(kind, call, read_body(call))
        if kind.is_review:
            return json_response(self.reviewer.answer(kind, obj, user, call.namespace), 201)
        return json_response(self.store.create(kind, obj, _write(call)), 201)

    def _update(self, kind: Kind, call: Call, user: User) -> Response:
        obj = _in_namespace(kind, call, read_body(call))
        _set_name(call, obj)
        return json_response(self.store.update(kind, obj, _write(call)))

    def _patch(self, kind: Kind, call: Call, user: User) -> Response:
        key = _key(kind, call)
        patch = patch_of(kind, call)
        if patch.creates and key not in self.store.objects(kind):
            obj = _in_namespace(kind, call, patch.apply({"metadata": {"name": call.name}}))
            return json_response(self.store.create(kind, obj, _write(call)), 201)
        return json_response(self.store.patch(kind, key, patch.apply, _write(call)))

    def _delete(self, kind: Kind, call: Call, user: User) -> Response:
        key = _key(kind, call)
        obj = self.store.delete(kind, key, _deletion(call))
        remains = uid_of(self.store.objects(kind).get(key, {})) == uid_of(obj)
        if kind.returns_deleted or remains:
            return json_response(obj)
        return json_response(_success(kind, obj))

    def _delete_all(self, kind: Kind, call: Call, user: User) -> Response:
        page = self.store.delete_all(kind, _selection(kind, call), _deletion(call))
        return json_response(_listed(kind, page, _list_metadata(page, counted=False)))


def _allows(kind: Kind, call: Call) -> bool:
    """Whether the verb is possible at this path."""
    if call.verb not in kind.verbs or (call.subresource and call.verb not in _OF_STATUS):
        return False
    named = {"create": False, "update": True, "patch": True}
    return named.get(call.verb, bool(call.name)) == bool(call.name)


def _not_allowed() -> ApiError:
    return ApiError(405, "the method is not possible at this path")


def _key(kind: Kind, call: Call) -> ObjectKey:
    return (call.namespace if kind.namespaced else ""), call.name


def _selection(kind: Kind, call: Call) -> Selection:
    fields = parse_fields(call.text("fieldSelector"), kind)
    if call.name:
        fields = (*fields, FieldTerm(("metadata", "name"), call.name))
    namespace = call.namespace if kind.namespaced else ""
    return Selection(namespace, parse_labels(call.text("labelSelector")), fields)


def _revision(call: Call) -> int:
    """The ``resourceVersion`` of the query; 0 when any will do."""
    text = call.text("resourceVersion")
    if text and not text.isdecimal():
        raise bad_request(f"resourceVersion: Invalid value: {text!r}")
    return int(text or 0)


def _write(call: Call) -> Write:
    return Write(
        part=call.subresource,
        dry_run=call.dry_run,
        strict=call.text("fieldValidation") == "Strict",
    )


def _deletion(call: Call) -> Deletion:
    options = read_options(call)
    grace = call.number("gracePeriodSeconds")
    return Deletion(
        grace=options.gracePeriodSeconds if grace is None else grace,
        uid=options.preconditions.uid or "",
        version=options.preconditions.resourceVersion or "",
        dry_run=call.dry_run or bool(options.dryRun),
    )


def _in_namespace(kind: Kind, call: Call, obj: Object) -> Object:
    """*obj* with the namespace of the path, which it may leave out."""
    if not kind.namespaced or kind.is_review:
        return obj
    if not call.namespace:
        raise _not_allowed()
    if at(obj, "metadata", "namespace") not in (None, "", call.namespace):
        raise bad_request("metadata.namespace: differs from the namespace of the path")
    return with_metadata(obj, namespace=call.namespace)


def _set_name(call: Call, obj: Object) -> None:
    name = at(obj, "metadata", "name")
    if name != call.name:
        raise bad_request(f"metadata.name: expected {call.name!r} as in the path, got {name!r}")


def _success(kind: Kind, obj: Object) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {
            "name": name_of(obj),
            "group": kind.group,
            "kind": kind.plural,
            "uid": uid_of(obj),
        },
    }


def _list_metadata(page: Page, *, counted: bool) -> Object:
    metadata: Object = {"resourceVersion": str(page.revision)}
    if page.rest is not None:
        metadata["continue"] = _write_token(page.rest)
        if counted:
            metadata["remainingItemCount"] = page.remaining
    return metadata


def _listed(kind: Kind, page: Page, metadata: Object) -> Object:
    items = page.items if kind.custom else [_bare(item) for item in page.items]
    identity = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version}
    return {**identity, "metadata": metadata, "items": items}


def _bare(obj: Object) -> Object:
    """*obj* as lists of built-in kinds have it: they say once what their items are."""
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}


def _write_token(place: Place) -> str:
    encoded = msgspec.json.encode({"rv": place.revision, "start": place.after})
    return urlsafe_b64encode(encoded).decode().rstrip("=")


class _Token(msgspec.Struct):
    rv: int
    start: tuple[str, str]


def _read_token(text: str) -> Place:
    try:
        padded = text + "=" * (-len(text) % 4)
        token = msgspec.json.decode(urlsafe_b64decode(padded), type=_Token)
    except (ValueError, msgspec.DecodeError):
        raise bad_request(f"continue: {text!r} was not given out by this server") from None
    return Place(revision=token.rv, after=token.start)
