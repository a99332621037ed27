"""Questions about rights and identities: objects that are answered and never stored."""

from __future__ import annotations

from typing import Final, final

from attrs import frozen

from .failures import ApiError, bad_request
from .identity import Authenticator, User
from .kinds import (
    ACCESS_REVIEWS,
    LOCAL_ACCESS_REVIEWS,
    SELF_ACCESS_REVIEWS,
    SELF_REVIEWS,
    TOKEN_REVIEWS,
    Kind,
)
from .objects import Object, at, is_mapping
from .rbac import Attempt, Authorizer

_BLANK: Final[Object] = {"creationTimestamp": None}


@final
@frozen
class Reviewer:
    """Answers the reviews."""

    authenticator: Authenticator
    authorizer: Authorizer

    def answer(self, kind: Kind, review: Object, asker: User, namespace: str) -> Object:
        """*review* with its status.

        Raises:
            ApiError: 400, it does not say what it asks.
        """
        spec: Object = review.get("spec") or {}
        if not is_mapping(spec):
            raise bad_request("spec: expected an object")
        if kind is TOKEN_REVIEWS:
            status = self._token(spec)
        elif kind is SELF_REVIEWS:
            status = {"userInfo": _told(asker)}
        elif kind is SELF_ACCESS_REVIEWS:
            status = self._access(spec, asker, "")
        else:
            where = namespace if kind is LOCAL_ACCESS_REVIEWS else ""
            status = self._access(spec, _subject(spec), where)
        metadata = review.get("metadata") or _BLANK
        answer = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return {**answer, "spec": spec, "status": status}

    def _token(self, spec: Object) -> Object:
        token = spec.get("token")
        if not isinstance(token, str) or not token:
            return {"authenticated": False, "user": {}, "error": "no token was given"}
        try:
            user = self.authenticator.user_of({"authorization": f"Bearer {token}"}, None)
        except ApiError:
            return {"authenticated": False, "user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": _told(user), "audiences": spec.get("audiences", [])}

    def _access(self, spec: Object, user: User, namespace: str) -> Object:
        wanted = spec.get("resourceAttributes")
        path = spec.get("nonResourceAttributes")
        if is_mapping(wanted):
            attempt = Attempt(
                user=user,
                verb=wanted.get("verb", ""),
                group=wanted.get("group", ""),
                resource=wanted.get("resource", ""),
                subresource=wanted.get("subresource", ""),
                namespace=namespace or wanted.get("namespace", ""),
                name=wanted.get("name", ""),
            )
        elif is_mapping(path):
            attempt = Attempt(user=user, verb=path.get("verb", ""), path=path.get("path", ""))
        else:
            raise bad_request(f"{ACCESS_REVIEWS.kind}: spec asks for no attributes")
        reason = self.authorizer.reason(attempt)
        return {"allowed": bool(reason), **({"reason": reason} if reason else {})}


def _subject(spec: Object) -> User:
    if not spec.get("user") and not spec.get("groups"):
        raise bad_request("spec: one of user and groups is needed")
    return User(spec.get("user") or "", tuple(at(spec, "groups") or ()))


def _told(user: User) -> Object:
    return {"username": user.name, "groups": list(user.groups)}
