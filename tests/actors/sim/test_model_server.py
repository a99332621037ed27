"""What clients of a simulated server get, on virtual time."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from .clients import CHAT, Start

LONG = "the quick brown fox jumps over the lazy dog and then it rests a while. " * 10


async def test_a_chat_is_answered_as_vllm_does(start: Start, autojump_clock: MockClock) -> None:
    status, answer = await start().ask(
        "/v1/chat/completions", CHAT | {"max_tokens": 5}, x_request_id="my-req-1"
    )
    text = answer["choices"][0]["message"]["content"]
    assert len(text.split()) == 5
    assert (status, answer) == (
        200,
        {
            "id": "chatcmpl-my-req-1",
            "object": "chat.completion",
            "created": 1795964370,
            "model": "llama-8b",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": text,
                        "refusal": None,
                        "annotations": None,
                        "audio": None,
                        "function_call": None,
                        "reasoning": None,
                    },
                    "logprobs": None,
                    "finish_reason": "length",
                    "stop_reason": None,
                    "token_ids": None,
                    "routed_experts": None,
                }
            ],
            "service_tier": None,
            "system_fingerprint": answer["system_fingerprint"],
            "usage": {
                "prompt_tokens": 13,
                "total_tokens": 18,
                "completion_tokens": 5,
                "prompt_tokens_details": {
                    "cached_tokens": 0,
                    "created_cache_tokens": 0,
                    "multimodal_tokens": None,
                },
                "completion_tokens_details": None,
            },
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        },
    )


async def test_an_answer_names_its_pod_and_its_request(
    start: Start, autojump_clock: MockClock
) -> None:
    response = await start(namespace="prod").response("/version", x_request_id="r-7")
    assert {
        ("x-inference-pod", "sim-1"),
        ("x-inference-namespace", "prod"),
        ("x-inference-port", "8000"),
        ("x-request-id", "r-7"),
    } <= set(response.headers)


async def test_a_chat_streams_a_role_then_tokens_then_the_usage(
    start: Start, autojump_clock: MockClock
) -> None:
    events = await start().stream(
        "/v1/chat/completions",
        CHAT | {"max_tokens": 3, "stream_options": {"include_usage": True}},
    )
    heads = {tuple(list(event)[:5]) for event in events}
    assert heads == {("id", "object", "created", "model", "choices")}
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    role, first, second, last, usage = events
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert list(role)[5:] == ["prompt_token_ids", "prompt_text"]
    assert first["choices"] == [
        {
            "index": 0,
            "delta": {"content": first["choices"][0]["delta"]["content"]},
            "logprobs": None,
            "finish_reason": None,
            "token_ids": None,
        }
    ]
    assert second["choices"][0]["finish_reason"] is None
    assert last["choices"][0]["finish_reason"] == "length"
    assert "stop_reason" in last["choices"][0]
    assert usage["choices"] == []
    assert (usage["usage"]["prompt_tokens"], usage["usage"]["completion_tokens"]) == (13, 3)


async def test_usage_comes_only_to_those_who_ask_for_it(
    start: Start, autojump_clock: MockClock
) -> None:
    events = await start().stream("/v1/chat/completions", CHAT | {"max_tokens": 2})
    assert len(events) == 3
    assert not any("usage" in event for event in events)


async def test_usage_can_come_with_every_chunk(start: Start, autojump_clock: MockClock) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = await start().stream(
        "/v1/chat/completions", CHAT | {"max_tokens": 2, "stream_options": options}
    )
    assert [event["usage"]["completion_tokens"] for event in events] == [0, 1, 2, 2]


async def test_a_stream_has_the_text_of_the_whole_answer(
    start: Start, autojump_clock: MockClock
) -> None:
    client = start()
    body = CHAT | {"max_tokens": 20, "ignore_eos": True}
    _status, whole = await client.ask("/v1/chat/completions", body)
    events = await client.stream("/v1/chat/completions", body)
    pieces = [event["choices"][0]["delta"]["content"] for event in events]
    assert "".join(pieces) == whole["choices"][0]["message"]["content"]


async def test_every_server_answers_the_same(start: Start, autojump_clock: MockClock) -> None:
    answers = [
        await start(seed=seed).ask("/v1/chat/completions", CHAT | {"seed": number})
        for seed, number in (("1", 1), ("2", 1), ("1", 2))
    ]
    texts = [answer["choices"][0]["message"]["content"] for _status, answer in answers]
    assert texts[0] == texts[1] != texts[2]


async def test_chunks_come_in_the_rhythm_of_the_engine(
    start: Start, autojump_clock: MockClock
) -> None:
    client = start(prefill_overhead="1", prefill_time_per_token="0", inter_token_latency="0.5")
    body = {"prompt": "on time", "max_tokens": 3, "ignore_eos": True, "stream": True}
    response = await client.response("/v1/completions", body)
    assert not isinstance(response.body, bytes)
    times = [trio.current_time() async for _ in response.body]
    first, second, end_mark = (later - earlier for earlier, later in pairwise(times))
    assert times[0] == pytest.approx(1.0, rel=0.3)
    assert (first, second) == pytest.approx((0.5, 0.5), rel=0.3)
    assert end_mark == 0


@pytest.mark.parametrize(
    ("prompt", "choices", "tokens"),
    [
        ("the quick brown fox", 1, 4),
        (["the quick", "brown fox"], 2, 4),
        ([1, 2, 3], 1, 3),
        ([[1, 2, 3], [4]], 2, 4),
    ],
)
async def test_completions_take_prompts_in_four_forms(
    start: Start, autojump_clock: MockClock, prompt: object, choices: int, tokens: int
) -> None:
    status, answer = await start().ask("/v1/completions", {"prompt": prompt, "max_tokens": 2})
    assert (status, answer["object"]) == (200, "text_completion")
    assert [choice["index"] for choice in answer["choices"]] == list(range(choices))
    assert answer["usage"]["prompt_tokens"] == tokens
    assert answer["usage"]["completion_tokens"] == 2 * choices
    assert list(answer)[-3:] == ["kv_transfer_params", "ec_transfer_params", "metrics"]


async def test_several_answers_stream_side_by_side(start: Start, autojump_clock: MockClock) -> None:
    events = await start().stream("/v1/completions", {"prompt": "go", "n": 2, "max_tokens": 3})
    texts: dict[int, list[str]] = {0: [], 1: []}
    for event in events:
        texts[event["choices"][0]["index"]].append(event["choices"][0]["text"])
    assert [len(pieces) for pieces in texts.values()] == [3, 3]
    assert texts[0] != texts[1]


async def test_a_prompt_with_several_answers_counts_once(
    start: Start, autojump_clock: MockClock
) -> None:
    _status, answer = await start().ask("/v1/completions", {"prompt": "go on", "n": 3})
    assert len(answer["choices"]) == 3
    assert answer["usage"]["prompt_tokens"] == 2


async def test_an_answer_ends_by_itself_or_at_its_limit(
    start: Start, autojump_clock: MockClock
) -> None:
    client = start(output_tokens="20")
    _status, free = await client.ask("/v1/chat/completions", CHAT)
    _status, cut = await client.ask("/v1/chat/completions", CHAT | {"max_completion_tokens": 2})
    _status, forced = await client.ask(
        "/v1/chat/completions", CHAT | {"max_tokens": 90, "ignore_eos": True}
    )
    endings = [
        (answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"])
        for answer in (free, cut, forced)
    ]
    assert endings[0][0] == "stop"
    assert endings[0][1] < 90
    assert endings[1:] == [("length", 2), ("length", 90)]


async def test_a_prompt_that_was_seen_is_found_in_the_cache(
    start: Start, autojump_clock: MockClock
) -> None:
    client = start()
    body = {"prompt": LONG, "max_tokens": 1}
    details = [
        (await client.ask("/v1/completions", body))[1]["usage"]["prompt_tokens_details"]
        for _ in range(2)
    ]
    assert [each["cached_tokens"] for each in details] == [0, 160]
    assert [each["created_cache_tokens"] for each in details] == [160, 0]
    assert await client.metric("vllm:prefix_cache_hits_total") == 160


async def test_a_conversation_goes_on_from_the_cache(
    start: Start, autojump_clock: MockClock
) -> None:
    client = start()
    messages = [{"role": "user", "content": LONG}]
    _status, first = await client.ask(
        "/v1/chat/completions", {"messages": messages, "max_tokens": 64, "ignore_eos": True}
    )
    messages += [first["choices"][0]["message"], {"role": "user", "content": "And then?"}]
    _status, second = await client.ask(
        "/v1/chat/completions", {"messages": messages, "max_tokens": 1}
    )
    used = first["usage"]["total_tokens"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == (used - 1) // 16 * 16


async def test_adapters_and_salts_do_not_share_the_cache(
    start: Start, autojump_clock: MockClock
) -> None:
    client = start(lora_modules="ad")
    cached: list[int] = []
    for more in ({}, {"model": "ad"}, {"cache_salt": "s"}, {}):
        _status, answer = await client.ask(
            "/v1/completions", {"prompt": LONG, "max_tokens": 1} | more
        )
        cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached == [0, 0, 0, 160]


async def test_resetting_the_cache_empties_it(start: Start, autojump_clock: MockClock) -> None:
    client = start()
    await client.ask("/v1/completions", {"prompt": LONG, "max_tokens": 1})
    assert await client.ask("/reset_prefix_cache", {}) == (200, {"success": True})
    _status, again = await client.ask("/v1/completions", {"prompt": LONG, "max_tokens": 1})
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_a_client_who_leaves_a_stream_frees_its_slot(
    start: Start, autojump_clock: MockClock
) -> None:
    client = start()
    response = await client.response("/v1/chat/completions", CHAT | {"stream": True})
    assert (await client.ask("/load"))[1] == {"server_load": 1}
    assert response.on_done is not None
    response.on_done()
    assert await client.metric("vllm:num_requests_running") == 0
    assert (await client.ask("/load"))[1] == {"server_load": 0}


async def test_a_client_who_leaves_without_a_stream_frees_its_slot(
    start: Start, autojump_clock: MockClock
) -> None:
    client = start()
    with trio.move_on_after(0.01):
        await client.ask("/v1/chat/completions", CHAT)
    assert await client.metric("vllm:num_requests_running") == 0
    finished = client.server.driver.engine.stats.finished
    assert (finished["abort"], finished["stop"]) == (1, 0)


async def test_a_busy_server_turns_requests_away_and_keeps_none_of_them(
    start: Start, autojump_clock: MockClock
) -> None:
    client = start(max_num_seqs="1", max_num_queued_reqs="1")
    status, answer = await client.ask("/v1/completions", {"prompt": ["a", "b", "c"]})
    assert (status, answer["error"]["type"]) == (503, "Service Unavailable")
    assert await client.metric("vllm:admission_rejections_total") == 1
    assert await client.metric("vllm:num_requests_running") == 0
    assert await client.metric("vllm:num_requests_waiting") == 0


async def test_without_waiting_an_answer_takes_no_time(
    start: Start, autojump_clock: MockClock
) -> None:
    client = start(speed=0.0)
    before = trio.current_time()
    status, _answer = await client.ask("/v1/chat/completions", CHAT)
    events = await client.stream("/v1/chat/completions", CHAT | {"max_tokens": 9})
    assert (status, len(events), trio.current_time()) == (200, 10, before)


async def test_models_are_the_base_and_its_adapters(
    start: Start, autojump_clock: MockClock
) -> None:
    status, answer = await start(lora_modules="x+y").ask("/v1/models")
    assert status == 200
    assert [(each["id"], each["parent"]) for each in answer["data"]] == [
        ("llama-8b", None),
        ("x", "llama-8b"),
        ("y", "llama-8b"),
    ]
    assert answer["data"][0]["max_model_len"] == 32768


async def test_adapters_come_and_go(start: Start, autojump_clock: MockClock) -> None:
    client = start()
    body = {"lora_name": "ad", "lora_path": "/models/ad"}
    asked = {"model": "ad", "prompt": "hi", "max_tokens": 1}
    statuses: list[int] = []
    for path in ("load", "load", "unload", "unload"):
        response = await client.response(f"/v1/{path}_lora_adapter", body)
        statuses += [response.status, (await client.ask("/v1/completions", asked))[0]]
    assert statuses == [200, 200, 400, 200, 200, 404, 404, 404]


async def test_running_adapters_are_told(start: Start, autojump_clock: MockClock) -> None:
    client = start(lora_modules="ad")
    await client.response(
        "/v1/completions", {"model": "ad", "prompt": "hi", "stream": True, "max_tokens": 9}
    )
    response = await client.response("/metrics")
    assert isinstance(response.body, bytes)
    assert b'max_lora="1",running_lora_adapters="ad",waiting_lora_adapters=""' in response.body


async def test_tokens_can_be_counted_and_sent_back(start: Start, autojump_clock: MockClock) -> None:
    client = start()
    status, told = await client.ask("/tokenize", {"prompt": LONG})
    assert (status, told["count"], len(told["tokens"])) == (200, 161, 161)
    await client.ask("/v1/completions", {"prompt": LONG, "max_tokens": 1})
    _status, answer = await client.ask(
        "/v1/completions", {"prompt": told["tokens"], "max_tokens": 1}
    )
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 160


async def test_a_chat_can_be_counted(start: Start, autojump_clock: MockClock) -> None:
    _status, told = await start().ask("/tokenize", {"messages": CHAT["messages"]})
    assert told["count"] == 13


async def test_a_message_may_come_in_parts(start: Start, autojump_clock: MockClock) -> None:
    parts = [{"type": "text", "text": "Where does"}, {"type": "text", "text": "it go?"}]
    _status, told = await start().ask(
        "/tokenize", {"messages": [{"role": "user", "content": parts}]}
    )
    assert told["count"] == 14  # one more than in one piece: the line's end


async def test_a_server_is_not_healthy_while_it_starts(
    start: Start, autojump_clock: MockClock
) -> None:
    client = start(startup_duration="20")
    await wait_all_tasks_blocked()
    assert (await client.ask("/health"))[0] == 503
    await trio.sleep(21)
    assert (await client.ask("/health"))[0] == 200


@pytest.mark.parametrize(
    ("path", "answer"),
    [("/health", None), ("/ping", None), ("/version", {"version": "0.32.0"})],
)
async def test_small_questions_get_small_answers(
    start: Start, autojump_clock: MockClock, path: str, answer: object
) -> None:
    assert await start().ask(path) == (200, answer)
