"""Playing scripts to the session itself, without a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.actors.scripts import Desk

from pointsman.actors.conversation import Command, Decide
from pointsman.actors.extproc_server_wire import event_of, reply_of
from pointsman.actors.session import Session
from pointsman.proto import ProcessingRequest, decode

from .script import Script, Setup, Step, Told


async def told_to_all(scripts: Iterable[Script]) -> Mapping[Script, Told]:
    """What the session says in each of *scripts*."""
    desks: dict[Setup, Desk] = {}
    told: dict[Script, Told] = {}
    for script in scripts:
        setup = script.setup
        desk = desks.get(setup) or desks.setdefault(setup, setup.desk())
        it = session(setup, desk)
        told[script] = await played(it, desk, script.steps)
        it.close()
    return told


def session(setup: Setup, desk: Desk) -> Session:
    """A conversation that waits for its end where the daemon's would."""
    return desk.session(lambda it: setup.response_figures or not it.full_duplex)


async def played(it: Session, desk: Desk, steps: Iterable[Step]) -> Told:
    """What *it* answers: its commands in the daemon's own spelling."""
    replies: list[Sequence[bytes]] = []
    for step in steps:
        if it.over:
            break  # the daemon would be gone by now
        replies.append(tuple(map(reply_of, await _answers(it, desk, step.says))))
    return Told(replies, it.over)


async def _answers(it: Session, desk: Desk, message: bytes) -> Sequence[Command]:
    event = event_of(decode(ProcessingRequest, message))
    commands = [] if event is None else it.handle(event)
    if commands and isinstance(wanted := commands[-1], Decide):
        director = it.wiring.director
        outcome = await director.decide(wanted.request, wanted.parsed, desk.datastore.snapshot)
        commands = it.decided(outcome)
    it.observe()
    return commands
