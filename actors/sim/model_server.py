"""The HTTP face of one simulated vLLM server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from random import Random
from typing import Final, final

import anyio
import attrs
from attrs import define, field

from pointsman.actors.http import (
    JSON,
    Headers,
    Request,
    Response,
    json_response,
    text_response,
)
from pointsman.kernel.channel import Latest

from .api import (
    AdapterRequest,
    ApiError,
    ChatRequest,
    CompletionRequest,
    GenerateRequest,
    TokenizeRequest,
    decode,
)
from .background import Background
from .drafts import Author, Draft
from .driver import Driver
from .engine import Engine
from .exposition import Exposition
from .misbehaviour import Misbehaviour
from .pods import Pod
from .replies import DONE, ChatReply, Choice, CompletionReply, Reply, models
from .work import QueueFull

VERSION: Final = "0.32.0"
_EVENT_STREAM: Final[Headers] = (("content-type", "text/event-stream; charset=utf-8"),)
_BUSY: Final = (
    "The engine is currently busy and cannot accept new requests. "
    "Please try again later or on a different instance."
)

Route = Callable[[Request], Awaitable[Response]]


@final
@define(eq=False)
class ModelServer:
    """Answers HTTP requests from one engine. Nothing is generated unless `run` is running."""

    pod: Pod
    speed: float = 1.0
    wall: Callable[[], float] = time.time
    """Tells Unix time."""
    driver: Driver = field(init=False)
    _author: Author = field(init=False)
    _misbehaviour: Misbehaviour = field(init=False)
    _adapters: dict[str, str] = field(init=False)
    """Loaded adapters and where they came from."""
    _routes: dict[str, dict[str, Route]] = field(init=False)
    _identity: Headers = field(init=False)
    _random: Random = field(init=False)
    _created: float = field(init=False)
    _opened: float | None = field(default=None, init=False)
    """When the server started, on the clock that sleeps."""

    def __attrs_post_init__(self) -> None:
        settings = self.pod.settings
        config = settings.engine_config()
        engine = Engine(config, settings.seed)
        self._random = Random(f"{settings.seed}/{self.pod.name}")
        self._created = self.wall()
        self._author = Author(config, settings.output_tokens)
        self._adapters = dict.fromkeys(settings.lora_modules, "")
        self._identity = (
            ("x-inference-pod", self.pod.name),
            ("x-inference-namespace", settings.namespace),
            ("x-inference-port", str(self.pod.port)),
        )
        self.driver = Driver(engine, Background(self._random, settings.background), self.speed)
        exposition = Exposition(engine, settings.model, self._created, self._unix)
        faults = settings.faults()
        self._misbehaviour = Misbehaviour(faults, self.driver, exposition, self._random)
        self._routes = self._make_routes()

    async def run(self) -> None:
        """Generate until cancelled."""
        self._opened = anyio.current_time()
        await self.driver.run()

    async def handle(self, request: Request) -> Response:
        """Answer one request; every answer names the pod that gave it."""
        try:
            response = await self._dispatch(request)
        except ApiError as error:
            response = error.response()
        request_id = request.headers.get("x-request-id") or f"{self._random.getrandbits(128):032x}"
        headers = (*response.headers, *self._identity, ("x-request-id", request_id))
        return attrs.evolve(response, headers=headers)

    def _make_routes(self) -> dict[str, dict[str, Route]]:
        return {
            "/v1/chat/completions": {"POST": self._chat},
            "/v1/completions": {"POST": self._complete},
            "/v1/models": {"GET": self._models},
            "/v1/load_lora_adapter": {"POST": self._load_adapter},
            "/v1/unload_lora_adapter": {"POST": self._unload_adapter},
            "/tokenize": {"POST": self._tokenize},
            "/reset_prefix_cache": {"POST": self._reset_prefix_cache},
            "/health": {"GET": self._health},
            "/ping": {"GET": self._health, "POST": self._health},
            "/version": {"GET": self._version},
            "/load": {"GET": self._load},
            "/metrics": {"GET": self._misbehaviour.metrics},
            "/admin/config": {"GET": self._misbehaviour.show, "POST": self._misbehaviour.change},
        }

    async def _dispatch(self, request: Request) -> Response:
        methods = self._routes.get(request.path)
        if methods is None:
            return json_response({"detail": "Not Found"}, 404)
        route = methods.get(request.method)
        if route is None:
            allow = (("allow", ", ".join(methods)),)
            return json_response({"detail": "Method Not Allowed"}, 405, allow)
        return await route(request)

    async def _chat(self, request: Request) -> Response:
        self._misbehaviour.strike(request)
        body = decode(request.body, ChatRequest)
        drafts = self._drafts(body, body.prompts)
        reply = ChatReply(*self._reply_fields("chatcmpl", request, body))
        return await self._generate(body, drafts, reply)

    async def _complete(self, request: Request) -> Response:
        self._misbehaviour.strike(request)
        body = decode(request.body, CompletionRequest)
        drafts = self._drafts(body, body.prompts)
        reply = CompletionReply(*self._reply_fields("cmpl", request, body))
        return await self._generate(body, drafts, reply)

    def _drafts(self, body: GenerateRequest, prompts: Callable[[], list[list[int]]]) -> list[Draft]:
        read = prompts()
        adapter = self._adapter(body.model)
        body.check(self._author.config.max_model_len)
        return self._author.drafts(body, read, adapter)

    def _adapter(self, model: str | None) -> str | None:
        """The adapter that *model* names; None for the base model.

        Raises:
            ApiError: it names nothing that is served here.
        """
        base = self.pod.settings.model
        if model is None or model == base:
            return None
        if model not in self._adapters:
            aliases = ", ".join((base, *self._adapters))
            message = f"The model `{model}` does not exist. Valid aliases: {aliases}."
            raise ApiError(404, "NotFoundError", message, "model")
        return model

    def _reply_fields(
        self, prefix: str, request: Request, body: GenerateRequest
    ) -> tuple[str, int, str, int, bool]:
        name = request.headers.get("x-request-id") or f"{self._random.getrandbits(64):016x}"
        options = body.stream_options
        return (
            f"{prefix}-{name}",
            int(self.wall()),
            body.model or self.pod.settings.model,
            self._author.config.block_size,
            options is not None and options.include_usage and options.continuous_usage_stats,
        )

    async def _generate(
        self, body: GenerateRequest, drafts: Sequence[Draft], reply: Reply
    ) -> Response:
        progress = Latest[None](None)
        choices = self._submit(drafts, progress)
        if body.stream:
            usage = body.stream_options is not None and body.stream_options.include_usage
            events = _events(choices, reply, progress, usage=usage)
            return Response(200, events, _EVENT_STREAM, lambda: self._release(choices))
        try:
            while any(choice.generation.ended is None for choice in choices):
                await progress.newer(progress.version)
        finally:
            self._release(choices)
        return Response(200, reply.whole(choices), JSON)

    def _submit(self, drafts: Sequence[Draft], progress: Latest[None]) -> list[Choice]:
        choices: list[Choice] = []
        try:
            for index, draft in enumerate(drafts):
                generation = self.driver.submit(draft.work, progress)
                choices.append(Choice(index, generation, draft.pieces, draft.repeats))
        except QueueFull:
            self._release(choices)
            raise ApiError(503, "Service Unavailable", _BUSY) from None
        return choices

    def _release(self, choices: Sequence[Choice]) -> None:
        for choice in choices:
            self.driver.cancel(choice.generation)

    async def _models(self, _request: Request) -> Response:
        base, context = self.pod.settings.model, self._author.config.max_model_len
        served = [(base, None), *((name, base) for name in self._adapters)]
        return json_response(models(served, context, int(self._created)))

    async def _load_adapter(self, request: Request) -> Response:
        body = decode(request.body, AdapterRequest)
        if body.lora_name in self._adapters:
            message = f"The lora adapter '{body.lora_name}' has already been loaded."
            raise ApiError(400, "InvalidUserInput", message)
        self._adapters[body.lora_name] = body.lora_path
        return text_response(f"Success: LoRA adapter '{body.lora_name}' added successfully.")

    async def _unload_adapter(self, request: Request) -> Response:
        name = decode(request.body, AdapterRequest).lora_name
        if self._adapters.pop(name, None) is None:
            raise ApiError(404, "NotFoundError", f"The lora adapter '{name}' cannot be found.")
        return text_response(f"Success: LoRA adapter '{name}' removed successfully.")

    async def _tokenize(self, request: Request) -> Response:
        tokens = decode(request.body, TokenizeRequest).tokens()
        context = self._author.config.max_model_len
        count = {"count": len(tokens), "max_model_len": context}
        return json_response(count | {"tokens": tokens, "token_strs": None})

    async def _reset_prefix_cache(self, _request: Request) -> Response:
        self.driver.engine.cache.forget()
        return json_response({"success": True})

    async def _health(self, _request: Request) -> Response:
        return Response(200 if self._started() else 503)

    def _started(self) -> bool:
        duration = self.pod.settings.startup_duration
        if self._opened is None:
            return not duration
        return anyio.current_time() - self._opened >= duration

    async def _version(self, _request: Request) -> Response:
        return json_response({"version": VERSION})

    async def _load(self, _request: Request) -> Response:
        return json_response({"server_load": self.driver.open})

    def _unix(self, engine_time: float) -> float:
        return self._created + engine_time / (self.speed or 1.0)


async def _events(
    choices: Sequence[Choice], reply: Reply, progress: Latest[None], *, usage: bool
) -> AsyncIterator[bytes]:
    """The server-sent events of *choices*: one a token, as they are generated."""
    sent = [0] * len(choices)
    version = 0
    while any(choice.generation.work.output_tokens > sent[choice.index] for choice in choices):
        version, _none = await progress.newer(version)
        events: list[bytes] = []
        for choice in choices:
            first, sent[choice.index] = sent[choice.index], choice.generation.generated
            if first == 0 < sent[choice.index]:
                events.append(reply.opening(choice))
            events += [reply.piece(choice, each) for each in range(first, sent[choice.index])]
        if events:
            yield b"".join(events)
    if usage:
        yield reply.closing_usage(choices)
    yield DONE
