"""Lets in who Kubernetes says may read a page: by bearer tokens that the API server knows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import sha256
from typing import Final, final

import anyio
from attrs import define, field, frozen

from .admin_guards import no
from .http import Request, Response
from .kube.errors import Forbidden, KubeError
from .kube.reviews import Reviews

logger = logging.getLogger(__name__)

REMEMBERED: Final = 10.0  # seconds for which an answer of the API server holds
MOST_REMEMBERED: Final = 1000


@final
@frozen
class _Verdict:
    response: Response | None
    until: float


@final
@define(eq=False)
class TokenGuard:
    """Lets in who the API server says may get the page, by the bearer token of the request.

    The API server is asked one question at a time, whatever clients send, and its answers are
    remembered for some seconds. While it cannot be asked, nobody is let in.
    """

    reviews: Reviews
    now: Callable[[], float] = anyio.current_time
    _verdicts: dict[tuple[bytes, str], _Verdict] = field(
        factory=dict[tuple[bytes, str], _Verdict], init=False, repr=False
    )
    _asking: anyio.Lock = field(factory=anyio.Lock, init=False)
    _trouble: str = field(default="", init=False)

    async def refusal(self, request: Request) -> Response | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return no(401, "a bearer token is needed")
        key = (sha256(token.encode("utf-8", "replace")).digest(), request.path)
        async with self._asking:
            verdict = self._verdicts.get(key)
            if verdict is None or self.now() >= verdict.until:
                return await self._ask(key, token, request.path)
            return verdict.response

    async def aclose(self) -> None:
        await self.reviews.aclose()

    async def _ask(self, key: tuple[bytes, str], token: str, path: str) -> Response | None:
        try:
            response = await self._review(token, path)
        except KubeError as exc:
            return self._helpless(exc)
        if self._trouble:
            logger.info("tokens can be reviewed again")
            self._trouble = ""
        self._remember(key, _Verdict(response, self.now() + REMEMBERED))
        return response

    async def _review(self, token: str, path: str) -> Response | None:
        user = await self.reviews.who(token)
        if user is None:
            return no(401, "the token is not valid")
        if await self.reviews.may_get(user, path):
            return None
        return no(403, f"{user.username} may not get {path}")

    def _helpless(self, exc: KubeError) -> Response:
        if str(exc) != self._trouble:
            self._trouble = str(exc)
            logger.warning("cannot find out who may read the figures: %s", exc)
        if isinstance(exc, Forbidden):
            return no(500, f"the picker lacks a right that it needs to know you: {exc}")
        return no(503, "the API server, which knows who you are, cannot be asked")

    def _remember(self, key: tuple[bytes, str], verdict: _Verdict) -> None:
        self._verdicts.pop(key, None)
        while len(self._verdicts) >= MOST_REMEMBERED:
            del self._verdicts[next(iter(self._verdicts))]
        self._verdicts[key] = verdict
