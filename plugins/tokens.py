"""Prompts as tokens: counted by the bytes, or by the engine that will compute them.

The estimate packs four bytes of text into a token. It never equals the engine's tokens, but the
same prompt gives the same ones, which is all that matching prefixes needs. Where a `vllm` URL or
a model name is configured, the engine's own render endpoint is asked instead; when it fails or
is late the estimate serves, so that no outage of it takes prefixes or load away.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator
from typing import Final, final

from attrs import field, frozen
from xxhash import xxh64_intdigest

from pointsman.kernel.model import Headers
from pointsman.kernel.structure import Duration, above, at_least, one_of

from .keys import TOKEN_BYTES, Feature, Media, Part, RequestPrompt, TokenizedPrompt, Tokens

DATA_URL: Final = b"data:"
PIXELS_A_TOKEN: Final = 1024  # of a film's frame
VIDEO_FPS: Final = "x-llm-d-video-fps"
VIDEO_DURATION: Final = "x-llm-d-video-duration-seconds"
VIDEO_RESOLUTION: Final = "x-llm-d-video-resolution"


@final
@frozen(kw_only=True)
class Resolution:
    width: int = field(default=640, validator=at_least(1))
    height: int = field(default=360, validator=at_least(1))


@final
@frozen(kw_only=True)
class DynamicImage:
    factor: int = field(default=1024, validator=at_least(1))
    """Pixels a token."""


@final
@frozen(kw_only=True)
class StaticImage:
    static_token: int = 1


@final
@frozen(kw_only=True)
class ImageEstimate:
    mode: str = field(default="dynamic", validator=one_of("dynamic", "static"))
    dynamic: DynamicImage = DynamicImage()
    static: StaticImage = StaticImage()
    default_resolution: Resolution = Resolution()
    """Of images whose header cannot be read, such as those behind a URL."""


@final
@frozen(kw_only=True)
class Frames:
    mode: str = field(default="sampled", validator=one_of("sampled", "strided"))
    sample_fps: float = field(default=2.0, validator=above(0), metadata={"key": "sampleFPS"})
    source_fps: float = field(default=24.0, validator=above(0), metadata={"key": "sourceFPS"})
    frame_stride: int = field(default=1, validator=at_least(1))
    min_frames: int = field(default=0, validator=at_least(0))
    max_frames: int = field(default=0, validator=at_least(0))
    """0: no limit."""
    temporal_patch_size: int = field(default=1, validator=at_least(1))


@final
@frozen(kw_only=True)
class TokensPerFrame:
    mode: str = field(default="dynamic", validator=one_of("dynamic", "static"))
    static_token: int = field(default=1, validator=at_least(1))


@final
@frozen(kw_only=True)
class VideoEstimate:
    frames: Frames = Frames()
    tokens_per_frame: TokensPerFrame = TokensPerFrame()
    default_duration: float = field(default=10.0, validator=above(0))
    """Seconds."""
    max_video_tokens: int = field(default=0, validator=at_least(0))
    default_resolution: Resolution = Resolution()


@final
@frozen(kw_only=True)
class EstimateParameters:
    image: ImageEstimate = ImageEstimate()
    video: VideoEstimate = VideoEstimate()


@final
@frozen(kw_only=True)
class VllmParameters:
    url: str = "http://localhost:8000"
    timeout: Duration = field(default=Duration(5.0), validator=above(0))
    mm_timeout: Duration = field(default=Duration(30.0), validator=above(0))
    """For requests with images, sounds or films."""
    endpoint: str = field(default="render", validator=one_of("render", "tokenize"))
    """Not in the reference: which of the engine's two ways to tokens is asked."""


@final
@frozen(kw_only=True)
class VideoHints:
    """What a client says of its films; it knows them and we do not."""

    fps: float | None = None
    duration: float | None = None
    """Seconds."""
    resolution: Resolution | None = None

    @classmethod
    def of(cls, headers: Headers) -> VideoHints:
        """Malformed values are left out one by one."""
        width, _, height = (headers.get(VIDEO_RESOLUTION) or "").lower().partition("x")
        sides = [int(one) for one in (width, height) if one.isascii() and one.isdecimal()]
        known = len(sides) == 2 and all(0 < side < 1 << 16 for side in sides)
        return cls(
            fps=_positive(headers.get(VIDEO_FPS)),
            duration=_positive(headers.get(VIDEO_DURATION)),
            resolution=Resolution(width=sides[0], height=sides[1]) if known else None,
        )


NO_HINTS: Final = VideoHints()


def _positive(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < 1e6 else None


def estimate(
    prompt: RequestPrompt, settings: EstimateParameters, hints: VideoHints = NO_HINTS
) -> TokenizedPrompt:
    """The pseudo-tokens of a request; real ids pass through."""
    if prompt.token_ids:
        return TokenizedPrompt(tuple(map(Tokens, prompt.token_ids)), prompt.salt)
    packed = tuple(_pack(parts, settings, hints) for parts in prompt.prompts)
    return TokenizedPrompt(packed, prompt.salt, estimated=True)


def _pack(parts: tuple[Part, ...], settings: EstimateParameters, hints: VideoHints) -> Tokens:
    """Text runs together; a medium begins at a token and fills whole ones with its hash."""
    pieces: list[bytes] = []
    features: list[Feature] = []
    size = 0
    for part in parts:
        if isinstance(part, bytes):
            pieces.append(part)
            size += len(part)
            continue
        padding = -size % TOKEN_BYTES
        count = _media_tokens(part, settings, hints)
        digest = xxh64_intdigest(part.content)
        offset = (size + padding) // TOKEN_BYTES
        features.append(Feature(part.modality, f"{digest:016x}", offset, count))
        pieces += (bytes(padding), struct.pack("<I", digest & 0xFFFFFFFF) * count)
        size += padding + count * TOKEN_BYTES
    return Tokens(pieces[0] if len(pieces) == 1 else b"".join(pieces), tuple(features))


def _media_tokens(media: Media, settings: EstimateParameters, hints: VideoHints) -> int:
    if media.modality == "image":
        return _image_tokens(media, settings.image)
    if media.modality == "video":
        return _video_tokens(settings.video, hints)
    return max(1, -(-len(media.content) // TOKEN_BYTES))


def _image_tokens(media: Media, settings: ImageEstimate) -> int:
    if settings.mode == "static":
        return max(1, settings.static.static_token)
    size = image_size(media.content)
    width, height = size or (settings.default_resolution.width, settings.default_resolution.height)
    return max(1, width * height // settings.dynamic.factor)


def _video_tokens(settings: VideoEstimate, hints: VideoHints) -> int:
    per_frame = settings.tokens_per_frame.static_token
    if settings.tokens_per_frame.mode == "dynamic":
        resolution = hints.resolution or settings.default_resolution
        per_frame = max(1, resolution.width * resolution.height // PIXELS_A_TOKEN)
    duration = hints.duration or settings.default_duration
    tokens = _frames(settings.frames, duration, hints.fps) * per_frame
    limit = settings.max_video_tokens
    return max(1, min(tokens, limit) if limit else tokens)


def _frames(frames: Frames, duration: float, fps: float | None) -> int:
    if frames.mode == "strided":
        source = int(duration * (fps or frames.source_fps))
        return _clamped(source // frames.frame_stride, frames)
    sampled = _clamped(int(duration * frames.sample_fps), frames)
    return max(1, sampled // frames.temporal_patch_size)


def _clamped(count: int, frames: Frames) -> int:
    if frames.max_frames:
        count = min(count, frames.max_frames)
    return max(count, frames.min_frames)


def image_size(content: bytes) -> tuple[int, int] | None:
    """Width and height of a PNG, JPEG or GIF in a data URL; None for everything else."""
    if not content.startswith(DATA_URL) or b";base64," not in content[:100]:
        return None
    encoded = content.partition(b";base64,")[2][:65536]
    try:
        data = base64.b64decode(encoded[: len(encoded) // 4 * 4], validate=False)
    except binascii.Error:
        return None
    for size in _sizes(data):
        if 0 < size[0] < 1 << 20 and 0 < size[1] < 1 << 20:
            return size
    return None


def _sizes(data: bytes) -> Iterator[tuple[int, int]]:
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            yield struct.unpack_from(">II", data, 16)
        elif data[:6] in (b"GIF87a", b"GIF89a"):
            yield struct.unpack_from("<HH", data, 6)
        elif data.startswith(b"\xff\xd8"):
            yield from _jpeg_sizes(data)
    except struct.error:
        return


def _jpeg_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """The frame header's; segments before it are stepped over."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            yield width, height
            return
        (length,) = struct.unpack_from(">H", data, at + 2)
        at += 2 + length
