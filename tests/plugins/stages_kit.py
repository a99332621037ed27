"""A pool whose endpoints have roles, and configurations that give each stage its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.kernel import zoo

from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import Decision, Endpoint
from pointsman.kernel.testing import decide, endpoint, make_request, pool, wired
from pointsman.kernel.wiring import Wiring
from pointsman.plugins.disagg import DisaggProfileHandler
from pointsman.plugins.keys import PEER_ENDPOINT

from .stand_ins import only


def with_role(role: str, name: str, address: str) -> Endpoint:
    return endpoint(name, address=address, labels={"role": role})


D1: Final = with_role("decode", "d1", "127.0.1.1")
D2: Final = with_role("decode", "d2", "127.0.1.2")
P1: Final = with_role("prefill", "p1", "fd00::3")
E1: Final = with_role("encode", "e1", "127.0.1.4")
E2: Final = with_role("encode", "e2", "127.0.1.5")
EVERYBODY: Final = pool([E1, P1, D1, E2, D2])

Seen = list[tuple[str, Endpoint | None]]
"""Who was asked, and about whom."""


def decider(name: str, seen: Seen, answer: bool) -> type[Any]:
    def disaggregate(self: object, data: DataView, endpoint: Endpoint | None) -> bool:
        seen.append((name, endpoint))
        return answer

    return zoo.plugin(name, disaggregate=disaggregate)


def peeking(seen: Seen, role: str) -> type[Any]:
    """A scorer ``peek-<role>`` that notes the peer which it finds."""

    def score(data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[None]:
        seen.append((f"peek-{role}", data.get(PEER_ENDPOINT)))
        return [None] * len(endpoints)

    return zoo.scorer(f"peek-{role}", score, Consumes(optional=[PEER_ENDPOINT]))


def everyone(given: Sequence[Endpoint], scores: Sequence[float]) -> Sequence[Endpoint]:
    return given


def staged(
    *classes: type[Any],
    parameters: Mapping[str, str] | None = None,
    stages: Sequence[str] = ("encode", "prefill", "decode"),
    peeks: Seen | None = None,
) -> Wiring:
    """Each stage in a profile of its name, on the endpoints of its role, all of them picked.

    *parameters*: by plugin type, as the configuration would say them.
    """
    said = parameters or {}
    helpers = [*map(only, stages), zoo.picker("all", everyone)]
    helpers += [peeking(peeks, stage) for stage in stages] if peeks is not None else []
    listed = [
        f"{{type: {one.type_name}, parameters: {said.get(one.type_name, '{}')}}}"
        for one in (*classes, *helpers)
    ]
    profiles = [_profile(stage, peeks is not None) for stage in stages]
    text = f"plugins: [{', '.join(listed)}]\nschedulingProfiles: [{', '.join(profiles)}]\n"
    return wired(text, *classes, *helpers)


def _profile(stage: str, peeking: bool) -> str:
    names = [f"only-{stage}", *([f"peek-{stage}"] if peeking else [])]
    return f"{{name: {stage}, plugins: [{', '.join(f'{{pluginRef: {n}}}' for n in names)}]}}"


def handling(
    handler: str,
    *classes: type[Any],
    stages: str = "encode prefill decode",
    peeks: Seen | None = None,
) -> Wiring:
    """A disagg-profile-handler with those parameters."""
    return staged(
        DisaggProfileHandler,
        *classes,
        parameters={"disagg-profile-handler": handler},
        stages=stages.split(),
        peeks=peeks,
    )


def decision(wiring: Wiring, endpoints: Sequence[Endpoint] = EVERYBODY.endpoints) -> Decision:
    return decide(wiring, pool(endpoints), make_request(model="m")).decision


def saying(
    *, prefill: bool | None = None, encode: bool | None = None, order: str = "decode-first"
) -> tuple[Wiring, Seen]:
    """A handler whose deciders say so, or who has none; and whom they were asked about."""
    seen: Seen = []
    answers = {"prefill": prefill, "encode": encode}
    classes = [decider(f"d-{s}", seen, yes) for s, yes in answers.items() if yes is not None]
    named = ", ".join(f"{s}: d-{s}" for s, yes in answers.items() if yes is not None)
    handler = f"{{stageOrder: {order}, deciders: {{{named}}}}}"
    return handling(handler, *classes, peeks=seen), seen
