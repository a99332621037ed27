"""Large bodies over real gRPC: read in a process of their own, passed on in turns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import ClassVar

import pytest
from tests.actors.reading_threads import Threads
from tests.actors.scripts import Desk, wired
from tests.actors.scripts import body as completion

from pointsman.actors.extproc_server_lane import LARGE
from pointsman.kernel.keys import Keys, keys
from pointsman.kernel.model import MODEL_NAME, Parsed
from pointsman.proto import BodySendMode, ProtocolConfiguration

from .hosting import LEAN, PATIENCE, Host, body, hosted, opening
from .test_server import chunks

pytestmark = pytest.mark.long

CONFIG = """
plugins: [{type: queue-scorer}, {type: slow-parser}]
requestHandler: {parsers: [{pluginRef: slow-parser}]}
"""
NONE = ProtocolConfiguration(request_body_mode=BodySendMode.NONE)
BODY = completion(prompt="x" * (LARGE + 100_000))


@pytest.fixture(params=["fast", "plain"], scope="module")
def host(request: pytest.FixtureRequest) -> Generator[Host]:
    with hosted(Desk(), plain=request.param == "plain") as running:
        yield running


@pytest.mark.parametrize("size", [len(BODY), 50_000, 1_000_003])
def test_the_model_server_gets_it_as_it_came(host: Host, size: int) -> None:
    talk = host.conversation()
    parts = [BODY[start : start + size] for start in range(0, len(BODY), size)]
    talk.say(opening(), *(body(part, end=part is parts[-1]) for part in parts))
    talk.hang_up()
    decision, *passed = talk.rest()
    assert decision.request_headers is not None
    assert chunks(passed) == BODY


def test_a_proxy_that_holds_it_hears_the_decision_alone(host: Host) -> None:
    talk = host.conversation()
    talk.say(opening(LEAN), body(BODY))
    _, decision = talk.hear(2)
    assert decision.request_body is not None
    talk.call.cancel()
    host.until_open(0)


def test_what_is_wrong_with_it_is_answered_as_ever(host: Host) -> None:
    talk = host.conversation()
    talk.say(opening(), body(BODY[:-1]))
    (answer,) = talk.rest()
    assert answer.immediate_response is not None
    assert answer.immediate_response.status is not None
    assert int(answer.immediate_response.status.code) == 400


def test_a_large_message_may_be_about_anything(host: Host) -> None:
    """Of all but bodies the parts are copies, on which others may rely."""
    talk = host.conversation()
    talk.say(opening(**{"x-large": "x" * LARGE}), body(completion()))
    decision, passed = talk.hear(2)
    assert decision.request_headers is not None
    assert chunks([passed]) == completion()
    talk.call.cancel()
    host.until_open(0)


class SlowParser:
    """Takes as long as the test does."""

    type_name: ClassVar = "slow-parser"
    paths: ClassVar = ("completions",)
    produces: ClassVar = keys(MODEL_NAME)
    began: ClassVar = threading.Semaphore(0)
    may_end: ClassVar = threading.Event()

    def reader(self, path: str, wanted: Keys) -> Callable[[bytes], Parsed]:
        def read(body: bytes) -> Parsed:
            self.began.release()
            assert self.may_end.wait(PATIENCE)
            return Parsed("m")

        return read


@pytest.fixture
def slow() -> Generator[Host]:
    SlowParser.may_end.clear()
    desk = Desk(wired(CONFIG, SlowParser))
    with hosted(desk, read_apart_from=100) as running:
        running.server.reader._idle.append(Threads.at_once().start())
        yield running
        SlowParser.may_end.set()


def test_others_do_not_wait_for_it(slow: Host) -> None:
    large, other = slow.conversation(), slow.conversation()
    large.say(opening(), body(completion(prompt="x" * 100)))
    assert SlowParser.began.acquire(timeout=PATIENCE)
    other.say(opening(NONE))
    (decision,) = other.hear()
    assert decision.request_headers is not None
    SlowParser.may_end.set()
    assert chunks(large.hear(2)) == completion(prompt="x" * 100)
    for talk in (large, other):
        talk.call.cancel()
    slow.until_open(0)


def test_a_client_that_leaves_meanwhile_is_forgotten_when_it_was_read(slow: Host) -> None:
    talk = slow.conversation()
    talk.say(opening(), body(completion(prompt="x" * 100)))
    assert SlowParser.began.acquire(timeout=PATIENCE)
    talk.call.cancel()
    SlowParser.may_end.set()
    slow.until_open(0)
    again = slow.conversation()
    again.say(opening(), body(completion(prompt="y" * 100)))
    assert chunks(again.hear(2)) == completion(prompt="y" * 100)
    again.call.cancel()
    slow.until_open(0)
