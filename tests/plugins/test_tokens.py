"""The estimate: the same prompt gives the same tokens, and media their share."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kernel.model import Headers
from pointsman.plugins.keys import Media, RequestPrompt
from pointsman.plugins.tokens import (
    DynamicImage,
    EstimateParameters,
    Frames,
    ImageEstimate,
    Resolution,
    StaticImage,
    TokensPerFrame,
    VideoEstimate,
    VideoHints,
    estimate,
    image_size,
)

DEFAULT = EstimateParameters()


def data_url(data: bytes, kind: str = "png") -> bytes:
    return b"data:image/" + kind.encode() + b";base64," + base64.b64encode(data)


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + bytes(20)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(20)


def jpeg(width: int, height: int) -> bytes:
    segment = b"\xff\xe0" + struct.pack(">H", 10) + bytes(8)
    frame = b"\xff\xc2" + struct.pack(">HBHH", 11, 8, height, width) + bytes(20)
    return b"\xff\xd8" + segment + frame


def count(*parts: bytes | Media, settings: EstimateParameters = DEFAULT, **hints: Any) -> int:
    return estimate(RequestPrompt((parts,)), settings, VideoHints(**hints)).count


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_four_bytes_are_a_token_wherever_the_pieces_are_cut(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    found = estimate(RequestPrompt((tuple(parts),)), DEFAULT)
    assert found.estimated
    assert found == estimate(RequestPrompt(((whole,),)), DEFAULT)
    assert found.count == -(-len(whole) // 4)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_what_begins_alike_has_the_same_first_tokens(one: bytes, other: bytes) -> None:
    first, second = (
        estimate(RequestPrompt(((text,),)), DEFAULT).prompts[0].data for text in (one, other)
    )
    common = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    whole = (min(len(one), len(other)) if common is None else common) // 4 * 4
    assert first[:whole] == second[:whole]


def test_token_ids_pass_through() -> None:
    ids = (b"\1\0\0\0", b"\2\0\0\0\3\0\0\0")
    found = estimate(RequestPrompt(token_ids=ids, salt="s"), DEFAULT)
    assert [one.data for one in found.prompts] == list(ids)
    assert (found.count, found.salt, found.estimated) == (3, "s", False)


def test_a_medium_begins_at_a_token_and_fills_whole_ones() -> None:
    image = Media("image", b"http://x/1.png")
    (tokens,) = estimate(RequestPrompt(((b"hello", image, b"!"),)), DEFAULT).prompts
    (feature,) = tokens.features
    assert (feature.modality, feature.offset, feature.length) == ("image", 2, 225)
    assert len(feature.hash) == 16
    assert len(tokens) == 2 + 225 + 1
    inside = tokens.data[feature.offset * 4 : (feature.offset + feature.length) * 4]
    assert set(struct.unpack("<225I", inside)) == {int(feature.hash, 16) & 0xFFFFFFFF}


# -- images ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "size"),
    [
        (data_url(png(800, 600)), (800, 600)),
        (data_url(gif(16, 9), "gif"), (16, 9)),
        (data_url(jpeg(1024, 512), "jpeg"), (1024, 512)),
        (data_url(png(0, 600)), None),
        (data_url(png(1 << 30, 600)), None),
        (data_url(b"\x89PNG\r\n\x1a\n"), None),
        (data_url(b"\xff\xd8\xff\xe0\x00"), None),
        (data_url(b"\xff\xd8\xff\xe0\x00\x00" * 9), None),
        (data_url(b"RIFF0000WEBP", "webp"), None),
        (b"data:image/png;base64,?", None),
        (b"http://x/1.png", None),
        (b"", None),
    ],
)
def test_dimensions_are_read_from_the_header(content: bytes, size: tuple[int, int] | None) -> None:
    assert image_size(content) == size


@given(
    st.binary(max_size=200), st.sampled_from([b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"GIF87a", b""])
)
def test_no_image_is_beyond_it(rest: bytes, start: bytes) -> None:
    size = image_size(data_url(start + rest))
    assert size is None or min(size) > 0


def images(**settings: Any) -> EstimateParameters:
    return EstimateParameters(image=ImageEstimate(**settings))


@pytest.mark.parametrize(
    ("content", "settings", "tokens"),
    [
        (data_url(png(1024, 1024)), DEFAULT, 1024),
        (data_url(png(1, 1)), DEFAULT, 1),
        (b"http://x", DEFAULT, 225),
        (b"http://x", images(default_resolution=Resolution(width=32, height=32)), 1),
        (data_url(png(1024, 1024)), images(dynamic=DynamicImage(factor=512)), 2048),
        (data_url(png(1024, 1024)), images(mode="static"), 1),
        (b"http://x", images(mode="static", static=StaticImage(static_token=576)), 576),
        (b"http://x", images(mode="static", static=StaticImage(static_token=-3)), 1),
    ],
)
def test_an_image_has_tokens_by_its_size(
    content: bytes, settings: EstimateParameters, tokens: int
) -> None:
    assert count(Media("image", content), settings=settings) == tokens


def test_sound_has_tokens_by_its_bytes() -> None:
    assert count(Media("audio", b"x" * 41)) == 11
    assert count(Media("audio", b"")) == 1


# -- films ----------------------------------------------------------------------------------------


def films(**settings: Any) -> EstimateParameters:
    return EstimateParameters(video=VideoEstimate(**settings))


STRIDED = Frames(mode="strided")
ONE_EACH = TokensPerFrame(mode="static")


@pytest.mark.parametrize(
    ("settings", "hints", "tokens"),
    [
        (DEFAULT, {}, 20 * 225),
        (DEFAULT, {"duration": 1.0}, 2 * 225),
        (DEFAULT, {"resolution": Resolution(width=64, height=64)}, 20 * 4),
        (DEFAULT, {"fps": 1.0}, 20 * 225),
        (films(tokens_per_frame=ONE_EACH), {}, 20),
        (films(tokens_per_frame=ONE_EACH, default_duration=3.0), {}, 6),
        (films(tokens_per_frame=ONE_EACH, frames=STRIDED), {}, 240),
        (films(tokens_per_frame=ONE_EACH, frames=STRIDED), {"fps": 30.0}, 300),
        (films(tokens_per_frame=ONE_EACH, frames=Frames(mode="strided", frame_stride=10)), {}, 24),
        (films(tokens_per_frame=ONE_EACH, frames=Frames(max_frames=8)), {}, 8),
        (films(tokens_per_frame=ONE_EACH, frames=Frames(min_frames=50)), {}, 50),
        (films(tokens_per_frame=ONE_EACH, frames=Frames(temporal_patch_size=2)), {}, 10),
        (films(max_video_tokens=100), {}, 100),
        (films(tokens_per_frame=ONE_EACH), {"duration": 0.01}, 1),
    ],
)
def test_a_film_has_tokens_by_its_frames(
    settings: EstimateParameters, hints: dict[str, Any], tokens: int
) -> None:
    assert count(Media("video", b"http://x/1.mp4"), settings=settings, **hints) == tokens


def hints_of(**fields: str) -> VideoHints:
    named = {f"x-llm-d-video-{name.replace('_', '-')}": value for name, value in fields.items()}
    return VideoHints.of(Headers({name: value.encode() for name, value in named.items()}))


def test_a_client_may_say_what_its_film_is() -> None:
    assert hints_of(fps="24", duration_seconds="1.5", resolution="64X32") == VideoHints(
        fps=24.0, duration=1.5, resolution=Resolution(width=64, height=32)
    )


@pytest.mark.parametrize("value", ["", "x", "-1", "0", "nan", "inf", "1e99", "64x", "x64", "0x64"])
def test_what_a_client_says_wrongly_is_left_out(value: str) -> None:
    assert hints_of(fps=value, duration_seconds=value, resolution=value) == VideoHints()
