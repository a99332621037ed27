"""Whether a stage of a request is worth an endpoint of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from attrs import define, field, frozen

from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import Endpoint
from pointsman.kernel.registry import Stability
from pointsman.kernel.structure import at_least

from .keys import PREFIX_HIT, TOKENIZED_PROMPT


@final
@frozen(kw_only=True)
class PrefixBasedPdParameters:
    non_cached_tokens: int = field(default=0, validator=at_least(0))
    """Tokens that the decoding endpoint would have to compute at least; 0: never."""
    prompt_tokens: int = field(default=0, validator=at_least(0))
    """Tokens that the prompts must have at least."""
    prefix_match_info_producer_name: str = ""


@final
@define(eq=False)
class PrefixBasedPdDecider:
    """Is for a prefill of its own where the decoding endpoint lacks much of the prompt.

    Yes when ``tokens - cached >= nonCachedTokens``, with at least *promptTokens* tokens; no when
    nothing is known of what the endpoint holds.
    """

    type_name: ClassVar = "prefix-based-pd-decider"
    stability: ClassVar = Stability.BETA
    parameters: PrefixBasedPdParameters

    @property
    def consumes(self) -> Consumes:
        """Nothing when the answer is no anyway: then neither tokens nor prefixes are paid for."""
        if not self.parameters.non_cached_tokens:
            return Consumes()
        return Consumes(TOKENIZED_PROMPT, PREFIX_HIT)

    @property
    def producer_names(self) -> Mapping[str, str]:
        return {PREFIX_HIT.name: self.parameters.prefix_match_info_producer_name}

    def disaggregate(self, data: DataView, endpoint: Endpoint | None) -> bool:
        least = self.parameters.non_cached_tokens
        if not least or endpoint is None:
            return False
        tokens = data[TOKENIZED_PROMPT].count
        if tokens < max(least, self.parameters.prompt_tokens):
            return False
        hit = data.of(PREFIX_HIT, endpoint)
        return hit is not None and tokens - hit.cached_tokens >= least


@final
@define(eq=False)
class AlwaysDisaggPdDecider:
    """Is for a prefill of its own, always."""

    type_name: ClassVar = "always-disagg-pd-decider"
    stability: ClassVar = Stability.BETA

    def disaggregate(self, data: DataView, endpoint: Endpoint | None) -> bool:
        return True


@final
@define(eq=False)
class AlwaysDisaggMultimodalDecider:
    """Is for an encoding stage of its own wherever a prompt has an image, a sound or a film."""

    type_name: ClassVar = "always-disagg-multimodal-decider"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(TOKENIZED_PROMPT)

    def disaggregate(self, data: DataView, endpoint: Endpoint | None) -> bool:
        return any(prompt.features for prompt in data[TOKENIZED_PROMPT].prompts)
