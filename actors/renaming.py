"""Which model a request asks for in the end, and its answer in the name that the client knows."""

from __future__ import annotations

from random import Random
from typing import Final, final

from attrs import define, field

from pointsman.kernel.datastore import Snapshot
from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import Headers, Request
from pointsman.kernel.rewriting import ModelRestorer

REWRITE_HEADERS: Final = ("x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite")
OBJECTIVE_HEADERS: Final = ("x-llm-d-inference-objective", "x-gateway-inference-objective")


def priority_of(headers: Headers, snapshot: Snapshot) -> int:
    """The priority of the objective that the headers name; 0 for none or an unknown one."""
    objective = snapshot.objectives.get(headers.first(*OBJECTIVE_HEADERS) or "")
    return 0 if objective is None else objective.priority


def settle_model(request: Request, named: str, snapshot: Snapshot, random: Random) -> None:
    """The model to ask: a rule's, else the rewrite header's, else the one *named* by the body.

    Raises:
        Refusal: 400 when it comes to none.
    """
    target = snapshot.rewrites.target(named, random) if snapshot.rewrites else None
    if target is None:
        target = request.headers.first(*REWRITE_HEADERS) or named
    request.incoming_model, request.model = named, target
    if not request.model:
        raise Refusal(400, "model not found in request body")


@final
@define(eq=False)
class Renaming:
    """Restores the model's name in one response."""

    asked: str
    served: str
    _restorer: ModelRestorer | None = field(default=None, init=False)

    def begin(self, headers: Headers) -> bool:
        """Look at the response's headers; whether its body will be changed."""
        kind = (headers.get("content-type") or "").lower()
        encoded = (headers.get("content-encoding") or "identity").lower() != "identity"
        if encoded or not ("json" in kind or "text/event-stream" in kind):
            return False
        self._restorer = ModelRestorer("text/event-stream" in kind, self.asked, self.served)
        return True

    def feed(self, chunk: bytes, *, end: bool) -> bytes:
        """What the client gets of *chunk*, and of what was held back before."""
        return chunk if self._restorer is None else self._restorer.feed(chunk, end=end)
