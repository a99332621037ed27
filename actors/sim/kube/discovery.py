"""What the server tells of itself: groups, versions and resources, health, and OpenAPI.

The OpenAPI documents say only that writes can be validated by the server (``fieldValidation``):
that is what makes kubectl leave the validation to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from attrs import frozen

from pointsman.actors.http import Request, Response, json_response, text_response

from .failures import NoSuchPath
from .kinds import Kind, Kinds
from .objects import Object

VERSION: Final[Object] = {
    "major": "1",
    "minor": "33",
    "gitVersion": "v1.33.0-pointsman",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "simulated",
}
_INFO: Final = {"title": "Kubernetes", "version": "simulated"}
_STATUS_VERBS: Final = ("get", "patch", "update")


@final
@frozen
class Discovery:
    """The pages that are about the server and not about objects."""

    kinds: Kinds

    def answer(self, request: Request) -> Response:
        """Raises: NoSuchPath: there is no such page."""
        steps = [step for step in request.path.split("/") if step]
        match steps:
            case ["healthz" | "livez" | "readyz", *_]:
                return text_response("ok")
            case ["version"]:
                return json_response(VERSION)
            case []:
                return json_response({"paths": ["/api", "/apis", "/openapi/v3", "/version"]})
            case ["api"]:
                return json_response(_versions(request))
            case ["api", version]:
                return json_response(self._resources("", version))
            case ["apis"]:
                return json_response(self._groups())
            case ["apis", group]:
                return json_response(_identified("APIGroup", self._group(group)))
            case ["apis", group, version]:
                return json_response(self._resources(group, version))
            case ["openapi", *rest]:
                return json_response(self._openapi(rest))
            case _:
                raise NoSuchPath

    def _groups(self) -> Object:
        names = dict.fromkeys(kind.group for kind in self.kinds if kind.group)
        listed = [self._group(name) for name in names]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}

    def _group(self, name: str) -> Object:
        found = dict.fromkeys(k.version for k in self.kinds if name and k.group == name)
        if not found:
            raise NoSuchPath
        versions = [
            {"groupVersion": f"{name}/{version}", "version": version}
            for version in sorted(found, key=lambda version: ("alpha" in version, version))
        ]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}

    def _of_version(self, group: str, version: str) -> list[Kind]:
        kinds = [kind for kind in self.kinds if (kind.group, kind.version) == (group, version)]
        if not kinds:
            raise NoSuchPath
        return kinds

    def _resources(self, group: str, version: str) -> Object:
        kinds = self._of_version(group, version)
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": kinds[0].api_version,
            "resources": [entry for kind in kinds for entry in _entries(kind)],
        }

    def _openapi(self, steps: list[str]) -> Object:
        match steps:
            case ["v2"]:
                return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}
            case ["v3"]:
                places = dict.fromkeys(_place(kind) for kind in self.kinds)
                paths = {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in places}
                return {"paths": paths}
            case ["v3", "api", version]:
                return _document(self._of_version("", version))
            case ["v3", "apis", group, version]:
                return _document(self._of_version(group, version))
            case _:
                raise NoSuchPath


def _versions(request: Request) -> Object:
    address = request.headers.get("host", "")
    client = {"clientCIDR": "0.0.0.0/0", "serverAddress": address}
    versions = {"versions": ["v1"], "serverAddressByClientCIDRs": [client]}
    return {"kind": "APIVersions", **versions}


def _identified(kind: str, obj: Object) -> Object:
    return {"kind": kind, "apiVersion": "v1", **obj}


def _entries(kind: Kind) -> Iterable[Object]:
    entry: Object = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    yield {**entry, "shortNames": list(kind.short_names)} if kind.short_names else entry
    if kind.status:
        status = {"name": f"{kind.plural}/status", "singularName": ""}
        yield {**entry, **status, "verbs": list(_STATUS_VERBS)}


def _place(kind: Kind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def _document(kinds: list[Kind]) -> Object:
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": {
            f"/{_place(kind)}/{kind.plural}/{{name}}": {"patch": _operation(kind)} for kind in kinds
        },
    }


def _operation(kind: Kind) -> Object:
    options = ("dryRun", "fieldManager", "fieldValidation")
    known = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in options
    ]
    return {
        "operationId": f"patch{kind.kind}",
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-group-version-kind": known,
    }
