"""A cheap deterministic tokenizer, its chat template, block hashes, and text made of tokens.

No model's real vocabulary: token numbers are hashes of their text. What holds as in real ones is
that a text always has the same tokens, that an answer put back into a conversation has the tokens
that were generated, and so that a longer conversation begins with the shorter one's blocks.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from random import Random
from typing import Final
from zlib import crc32

import xxhash

VOCABULARY: Final = 128_000  # token numbers are below it

_TOKEN = re.compile(r" ?[^\W\d_]{1,12}| ?\d{1,3}|\s+| ?[^\w\s]|_+")
_TEXT: Final = (
    "a about after all an and any are as at back be because been but by can come could day "
    "do even find first for from get give go good great had has have he her here him his how "
    "if in into is it its just know last like little long look made make man many may me "
    "more most much must my new no not now of off old on one only or other our out over own "
    "part people place right said same say see she should show small so some still such take "
    "than that the their them then there these they thing think this those three through "
    "time to too two under up us use very want was water way we well went were what when "
    "where which while who will with work world would write year you your"
)
_WORDS: Final = tuple(_TEXT.split())


@lru_cache(maxsize=65_536)
def _number(token: str) -> int:
    return crc32(token.encode("utf-8", "surrogatepass")) % VOCABULARY


_TURN, _END_OF_TURN, _NEW_LINE = _number("<|turn|>"), _number("<|end|>"), _number("\n")


def tokenize(text: str) -> list[int]:
    """The token numbers of *text*."""
    return list(map(_number, _TOKEN.findall(text)))


def render_chat(messages: Iterable[tuple[str, str]]) -> list[int]:
    """The tokens of a conversation of (role, text), up to where the model's answer begins."""
    tokens: list[int] = []
    for role, text in messages:
        tokens += (_TURN, _number(role), _NEW_LINE, *tokenize(text), _END_OF_TURN, _NEW_LINE)
    return [*tokens, _TURN, _number("assistant"), _NEW_LINE]


def block_hashes(tokens: Sequence[int], size: int, salt: str = "") -> tuple[int, ...]:
    """One hash per full block of *size* tokens, which covers all blocks before it as well.

    Args:
        salt: separates what must not be shared although the tokens agree, such as adapters.
    """
    data = array("I", tokens).tobytes()
    width = size * array("I").itemsize
    parent = xxhash.xxh3_64_intdigest(salt.encode())
    hashes: list[int] = []
    for start in range(0, len(data) - width + 1, width):
        parent = xxhash.xxh3_64_intdigest(data[start : start + width], parent)
        hashes.append(parent)
    return tuple(hashes)


def seed_of(tokens: Sequence[int], salt: str) -> int:
    """A number that depends on all of *tokens* and *salt* and on nothing else."""
    return xxhash.xxh3_64_intdigest(
        array("I", tokens).tobytes(), xxhash.xxh3_64_intdigest(salt.encode())
    )


def babble(count: int, random: Random) -> list[str]:
    """*count* pieces of text, each of which is one token; joined, they tokenize to just these."""
    if count == 0:
        return []
    first, *rest = random.choices(_WORDS, k=count)
    return [first.capitalize(), *(" " + word for word in rest)]
