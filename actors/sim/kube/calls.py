"""A request as the API understands it: which verb, on which resource, with which options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from attrs import frozen

from pointsman.actors.http import Request

from .failures import bad_request
from .identity import User
from .rbac import Attempt
from .selectors import name_selected

_VERBS: Final[Mapping[str, str]] = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_OF_MANY: Final[Mapping[str, str]] = {"get": "list", "delete": "deletecollection"}
_TRUE: Final = ("1", "true", "True", "")


@final
@frozen
class Call:
    """What a request asks for. Without a resource it is about the path itself."""

    request: Request
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @classmethod
    def of(cls, request: Request) -> Call:
        """Read the path and the query of *request*."""
        steps = [step for step in request.path.split("/") if step]
        match steps:
            case ["api", version, _, *_]:
                group, rest = "", steps[2:]
            case ["apis", group, version, _, *_]:
                rest = steps[3:]
            case _:
                return cls(request, request.method.lower())
        namespace, rest = _split_namespace(rest)
        resource, name, subresource = [*rest, "", ""][:3]
        if len(rest) > 3:
            subresource = "/".join(rest[2:])
        verb = _VERBS.get(request.method, request.method.lower())
        if not name:
            verb = _OF_MANY.get(verb, verb)
        if verb in ("list", "get") and _is_true(request, "watch"):
            verb = "watch"
        return cls(request, verb, group, version, resource, subresource, namespace, name)

    def text(self, option: str) -> str:
        return self.request.query.get(option, "")

    def flag(self, option: str) -> bool:
        return _is_true(self.request, option)

    def number(self, option: str) -> int | None:
        """Raises: ApiError: 400, the option is none."""
        text = self.text(option)
        if not text:
            return None
        if not text.isdecimal():
            raise bad_request(f"{option}: {text!r} is no number")
        return int(text)

    @property
    def dry_run(self) -> bool:
        return self.text("dryRun") == "All"

    def attempt(self, user: User) -> Attempt:
        """What *user* must be allowed to do for this call."""
        if not self.resource:
            return Attempt(user=user, verb=self.verb, path=self.request.path)
        return Attempt(
            user=user,
            verb=self.verb,
            group=self.group,
            resource=self.resource,
            subresource=self.subresource,
            namespace=self.namespace,
            name=self.name or name_selected(self.text("fieldSelector")),
        )


def _split_namespace(steps: list[str]) -> tuple[str, list[str]]:
    """The namespace of a path, and what follows; a namespace itself lies in itself."""
    match steps:
        case ["namespaces", namespace] | ["namespaces", namespace, "status" | "finalize"]:
            return namespace, steps
        case ["namespaces", namespace, *rest]:
            return namespace, rest
        case _:
            return "", steps


def _is_true(request: Request, option: str) -> bool:
    return option in request.query and request.query[option] in _TRUE
