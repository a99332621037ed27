"""Prompts become tokens: by the estimate, or by an engine that may fail or be late."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx
import pytest
import trio
from trio.testing import MockClock

from pointsman.kernel.errors import ConfigError
from pointsman.kernel.model import REQUEST_BODY, REQUEST_HEADERS, REQUEST_PATH, Headers
from pointsman.kernel.plugin import Role
from pointsman.kernel.structure import Duration
from pointsman.kernel.testing import Bench, endpoints, wired
from pointsman.plugins.keys import (
    REQUEST_PROMPT,
    TOKENIZED_PROMPT,
    Feature,
    Media,
    RequestPrompt,
    TokenizedPrompt,
    Tokens,
)
from pointsman.plugins.token_producer import (
    WARM_UP_PAUSE,
    WARM_UP_TRIES,
    TokenProducer,
    TokenProducerParameters,
)
from pointsman.plugins.tokens import VllmParameters

HELLO: Final = RequestPrompt(((b"hello world!",),), salt="s")
ESTIMATE: Final = TokenizedPrompt((Tokens(b"hello world!"),), "s", estimated=True)
CHAT: Final = {"messages": [{"role": "user", "content": "hello world!"}], "model": "mine"}

Answer = Callable[[httpx.Request], Any]


def tokens(*ids: int) -> Tokens:
    return Tokens(b"".join(number.to_bytes(4, "little") for number in ids))


class Engine:
    """Answers what a test says, after a while."""

    def __init__(self, answer: object = None, *, status: int = 200, pause: float = 0.0) -> None:
        self.answer, self.status, self.pause = answer, status, pause
        self.asked: list[tuple[str, Any]] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((str(request.url), json.loads(request.content)))
        await anyio.sleep(self.pause)
        if self.answer is None:
            raise httpx.ConnectError("nobody there")
        content = self.answer if isinstance(self.answer, bytes) else json.dumps(self.answer)
        return httpx.Response(self.status, content=content)


@asynccontextmanager
async def rendering(engine: Engine, **vllm: Any) -> AsyncGenerator[TokenProducer]:
    """A producer that asks *engine*."""
    settings = VllmParameters(url="http://engine:8000/", **vllm)
    producer = TokenProducer(TokenProducerParameters(vllm=settings, model_name="base"))
    async with httpx.AsyncClient(transport=httpx.MockTransport(engine)) as client:
        producer._client = client
        yield producer


async def produced(
    producer: TokenProducer,
    prompt: RequestPrompt = HELLO,
    body: object = CHAT,
    path: str = "/v1/chat/completions",
) -> TokenizedPrompt | None:
    data = {REQUEST_PROMPT: prompt, REQUEST_BODY: body, REQUEST_PATH: path}
    found = await Bench(producer, endpoints("a")).produce(data)
    result: TokenizedPrompt | None = found.get(TOKENIZED_PROMPT)
    return result


# -- the estimate -------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", ["{}", "{estimate: {}}"])
def test_without_a_backend_the_prompt_is_estimated_at_once(parameters: str) -> None:
    text = f"plugins: [{{type: token-producer, parameters: {parameters}}}]"
    wiring = wired(text, TokenProducer)
    assert not wiring.director.waits
    assert wiring.services == ()
    plugin = wiring.installed["token-producer"].plugin
    bench = Bench(plugin, endpoints("a"))
    assert bench.produce_now({REQUEST_PROMPT: HELLO}) == {TOKENIZED_PROMPT: ESTIMATE}
    assert plugin.dump_state() == {"backend": "estimate"}


def test_a_prompt_without_tokens_is_none() -> None:
    bench = Bench(TokenProducer(TokenProducerParameters()), endpoints("a"))
    assert bench.produce_now({REQUEST_PROMPT: RequestPrompt(((b"",),))}) == {}
    assert bench.produce_now() == {}


def test_what_a_client_says_of_its_film_counts() -> None:
    prompt = RequestPrompt(((Media("video", b"http://x/1.mp4"),),))
    bench = Bench(TokenProducer(TokenProducerParameters()), endpoints("a"))

    def count(**headers: bytes) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        found = bench.produce_now({REQUEST_PROMPT: prompt, REQUEST_HEADERS: Headers(named)})
        result: TokenizedPrompt = found[TOKENIZED_PROMPT]
        return result.count

    assert count() == 4500
    assert count(x_llm_d_video_duration_seconds=b"1") == 450


# -- the engine's tokens ------------------------------------------------------------------------


async def test_a_chat_is_rendered_by_the_engine() -> None:
    engine = Engine({"token_ids": [5, 6, 7]})
    async with rendering(engine) as producer:
        assert producer.waits
        assert await produced(producer) == TokenizedPrompt((tokens(5, 6, 7),), "s")
    url = "http://engine:8000/v1/chat/completions/render"
    assert engine.asked == [(url, {**CHAT, "model": "base"})]


async def test_completions_may_be_several_prompts() -> None:
    engine = Engine([{"token_ids": [5]}, {"token_ids": [6, 7]}])
    async with rendering(engine) as producer:
        found = await produced(producer, path="/v1/completions/", body={"prompt": ["a", "b"]})
    assert found == TokenizedPrompt((tokens(5), tokens(6, 7)), "s")
    assert engine.asked[0][0] == "http://engine:8000/v1/completions/render"


async def test_the_other_endpoint_of_the_engine_may_be_asked() -> None:
    engine = Engine({"count": 2, "max_model_len": 9, "tokens": [8, 9]})
    async with rendering(engine, endpoint="tokenize") as producer:
        assert await produced(producer) == TokenizedPrompt((tokens(8, 9),), "s")
        several = await produced(producer, path="/v1/completions", body={"prompt": ["a", "b"]})
    assert several == ESTIMATE
    assert [url for url, _ in engine.asked] == ["http://engine:8000/tokenize"]


async def test_features_come_in_the_order_of_their_places() -> None:
    reply = {
        "token_ids": [1, 2, 3, 4, 5],
        "features": {
            "mm_hashes": {"image": ["i1", "i2", "odd"], "audio": ["a1"]},
            "mm_placeholders": {
                "image": [{"offset": 3, "length": 1}, {"offset": 0, "length": 2}],
                "audio": [{"offset": 2, "length": 1}],
            },
        },
    }
    async with rendering(Engine(reply)) as producer:
        found = await produced(producer)
    assert found is not None
    assert found.prompts[0].features == (
        Feature("image", "i2", 0, 2),
        Feature("audio", "a1", 2, 1),
        Feature("image", "i1", 3, 1),
    )


async def test_token_ids_are_not_sent_anywhere() -> None:
    engine = Engine({"token_ids": [1]})
    async with rendering(engine) as producer:
        found = await produced(producer, RequestPrompt(token_ids=(b"\7\0\0\0",)))
    assert found == TokenizedPrompt((tokens(7),))
    assert engine.asked == []


@pytest.mark.parametrize(
    "engine",
    [
        Engine(None),
        Engine({"error": "no"}, status=500),
        Engine({"error": "no"}, status=404),
        Engine(b"garbage"),
        Engine(b""),
        Engine([]),
        Engine({"token_ids": [-1]}),
        Engine({"token_ids": [1 << 32]}),
        Engine({"token_ids": "abc"}),
        Engine({"token_ids": [1], "features": {"mm_hashes": 5}}),
        Engine({"token_ids": [1]}, pause=6.0),
    ],
    ids=lambda engine: f"{engine.answer!r}, {engine.status}, {engine.pause}",
)
async def test_an_engine_that_fails_or_is_late_takes_no_tokens_away(
    engine: Engine, autojump_clock: MockClock
) -> None:
    async with rendering(engine) as producer:
        assert await produced(producer) == ESTIMATE
        assert producer.fallbacks == 1
        assert producer.dump_state() == {"backend": "vllm", "fallbacks": 1}
    assert trio.current_time() <= 5.0


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/embeddings", ""])
async def test_apis_that_the_engine_cannot_render_are_estimated(path: str) -> None:
    engine = Engine({"token_ids": [1]})
    async with rendering(engine) as producer:
        assert await produced(producer, path=path) == ESTIMATE
    assert engine.asked == []


async def test_media_get_more_time(autojump_clock: MockClock) -> None:
    with_image = RequestPrompt(((b"see", Media("image", b"http://x/1.png")),))
    async with rendering(Engine({"token_ids": [1]}, pause=20.0)) as producer:
        found = await produced(producer, with_image)
        assert found == TokenizedPrompt((tokens(1),))
        assert producer.timeout > 30.0


# -- its life as a service ------------------------------------------------------------------------


async def test_the_engine_is_warmed_up_until_it_answers(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    engine = Engine(None)
    async with rendering(engine) as producer:
        client = producer._client
        nursery.start_soon(producer.run)
        await anyio.sleep(2.5 * WARM_UP_PAUSE)
        engine.answer = {"token_ids": [1]}
        await anyio.sleep(5 * WARM_UP_PAUSE)
        assert len(engine.asked) == 4
        nursery.cancel_scope.cancel()
    assert client is not None


async def test_an_engine_that_never_answers_is_given_up(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, nursery: trio.Nursery
) -> None:
    engine = Engine({"token_ids": []}, status=503)
    async with rendering(engine) as producer:
        nursery.start_soon(producer.run)
        await anyio.sleep(2 * WARM_UP_TRIES * WARM_UP_PAUSE)
        nursery.cancel_scope.cancel()
    assert len(engine.asked) == WARM_UP_TRIES
    assert "does not answer: estimating" in caplog.text


async def test_it_takes_its_connections_along(autojump_clock: MockClock) -> None:
    async with rendering(Engine({"token_ids": [1]})) as producer:
        client = producer._client
        assert client is not None
        with anyio.move_on_after(1):
            await producer.run()
        assert client.is_closed
        assert producer._client is None
        assert not producer._http().is_closed  # a request of an older configuration
        await producer._http().aclose()


# -- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("{estimate: {}, modelName: m}", "choose one"),
        ("{vllm: {}}", "needs modelName"),
        ("{modelName: m, vllm: {timeout: soon}}", "timeout"),
        ("{modelName: m, vllm: {endpoint: detokenize}}", "endpoint"),
        ("{estimate: {image: {mode: guess}}}", "mode"),
        ("{estimate: {video: {frames: {mode: all}}}}", "mode"),
        ("{udsTokenizerConfig: {}}", "udsTokenizerConfig"),
    ],
)
def test_wrong_parameters_are_refused(parameters: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        wired(f"plugins: [{{type: token-producer, parameters: {parameters}}}]", TokenProducer)


def test_the_old_name_is_known() -> None:
    text = "plugins: [{type: tokenizer, parameters: {modelName: m}}]"
    wiring = wired(text, TokenProducer)
    assert wiring.warnings == ("plugin type 'tokenizer' is deprecated: write token-producer",)
    assert wiring.director.waits
    assert Role.SERVICE in wiring.roles["tokenizer"]


def test_a_model_name_alone_asks_the_engine_at_its_usual_place() -> None:
    parameters = TokenProducerParameters(model_name="m")
    assert TokenProducer(parameters)._backend == VllmParameters(
        url="http://localhost:8000", timeout=Duration(5.0), mm_timeout=Duration(30.0)
    )
