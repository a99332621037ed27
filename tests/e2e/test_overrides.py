"""What the picker has to say about responses, in each recommended mode.

In lean buffered mode Envoy shows it none, unless it asks for that of single requests; in lean
duplex mode it may not ask, and sees no more than their headers.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Final

from attrs import evolve

from pointsman.actors.sim.envoy_bootstrap import DESTINATION, DESTINATION_NAMESPACE, Mode

from .gateway import Gateway, Layout, chat, eventually, gateway, scored_by
from .model_servers import MODEL, STREAM, USAGE
from .modes import INCREMENTAL, in_each

ALIAS: Final = "the-model-of-the-day"
REWRITE: Final = {"x-llm-d-model-name-rewrite": MODEL}
TOKEN: Final = "x-session-token"
SCORES: Final = "x-scores"
SENT: Final = "http.inference.ext_proc.stream_msgs_sent"
SEEING_BODIES: Final = (Mode.FULL_DUPLEX, Mode.LEAN_BUFFERED)


def asking_for(model: str, *, stream: bool) -> bytes:
    return json.dumps({**json.loads(chat("hello", stream=stream)), "model": model}).encode()


async def output_tokens(under_test: Gateway) -> list[str]:
    """The lines of the figure that counts them."""
    metrics = await under_test.client.get(f"http://{under_test.layout.metrics}/metrics")
    name = "llm_d_epp_request_output_tokens_sum"
    return [line for line in metrics.text.splitlines() if line.startswith(name)]


@in_each(SEEING_BODIES)
async def test_who_asks_for_an_alias_is_answered_in_its_name(pointsman: Layout, mode: Mode) -> None:
    async with gateway(pointsman, evolve(pointsman.envoy(), mode=mode)) as under_test:
        whole = await under_test.post(asking_for(ALIAS, stream=False), REWRITE)
        streamed = await under_test.post(asking_for(ALIAS, stream=True), REWRITE)
        await eventually(under_test.is_idle)
        (counted,) = await output_tokens(under_test)
    models = [json.loads(received.body)["model"] for received in under_test.best.received]
    assert models == [MODEL, MODEL]
    assert whole.json()["model"] == ALIAS
    assert streamed.content == STREAM.replace(MODEL.encode(), ALIAS.encode())
    assert f',model_name="{ALIAS}",' in counted
    assert f'target_model_name="{MODEL}"' in counted
    assert float(counted.rpartition(" ")[2]) == 2 * USAGE["completion_tokens"]


async def test_only_the_response_that_is_asked_for_passes_a_lean_picker(
    pointsman: Layout,
) -> None:
    settings = evolve(pointsman.envoy(), mode=Mode.LEAN_BUFFERED)
    async with gateway(pointsman, settings) as under_test:
        await under_test.chat(stream=True)
        plain = await under_test.stat(SENT)
        await under_test.post(asking_for(ALIAS, stream=True), REWRITE)
        asked = await under_test.stat(SENT) - plain
        await under_test.chat(stream=True)
        plain_again = await under_test.stat(SENT) - plain - asked
    assert (plain, plain_again) == (2, 2)
    assert asked > 3  # the response's headers, and at least one piece of it


@in_each(INCREMENTAL)
async def test_a_session_is_told_its_endpoint_and_stays_with_it(
    pointsman: Layout, mode: Mode
) -> None:
    busiest = max(pointsman.servers, key=lambda server: server.waiting)
    weights = {"session-affinity-scorer": 10, "queue-scorer": 1}
    where = evolve(
        pointsman,
        config=scored_by(weights, pointsman.endpoints),
        flags=(*pointsman.flags, "--allow-experimental-plugins"),
    )
    async with gateway(where, evolve(where.envoy(), mode=mode)) as under_test:
        first = await under_test.chat(stream=True)
        first_token = b64decode(first.headers[TOKEN]).decode()
        other = b64encode(first_token.replace(under_test.best.name, busiest.name).encode())
        second = await under_test.post(chat("again"), {TOKEN: other.decode()})
    assert under_test.best.name in first_token
    assert first.content == STREAM
    assert second.headers["x-inference-pod"] == busiest.name
    assert second.headers[TOKEN] == other.decode()


@in_each(INCREMENTAL)
async def test_envoy_learns_how_every_endpoint_scored(pointsman: Layout, mode: Mode) -> None:
    command = f"%DYNAMIC_METADATA({DESTINATION_NAMESPACE}:{DESTINATION}-scores)%"
    where = evolve(pointsman, flags=(*pointsman.flags, "--emit-endpoint-scores"))
    settings = evolve(where.envoy(), mode=mode, response_headers={SCORES: command})
    async with gateway(where, settings) as under_test:
        response = await under_test.chat()
    scores: dict[str, float] = json.loads(response.headers[SCORES])
    assert scores.keys() == {str(server.address) for server in where.servers}
    assert max(scores, key=scores.__getitem__) == str(under_test.best.address)
    assert len(set(scores.values())) == len(where.servers)
