"""Conversations that began before a reload and end after it."""

from __future__ import annotations

import pytest
from tests.actors.scripts import Desk
from tests.actors.scripts import body as completion

from .hosting import Conversation, Host, body, hosted, opening

pytestmark = pytest.mark.long


def begun(host: Host) -> Conversation:
    talk = host.conversation()
    talk.say(opening(), body(completion()))
    talk.hear(2)
    return talk


def test_streams_that_end_on_a_configuration_that_is_gone_bring_no_remark_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    with hosted(Desk()) as host:
        old = [begun(host), begun(host)]
        host.portal.call(host.server.wiring.set, Desk().wiring)
        for earlier in old:
            begun(host).call.cancel()
            host.until_open(len(old))
            earlier.call.cancel()
            old = old[1:]
            host.until_open(len(old))
    said = [record.message for record in caplog.records if "mode is" in record.message]
    assert said == ["a proxy's mode is full-duplex"]
