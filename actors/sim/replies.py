"""The answers of a model server, whole and in chunks, as vLLM 0.32 writes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, final

import msgspec
from attrs import define, frozen

from .work import Generation

FINGERPRINT: Final = "vllm-0.32.0-51b0a7e1"
DONE: Final = b"data: [DONE]\n\n"

Json = dict[str, object]


@frozen(eq=False)
class Choice:
    """One answer, and the text that it will have had."""

    index: int
    generation: Generation
    pieces: Sequence[str]
    """The text of each token."""
    repeats: bool = False
    """Whether it is another answer to the prompt of the choice before it."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@define(eq=False)
class Reply(ABC):
    """How the answers to one request are written."""

    id: str
    created: int
    model: str
    block_size: int
    continuous_usage: bool = False
    """Whether every chunk tells the usage so far."""

    whole_kind: ClassVar[str]
    chunk_kind: ClassVar[str]

    @abstractmethod
    def opening(self, choice: Choice) -> bytes:
        """What comes before the first piece of a choice."""

    @abstractmethod
    def piece(self, choice: Choice, number: int) -> bytes:
        """The event for one token; that of the last tells why it is the last."""

    @abstractmethod
    def _whole_choice(self, choice: Choice) -> Json: ...

    def whole(self, choices: Sequence[Choice]) -> bytes:
        """The answer to a request that does not stream."""
        reply = self._head(self.whole_kind)
        reply["choices"] = [self._whole_choice(choice) for choice in choices]
        reply |= {"service_tier": None, "system_fingerprint": FINGERPRINT}
        reply["usage"] = self._usage(choices) | {"completion_tokens_details": None}
        return msgspec.json.encode(reply | self._trailer())

    def closing_usage(self, choices: Sequence[Choice]) -> bytes:
        """The event after the last piece, for those who asked for it."""
        usage: Json = {"choices": [], "usage": self._usage(choices)}
        return self._event(usage | {"system_fingerprint": FINGERPRINT})

    def _trailer(self) -> Json:
        return {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}

    def _head(self, kind: str) -> Json:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _event(self, fields: Json) -> bytes:
        return b"data: %b\n\n" % msgspec.json.encode(self._head(self.chunk_kind) | fields)

    def _chunk(self, choice: Choice, generated: int, fields: Json, after: Json) -> bytes:
        chunk: Json = {"choices": [{"index": choice.index} | fields]}
        if self.continuous_usage:
            prompt = choice.generation.work.prompt_tokens
            chunk["usage"] = {
                "prompt_tokens": prompt,
                "total_tokens": prompt + generated,
                "completion_tokens": generated,
                "completion_tokens_details": None,
            }
        return self._event(chunk | after)

    def _usage(self, choices: Sequence[Choice]) -> Json:
        prompts = [choice.generation for choice in choices if not choice.repeats]
        prompt = sum(each.work.prompt_tokens for each in prompts)
        cached = sum(each.cached_tokens for each in prompts)
        completion = sum(choice.generation.generated for choice in choices)
        named = sum(each.work.prompt_tokens // self.block_size for each in prompts)
        details = {
            "cached_tokens": cached,
            "created_cache_tokens": named * self.block_size - cached,
            "multimodal_tokens": None,
        }
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
            "prompt_tokens_details": details,
        }


def _reason(choice: Choice, number: int) -> str | None:
    work = choice.generation.work
    return work.reason if number == work.output_tokens - 1 else None


@final
class ChatReply(Reply):
    whole_kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self, choice: Choice) -> bytes:
        delta = {"role": "assistant", "content": ""}
        fields: Json = {"delta": delta, "logprobs": None, "finish_reason": None}
        return self._chunk(choice, 0, fields, {"prompt_token_ids": None, "prompt_text": None})

    def piece(self, choice: Choice, number: int) -> bytes:
        reason = _reason(choice, number)
        delta = {"content": choice.pieces[number]}
        fields: Json = {"delta": delta, "logprobs": None, "finish_reason": reason}
        if reason is not None:
            fields["stop_reason"] = None
        return self._chunk(choice, number + 1, fields | {"token_ids": None}, {})

    def _whole_choice(self, choice: Choice) -> Json:
        message = {
            "role": "assistant",
            "content": choice.text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        }
        return {
            "index": choice.index,
            "message": message,
            "logprobs": None,
            "finish_reason": choice.generation.reason,
            "stop_reason": None,
            "token_ids": None,
            "routed_experts": None,
        }

    def _trailer(self) -> Json:
        prompt: Json = {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
        return prompt | super()._trailer()


@final
class CompletionReply(Reply):
    whole_kind = "text_completion"
    chunk_kind = "text_completion"

    def opening(self, choice: Choice) -> bytes:
        return b""

    def piece(self, choice: Choice, number: int) -> bytes:
        fields: Json = {
            "text": choice.pieces[number],
            "logprobs": None,
            "finish_reason": _reason(choice, number),
            "stop_reason": None,
            "prompt_token_ids": None,
            "token_ids": None,
        }
        return self._chunk(choice, number + 1, fields, {})

    def _whole_choice(self, choice: Choice) -> Json:
        return {
            "index": choice.index,
            "text": choice.text,
            "logprobs": None,
            "finish_reason": choice.generation.reason,
            "stop_reason": None,
            "token_ids": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "routed_experts": None,
        }


def models(served: Sequence[tuple[str, str | None]], max_model_len: int, created: int) -> Json:
    """The list of (model, its parent), where adapters have the base model as parent."""
    return {
        "object": "list",
        "data": [
            {
                "id": name,
                "object": "model",
                "created": created,
                "owned_by": "vllm",
                "root": name,
                "parent": parent,
                "max_model_len": max_model_len if parent is None else None,
                "permission": [_permission(name, created)],
            }
            for name, parent in served
        ],
    }


def _permission(name: str, created: int) -> Json:
    return {
        "id": f"modelperm-{name}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
