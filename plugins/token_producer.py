"""Publishes a request's prompts as tokens: an estimate, or what the engine's renderer says."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Awaitable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, final

import anyio
import httpx
import msgspec
from attrs import define, field, frozen

from pointsman.kernel.keys import Consumes, DataView, keys
from pointsman.kernel.model import REQUEST_BODY, REQUEST_HEADERS, REQUEST_PATH, Endpoint
from pointsman.kernel.plugin import Role
from pointsman.kernel.registry import Stability

from .keys import REQUEST_PROMPT, TOKENIZED_PROMPT, Feature, RequestPrompt, TokenizedPrompt, Tokens
from .tokens import NO_HINTS, EstimateParameters, VideoHints, VllmParameters, estimate

logger = logging.getLogger(__name__)

WARM_UP_TRIES: Final = 24
WARM_UP_PAUSE: Final = 5.0  # seconds
ESTIMATE_TIMEOUT: Final = 0.4  # seconds; the estimate does not wait


@final
@frozen(kw_only=True)
class TokenProducerParameters:
    estimate: EstimateParameters | None = None
    vllm: VllmParameters | None = None
    model_name: str = ""
    """The model that the renderer knows; needed for it, and enough to ask for it."""

    def __attrs_post_init__(self) -> None:
        if self.estimate is not None and self.renders:
            raise ValueError("estimate and vllm are two backends: choose one")
        if self.vllm is not None and not self.model_name:
            raise ValueError("the vllm backend needs modelName")

    @property
    def renders(self) -> bool:
        return self.vllm is not None or bool(self.model_name)


TokenId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class _Rendered(msgspec.Struct):
    token_ids: list[TokenId] = []
    tokens: list[TokenId] | None = None
    """What /tokenize calls them."""
    features: msgspec.Raw = msgspec.Raw(b"null")


class _Placeholder(msgspec.Struct):
    offset: int
    length: int


class _Features(msgspec.Struct):
    mm_hashes: dict[str, list[str]] = {}
    mm_placeholders: dict[str, list[_Placeholder]] = {}


@final
@define(eq=False)
class TokenProducer:
    """Turns prompts into tokens, by an estimate or by the engine's render endpoint."""

    type_name: ClassVar = "token-producer"
    stability: ClassVar = Stability.BETA
    aliases: ClassVar = {"tokenizer": "write token-producer"}
    produces: ClassVar = keys(TOKENIZED_PROMPT)
    default_for: ClassVar = keys(TOKENIZED_PROMPT)
    parameters: TokenProducerParameters
    fallbacks: int = field(default=0, init=False)
    """Requests that were estimated because the renderer did not answer."""
    _client: httpx.AsyncClient | None = field(default=None, init=False)

    @property
    def consumes(self) -> Consumes:
        """The renderer is sent the body as it is; the estimate needs its texts only."""
        if self.parameters.renders:
            return Consumes(optional=[REQUEST_PROMPT, REQUEST_HEADERS, REQUEST_BODY, REQUEST_PATH])
        return Consumes(optional=[REQUEST_PROMPT, REQUEST_HEADERS])

    @property
    def idle_roles(self) -> frozenset[Role]:
        return frozenset() if self.parameters.renders else frozenset({Role.SERVICE})

    @property
    def waits(self) -> bool:
        """Whether producing needs I/O."""
        return self.parameters.renders

    @property
    def timeout(self) -> float:
        """Seconds. What takes longer is estimated before that, by time-outs of its own."""
        if not self.parameters.renders:
            return ESTIMATE_TIMEOUT
        return max(self._backend.timeout, self._backend.mm_timeout) + ESTIMATE_TIMEOUT

    @property
    def _backend(self) -> VllmParameters:
        return self.parameters.vllm or VllmParameters()

    def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> Awaitable[None] | None:
        prompt = data.get(REQUEST_PROMPT)
        if prompt is None:  # the parser knows no prompt of this API
            return None
        if self.parameters.renders and not prompt.token_ids:
            return self._render(data, prompt)
        self._publish(data, self._estimate(data, prompt))
        return None

    def _estimate(self, data: DataView, prompt: RequestPrompt) -> TokenizedPrompt:
        headers = data.get(REQUEST_HEADERS) if _has(prompt, "video") else None
        hints = NO_HINTS if headers is None else VideoHints.of(headers)
        return estimate(prompt, self.parameters.estimate or EstimateParameters(), hints)

    def _publish(self, data: DataView, tokens: TokenizedPrompt) -> None:
        """A prompt without tokens is no prompt."""
        if tokens.count:
            data[TOKENIZED_PROMPT] = tokens

    async def _render(self, data: DataView, prompt: RequestPrompt) -> None:
        body, path = data.get(REQUEST_BODY), data.get(REQUEST_PATH) or ""
        try:
            tokens = await self._ask(path, body or {}, prompt)
        except (httpx.HTTPError, msgspec.MsgspecError, TimeoutError, LookupError) as exc:
            self.fallbacks += 1
            logger.debug("the renderer failed, the prompt is estimated: %s", type(exc).__name__)
            tokens = self._estimate(data, prompt)
        self._publish(data, tokens)

    async def _ask(
        self, path: str, body: Mapping[str, Any], prompt: RequestPrompt
    ) -> TokenizedPrompt:
        """The renderer's tokens. Raises LookupError for an API that it does not know."""
        where = self._where(_api(path), body)
        timeout = self._backend.mm_timeout if _has(prompt) else self._backend.timeout
        with anyio.fail_after(timeout):
            reply = await self._http().post(
                self._backend.url.rstrip("/") + where,
                content=msgspec.json.encode({**body, "model": self.parameters.model_name}),
                headers={"content-type": "application/json"},
            )
        reply.raise_for_status()
        return _tokens_of(reply.content, prompt.salt)

    def _where(self, api: str, body: Mapping[str, Any]) -> str:
        """The endpoint to ask. Raises LookupError for what it does not take."""
        if self._backend.endpoint == "render":
            return f"/v1/{api}/render"
        if not isinstance(body.get("prompt", ""), str):
            raise LookupError("/tokenize takes one prompt at a time")
        return "/tokenize"

    def _http(self) -> httpx.AsyncClient:
        """Made when first used: a plugin may be built without a loop."""
        if self._client is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=16)
            self._client = httpx.AsyncClient(timeout=None, trust_env=False, limits=limits)
        return self._client

    async def run(self) -> None:
        """Warm the renderer up, and close the connections to it in the end."""
        try:
            await self._warm_up()
            await anyio.sleep_forever()
        finally:
            client, self._client = self._client, None
            if client is not None:
                with anyio.CancelScope(shield=True):  # closes sockets, waits for nobody
                    await client.aclose()

    async def _warm_up(self) -> None:
        """Its first requests load tokenizer and templates."""
        messages = [{"role": "user", "content": "warmup"}]
        for _ in range(WARM_UP_TRIES):
            try:
                await self._ask("/v1/chat/completions", {"messages": messages}, RequestPrompt())
            except (httpx.HTTPError, msgspec.MsgspecError, TimeoutError):
                await anyio.sleep(WARM_UP_PAUSE)
            else:
                logger.info("the renderer at %s answers", self._backend.url)
                return
        logger.warning("the renderer at %s does not answer: estimating", self._backend.url)

    def dump_state(self) -> object:
        return {"backend": "vllm" if self.parameters.renders else "estimate", **self._counts()}

    def _counts(self) -> Mapping[str, int]:
        return {"fallbacks": self.fallbacks} if self.parameters.renders else {}


def _has(prompt: RequestPrompt, modality: str = "") -> bool:
    """Whether there is a medium in the prompt, of that modality if one is named."""
    return any(
        modality in ("", part.modality)
        for parts in prompt.prompts
        for part in parts
        if not isinstance(part, bytes)
    )


def _api(path: str) -> str:
    for kind in ("chat/completions", "completions"):
        if path.rstrip("/").endswith(kind):
            return kind
    raise LookupError(path)


def _tokens_of(reply: bytes, salt: str) -> TokenizedPrompt:
    """One rendered prompt, or a list of them. Raises LookupError for none."""
    if reply.lstrip().startswith(b"["):
        rendered = msgspec.json.decode(reply, type=list[_Rendered])
    else:
        rendered = [msgspec.json.decode(reply, type=_Rendered)]
    if not rendered:
        raise LookupError("no prompt was rendered")
    return TokenizedPrompt(tuple(map(_one, rendered)), salt)


def _one(rendered: _Rendered) -> Tokens:
    ids = array("I", rendered.token_ids if rendered.tokens is None else rendered.tokens)
    return Tokens(ids.tobytes(), _features(rendered.features))


def _features(raw: msgspec.Raw) -> tuple[Feature, ...]:
    """Hashes and placeholders of each modality, pair by pair, in the order of their places."""
    if bytes(raw) in (b"null", b""):
        return ()
    found = msgspec.json.decode(raw, type=_Features)
    features = [
        Feature(modality, digest, place.offset, place.length)
        for modality, hashes in found.mm_hashes.items()
        for digest, place in zip(hashes, found.mm_placeholders.get(modality, []), strict=False)
    ]
    return tuple(sorted(features, key=lambda feature: feature.offset))
