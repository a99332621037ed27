"""What a request will be answered: length, text and blocks, decided before the engine starts.

The same prompt with the same seed always gets the same answer, from every server.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import final

from attrs import frozen

from .api import GenerateRequest, bad_request
from .tokens import babble, block_hashes, seed_of, tokenize
from .work import EngineConfig, Work


@frozen
class Draft:
    """One answer before it is generated."""

    work: Work
    pieces: Sequence[str]
    repeats: bool
    """Whether the draft before it answers the same prompt."""


@final
@frozen
class Author:
    """Drafts answers for an engine of *config* that are *mean_tokens* long on average."""

    config: EngineConfig
    mean_tokens: int

    def drafts(
        self, request: GenerateRequest, prompts: Sequence[list[int]], adapter: str | None
    ) -> list[Draft]:
        """Every prompt's answers, in order.

        Raises:
            ApiError: a prompt is empty, or leaves too little of the context.
        """
        for prompt in prompts:
            self._check(prompt, request.most_tokens)
        return [
            self._draft(request, prompt, number, adapter)
            for prompt in prompts
            for number in range(request.n)
        ]

    def _check(self, prompt: list[int], asked: int | None) -> None:
        context, length = self.config.max_model_len, len(prompt)
        if not prompt:
            raise bad_request("The prompt has no tokens.", "prompt")
        if length >= context:
            message = (
                f"This model's maximum context length is {context} tokens, "
                f"but the prompt has {length}. Please reduce its length."
            )
            raise bad_request(message, "input_tokens", length)
        if asked is not None and length + asked > context:
            message = (
                f"max_tokens={asked} is too large: of the maximum context length of "
                f"{context} tokens, the prompt takes {length}."
            )
            raise bad_request(message, "max_tokens", asked)

    def _draft(
        self, request: GenerateRequest, prompt: list[int], number: int, adapter: str | None
    ) -> Draft:
        random = Random(seed_of(prompt, f"{adapter}/{request.seed}/{number}"))
        length, reason = self._ending(request, len(prompt), random)
        pieces = babble(length, random)
        salt = f"{adapter}/{request.cache_salt}"
        tokens = prompt + tokenize("".join(pieces))
        work = Work(
            prompt_tokens=len(prompt),
            output_tokens=length,
            asked_tokens=request.most_tokens,
            blocks=block_hashes(tokens, self.config.block_size, salt),
            adapter=adapter,
            reason=reason,
            streams=bool(request.stream),
        )
        return Draft(work, pieces, repeats=number > 0)

    def _ending(self, request: GenerateRequest, prompt: int, random: Random) -> tuple[int, str]:
        """How long the answer will be, and why no longer."""
        room = self.config.max_model_len - prompt
        most = room if request.most_tokens is None else request.most_tokens
        wanted = max(1, round(random.gauss(self.mean_tokens, self.mean_tokens / 2)))
        wanted = max(wanted, request.min_tokens)
        if request.ignore_eos or wanted > most:
            return most, "length"
        return wanted, "stop"
