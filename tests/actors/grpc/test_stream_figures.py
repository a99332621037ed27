"""Streams in figures, by how they end; and what of a conversation arrives there."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest
from tests.actors.figure_texts import value
from tests.actors.scripts import Desk
from tests.actors.scripts import body as completion

from pointsman.actors.figures import Figures
from pointsman.proto import PROCESS

from .hosting import Conversation, Host, body, hosted, opening, response_body, response_headers

pytestmark = pytest.mark.long


@pytest.fixture(params=["fast", "plain"])
def host(request: pytest.FixtureRequest) -> Generator[Host]:
    with hosted(Desk(), plain=request.param == "plain") as running:
        running.server.figures.watch_streams(lambda: running.server.open_streams.value)
        yield running


def codes(figures: Figures) -> dict[str, int]:
    assert figures.streams is not None
    return figures.streams.codes


def complete(talk: Conversation) -> None:
    talk.say(response_headers(), response_body(b"{}", end=True))
    talk.rest()


def hang_up(talk: Conversation) -> None:
    talk.hang_up()
    talk.rest()


def reset(talk: Conversation) -> None:
    talk.call.cancel()


@pytest.mark.parametrize(("end", "code"), [(complete, "OK"), (hang_up, "OK"), (reset, "Canceled")])
def test_streams_are_counted_by_how_they_end(
    host: Host, end: Callable[[Conversation], None], code: str
) -> None:
    talk = host.conversation()
    talk.say(opening(), body(completion()))
    talk.hear(2)
    assert value(host.server.figures, "llm_d_epp_extproc_streams_inflight") == 1
    end(talk)
    host.until_open(0)
    assert codes(host.server.figures) == {code: 1}


def test_a_stream_of_something_else_is_an_invalid_argument(host: Host) -> None:
    call = host.channel.stream_stream(PROCESS)(iter([b"\xff\xff"]))
    with pytest.raises(Exception, match="ext_proc"):
        list(call)
    host.until_open(0)
    assert codes(host.server.figures) == {"InvalidArgument": 1}


def test_a_conversation_is_measured_as_it_goes(host: Host) -> None:
    figures = host.server.figures
    labels = {
        "model_name": "m",
        "target_model_name": "m",
        "fairness_id": "default-flow",
        "priority": "0",
    }
    talk = host.conversation()
    talk.say(opening(), body(completion()))
    talk.hear(2)
    assert value(figures, "llm_d_epp_request_running", **labels) == 1
    usage = b'{"usage": {"prompt_tokens": 7, "completion_tokens": 2}}'
    talk.say(response_headers(), response_body(usage[:20]), response_body(usage[20:], end=True))
    talk.rest()
    host.until_open(0)
    assert value(figures, "llm_d_epp_request_running", **labels) == 0
    assert value(figures, "llm_d_epp_request_size_bytes_sum", **labels) == len(completion())
    assert value(figures, "llm_d_epp_response_size_bytes_sum", **labels) == len(usage)
    assert value(figures, "llm_d_epp_request_input_tokens_sum", **labels) == 7
    assert value(figures, "llm_d_epp_request_output_tokens_sum", **labels) == 2
    assert value(figures, "llm_d_epp_request_duration_seconds_count", **labels) == 1
    assert value(figures, "pointsman_streams_total", mode="full-duplex") == 1
