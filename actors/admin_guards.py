"""Who may read the figures and look inside the daemon."""

from __future__ import annotations

from typing import Protocol, final

from attrs import frozen

from .http import Request, Response, json_response


class Guard(Protocol):
    """Stands before the pages that are not for everybody."""

    async def refusal(self, request: Request) -> Response | None:
        """What to answer instead of the page; None lets the request pass."""
        ...

    async def aclose(self) -> None: ...


@final
@frozen
class CertificateGuard:
    """Lets in whose certificate was verified on the connection."""

    async def refusal(self, request: Request) -> Response | None:
        if request.certified:
            return None
        return no(403, "this page is for clients with a certificate")

    async def aclose(self) -> None:
        """There is nothing to close."""


def no(status: int, message: str) -> Response:
    headers = (("www-authenticate", "Bearer"),) if status == 401 else ()
    return json_response({"error": message}, status, headers)
