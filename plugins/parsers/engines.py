"""The engines' own JSON APIs, which take tokens instead of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, final

import msgspec
from attrs import define

from pointsman.kernel.keys import Keys
from pointsman.kernel.model import Parsed
from pointsman.kernel.registry import Stability
from pointsman.plugins.keys import RequestPrompt

from .api import NOTHING, PRODUCED, Api, Fields, Raw, count_of, reader, text_of, value_of
from .inputs import TokenList, features_of, packed


class _Sampling(msgspec.Struct):
    max_tokens: Raw = NOTHING
    max_new_tokens: Raw = NOTHING


class VllmGenerate(Fields, kw_only=True):
    token_ids: TokenList
    features: Raw = NOTHING
    sampling_params: Raw = NOTHING

    def prompt(self) -> RequestPrompt:
        features = features_of(self.features)
        salt = text_of(self.cache_salt)
        return RequestPrompt((), (packed(self.token_ids),), salt, (features,) if features else ())

    def limit(self) -> int | None:
        return count_of((value_of(self.sampling_params, _Sampling) or _Sampling()).max_tokens)


class SglangGenerate(msgspec.Struct, kw_only=True):
    input_ids: TokenList
    extra_key: str | None = None
    """What SGLang calls a cache salt."""
    sampling_params: Raw = NOTHING

    @property
    def model(self) -> None:
        """An engine serves one: a name that is there all the same is left alone."""

    def check(self) -> None:
        """The types say it all."""

    def prompt(self) -> RequestPrompt:
        return RequestPrompt(token_ids=(packed(self.input_ids),), salt=self.extra_key or "")

    def limit(self) -> int | None:
        return count_of((value_of(self.sampling_params, _Sampling) or _Sampling()).max_new_tokens)


VLLM_GENERATE: Final = Api(VllmGenerate, VllmGenerate)
SGLANG_GENERATE: Final = Api(SglangGenerate, SglangGenerate, unnamed=None)


@final
@define(eq=False)
class VllmHttpParser:
    """vLLM's own HTTP API: one prompt as token ids, with what stands for media in it."""

    type_name: ClassVar = "vllmhttp-parser"
    stability: ClassVar = Stability.BETA
    produces: ClassVar = PRODUCED
    paths: ClassVar = ("inference/v1/generate",)

    def reader(self, path: str, wanted: Keys) -> Callable[[bytes], Parsed]:
        return reader(VLLM_GENERATE, wanted)


@final
@define(eq=False)
class SglangHttpParser:
    """SGLang's own HTTP API: one prompt as token ids. It names no model."""

    type_name: ClassVar = "sglanghttp-parser"
    stability: ClassVar = Stability.BETA
    produces: ClassVar = PRODUCED
    paths: ClassVar = ("generate",)

    def reader(self, path: str, wanted: Keys) -> Callable[[bytes], Parsed]:
        return reader(SGLANG_GENERATE, wanted)
