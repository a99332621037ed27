"""vLLM's gRPC API and the wire format beneath. B-15 is a field report."""

from __future__ import annotations

import pytest
from betterproto2 import Message
from hypothesis import given
from hypothesis import strategies as st

from pointsman.plugins.keys import MAX_OUTPUT_TOKENS, REQUEST_PROMPT, Feature, RequestPrompt
from pointsman.plugins.parsers import VllmGrpcParser
from pointsman.plugins.parsers.protobuf import MOST_FIELDS
from pointsman.plugins.parsers.vllm_grpc import LONGEST

from .grpc_messages import (
    GenerateRequest,
    MultimodalInputs,
    PlaceholderRange,
    SamplingParams,
    TokenizedInput,
    framed,
    length_delimited,
)
from .reading import ALL, MODEL, Api, le32

generate = Api("vllm.grpc.engine.VllmEngine/Generate", VllmGrpcParser)
embed = Api("vllm.grpc.engine.VllmEngine/Embed", VllmGrpcParser)


def prompt(message: Message | bytes) -> RequestPrompt | None:
    found = generate.values(framed(message)).get(REQUEST_PROMPT)
    assert found is None or isinstance(found, RequestPrompt)
    return found


def request(*tokens: int, media: MultimodalInputs | None = None) -> GenerateRequest:
    tokenized = TokenizedInput(original_text="x", input_ids=list(tokens))
    return GenerateRequest(request_id="r", tokenized=tokenized, stream=True, mm_inputs=media)


def test_a_text_is_a_prompt() -> None:
    assert prompt(GenerateRequest(text="größe")) == RequestPrompt((("größe".encode(),),))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_tokens_are_a_prompt(tokens: list[int]) -> None:
    assert prompt(request(*tokens)) == RequestPrompt(token_ids=(le32(*tokens),))


def test_tokens_may_come_one_by_one() -> None:
    packed = length_delimited(2, bytes([0x90, 0x4E]))
    tokenized = length_delimited(2, b"\x10\x05\x10\x96\x01" + packed)
    assert prompt(tokenized) == RequestPrompt(token_ids=(le32(5, 150, 10000),))


def test_embeddings_are_of_tokens_only() -> None:
    assert embed.values(framed(request(1, 2)))[REQUEST_PROMPT].token_ids == (le32(1, 2),)
    assert "no input" in embed.refusal(framed(GenerateRequest(text="x"))).message


@pytest.mark.parametrize("message", [b"", GenerateRequest(text=""), request()])
def test_a_request_without_an_input_is_refused(message: Message | bytes) -> None:
    assert "no input" in generate.refusal(framed(message)).message


def test_placeholders_say_where_images_stand() -> None:
    places = [PlaceholderRange(offset=1, length=3), PlaceholderRange(offset=9, length=4)]
    media = MultimodalInputs(mm_placeholders=places, mm_hashes=["h1"])
    found = prompt(request(*range(20), media=media))
    assert found is not None
    assert found.features == ((Feature("image", "h1", 1, 3), Feature("image", "", 9, 4)),)


@pytest.mark.parametrize("limit", [0, 16])
def test_a_limit_of_0_counts_too(limit: int) -> None:
    sampling = SamplingParams(temperature=0.5, max_tokens=limit, stop=["x"])
    body = framed(GenerateRequest(text="x", sampling_params=sampling))
    assert generate.values(body)[MAX_OUTPUT_TOKENS] == limit


@pytest.mark.parametrize("sampling", [None, SamplingParams(), SamplingParams(max_tokens=2**31)])
def test_a_limit_that_is_not_set_does_not_count(sampling: SamplingParams | None) -> None:
    body = framed(GenerateRequest(text="x", sampling_params=sampling))
    assert MAX_OUTPUT_TOKENS not in generate.values(body)


def test_it_names_no_model_and_nothing_unwanted_is_read() -> None:
    found = generate.read(framed(request(1)), MODEL)
    assert (found.model, found.values) == (None, {})


# -- hostile bytes --------------------------------------------------------------------------------


@pytest.mark.parametrize("api", [generate, embed], ids=["generate", "embed"])
@pytest.mark.parametrize(
    "body", [b"\0\xff\xff\xff\xff\x01", b"", b"\0\0\0\0", b"\0\0\0\0\x05abc"], ids=repr
)
def test_b_15_a_frame_that_is_not_all_there_is_refused(api: Api, body: bytes) -> None:
    assert api.refusal(body).message == "the gRPC frame is cut short"


def test_a_compressed_message_is_refused() -> None:
    assert "compressed" in generate.refusal(framed(request(1), flag=1)).message


def test_what_follows_the_first_message_is_not_looked_at() -> None:
    body = framed(GenerateRequest(text="x")) + b"\x01\xff"
    assert generate.values(body)[REQUEST_PROMPT] == RequestPrompt(((b"x",),))


MALFORMED = {
    "number cut short": b"\x80",
    "number too long": b"\xff" * 11,
    "value cut short": b"\x08\x80",
    "length cut short": b"\x12\x05ab",
    "length near 2^64": b"\x12" + b"\xff" * 9 + b"\x01",
    "fixed cut short": b"\x0d\0\0\0",
    "group": b"\x0b\x0c",
    "unknown wire type": b"\x0f",
    "too many fields": b"\x28\x01" * (MOST_FIELDS + 1),
    "token cut short": length_delimited(2, length_delimited(2, b"\x80")),
    "token too long": length_delimited(2, length_delimited(2, b"\x80" * 100_000 + b"\x01")),
}


@pytest.mark.parametrize("message", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_message_is_refused(message: bytes) -> None:
    refused = generate.refusal(framed(message), ALL)
    assert refused.message.startswith("error reading the gRPC message: ")


def test_fields_of_another_kind_than_expected_are_ignored() -> None:
    numbers = b"\x20\x05\x38\x05\x21" + b"\0" * 8 + b"\x3d" + b"\0" * 4
    odd_limit = length_delimited(4, b"\x42\x01x")
    odd_place = length_delimited(7, b"\x28\x01\x30\x01" + length_delimited(5, b"\x0a\x01x"))
    values = generate.values(framed(bytes(request(1)) + numbers + odd_limit + odd_place))
    assert values == {
        REQUEST_PROMPT: RequestPrompt((), (le32(1),), "", ((Feature("image", "", 0, 0),),))
    }


def test_r_01_more_tokens_than_any_model_takes_are_forwarded_unread() -> None:
    tokens = length_delimited(2, length_delimited(2, b"\x01" * (LONGEST + 1)))
    assert generate.read(framed(tokens), ALL).values == {}


@given(st.binary())
def test_random_messages_are_read_or_refused(message: bytes) -> None:
    for api in (generate, embed):
        assert api.read_or_refused(message)
        assert api.read_or_refused(framed(message))
        assert api.read_or_refused(framed(bytes(request(1, 70000)) + message))


@given(st.data())
def test_messages_that_were_cut_and_spliced_are_read_or_refused(data: st.DataObject) -> None:
    media = MultimodalInputs(mm_placeholders=[PlaceholderRange(1, 300)], mm_hashes=["h"])
    whole = bytes(request(1, 70000, media=media))
    at = data.draw(st.integers(0, len(whole)))
    message = whole[:at] + data.draw(st.binary(max_size=4)) + whole[at + 1 :]
    assert generate.read_or_refused(framed(message))
