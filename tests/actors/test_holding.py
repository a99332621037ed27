"""What is left of a request while its response is awaited."""

from __future__ import annotations

import gc

import pytest

from pointsman.plugins.keys import TokenizedPrompt
from pointsman.plugins.prefix_index import BlockHashes

from .scripts import CHAT, Desk, chat, opening, pieces, say, wired

PREFIX = "plugins: [{type: prefix-cache-scorer}]"


def prompts() -> int:
    """How many prompts there are in memory, in whichever form."""
    gc.collect()
    return sum(isinstance(each, TokenizedPrompt | BlockHashes) for each in gc.get_objects())


@pytest.mark.long
def test_no_prompt_is_held_while_the_response_is_awaited() -> None:
    desk = Desk(wired(PREFIX))
    session = desk.session()
    before = prompts()
    say(session, opening(CHAT), *pieces(chat(user="x" * 10_000), 1_000))
    assert session.outcome is not None
    assert prompts() == before
