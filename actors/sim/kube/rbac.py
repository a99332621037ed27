"""Who may do what: decided from the roles and bindings that are in the store, at each request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, final

from attrs import define, frozen

from .failures import ApiError
from .identity import AUTHENTICATED, MASTERS, User
from .kinds import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from .objects import Object, at, key_of
from .store import Store

Mode = Literal["AlwaysAllow", "RBAC"]

_GROUP: Final = "rbac.authorization.k8s.io"
_HEALTH: Final = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DISCOVERY: Final = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH]


@final
@frozen(kw_only=True)
class Attempt:
    """What somebody wants to do: a verb on a resource, or on a path that is none."""

    user: User
    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def what(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def refused(self) -> ApiError:
        who = f'User "{self.user.name}" cannot {self.verb}'
        if not self.resource:
            return ApiError(403, f'forbidden: {who} path "{self.path}"', details={})
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f'{what} "{self.name}"' if self.name else what
        asked = f'resource "{self.what}" in API group "{self.group}" {where}'
        details = {"name": self.name, "group": self.group, "kind": self.resource}
        return ApiError(403, f"{named} is forbidden: {who} {asked}", details=details)


@final
@define(eq=False)
class Authorizer:
    """Reads the rules of a store."""

    store: Store
    mode: Mode = "AlwaysAllow"

    def check(self, attempt: Attempt) -> None:
        """Raises: ApiError: 403, no rule allows it."""
        if not self.reason(attempt):
            raise attempt.refused()

    def reason(self, attempt: Attempt) -> str:
        """By which binding it is allowed; empty when it is not."""
        if self.mode == "AlwaysAllow":
            return "everything is allowed"
        if MASTERS in attempt.user.groups:
            return f"the user is in {MASTERS}"
        for binding in self._bindings(attempt):
            for rule in self._rules(binding):
                if _allows(rule, attempt):
                    role = at(binding, "roleRef", "name")
                    return f"{binding['kind']} {'/'.join(filter(None, key_of(binding)))}: {role}"
        return ""

    def _bindings(self, attempt: Attempt) -> Iterator[Object]:
        """The bindings that are about this user at this place."""
        everywhere = self.store.objects(CLUSTER_ROLE_BINDINGS).values()
        here = self.store.objects(ROLE_BINDINGS).values() if attempt.namespace else ()
        for binding in (*everywhere, *here):
            namespace = key_of(binding)[0]
            if namespace in ("", attempt.namespace) and any(
                _is_subject(subject, attempt.user, namespace)
                for subject in binding.get("subjects") or ()
            ):
                yield binding

    def _rules(self, binding: Object) -> list[Object]:
        kind, name = at(binding, "roleRef", "kind"), at(binding, "roleRef", "name")
        if kind == "ClusterRole":
            role = self.store.objects(CLUSTER_ROLES).get(("", name))
        else:
            role = self.store.objects(ROLES).get((key_of(binding)[0], name))
        return (role or {}).get("rules") or []


def _is_subject(subject: Object, user: User, namespace: str) -> bool:
    match subject.get("kind"):
        case "User":
            return subject.get("name") == user.name
        case "Group":
            return subject.get("name") in user.groups
        case "ServiceAccount":
            home = subject.get("namespace") or namespace
            return user.name == f"system:serviceaccount:{home}:{subject.get('name')}"
        case _:
            return False


def _allows(rule: Object, attempt: Attempt) -> bool:
    if not _has(rule, "verbs", attempt.verb):
        return False
    if not attempt.resource:
        paths: list[str] = rule.get("nonResourceURLs") or []
        return any(_covers(path, attempt.path) for path in paths)
    names: list[str] = rule.get("resourceNames") or []
    return (
        _has(rule, "apiGroups", attempt.group)
        and (_has(rule, "resources", attempt.what) or _any_parent(rule, attempt.subresource))
        and (not names or attempt.name in names)
    )


def _has(rule: Object, field: str, value: str) -> bool:
    listed: list[str] = rule.get(field) or []
    return value in listed or "*" in listed


def _any_parent(rule: Object, subresource: str) -> bool:
    """Whether the rule is about this subresource of whatever resource."""
    return bool(subresource) and f"*/{subresource}" in (rule.get("resources") or ())


def _covers(pattern: str, path: str) -> bool:
    if pattern.endswith("*"):
        return path.startswith(pattern[:-1])
    return pattern == path


def _role(name: str, *rules: Object) -> Object:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": list(rules),
    }


def _bound(role: Object, *groups: str) -> Iterator[Object]:
    name: str = role["metadata"]["name"]
    subjects: list[Any] = [{"apiGroup": _GROUP, "kind": "Group", "name": name} for name in groups]
    yield role
    yield {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "subjects": subjects,
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name},
    }


def first_roles() -> list[Object]:
    """The roles that every cluster has from the start, with their bindings."""
    everything: Object = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    every_path: Object = {"nonResourceURLs": ["*"], "verbs": ["*"]}
    own_rights = {
        "apiGroups": ["authorization.k8s.io", "authentication.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectreviews"],
        "verbs": ["create"],
    }
    discovery = {"nonResourceURLs": _DISCOVERY, "verbs": ["get"]}
    health = {"nonResourceURLs": _HEALTH, "verbs": ["get"]}
    return [
        *_bound(_role("cluster-admin", everything, every_path), MASTERS),
        *_bound(_role("system:basic-user", own_rights), AUTHENTICATED),
        *_bound(_role("system:discovery", discovery), AUTHENTICATED),
        *_bound(
            _role("system:public-info-viewer", health), AUTHENTICATED, "system:unauthenticated"
        ),
    ]
