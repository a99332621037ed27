"""Headers that are ours: what clients may say to us, and what we say to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import Headers, Request

DROPPED_REASON: Final = "x-llm-d-request-dropped-reason"
CONTROL_HEADERS: Final = frozenset(
    {
        "x-gateway-destination-endpoint-subset",
        "x-gateway-destination-endpoint-served",
        DROPPED_REASON,
        "x-llm-d-inference-fairness-id",
        "x-gateway-inference-fairness-id",
        "x-llm-d-inference-objective",
        "x-gateway-inference-objective",
        "x-llm-d-model-name-rewrite",
        "x-gateway-model-name-rewrite",
        "x-llm-d-slo-ttft-ms",
        "x-slo-ttft-ms",
        "x-llm-d-slo-tpot-ms",
        "x-slo-tpot-ms",
        "x-llm-d-video-fps",
        "x-llm-d-video-duration-seconds",
        "x-llm-d-video-resolution",
        "x-prefiller-host-port",
        "x-encoder-hosts-ports",
        "x-data-parallel-host-port",
        "x-kv-cache-source-host-port",
    }
)
"""What a client may say to the picker, or what only the picker may say to a model server's
sidecar: from a client it does not reach the server. The destination header is overwritten."""
REQUEST_ID: Final = "x-request-id"
LONGEST_ID: Final = 128  # characters


def refusal_headers(refusal: Refusal, request: Request | None) -> Mapping[str, str]:
    """What goes with an error, so that clients know why, when to come back, and what to quote."""
    headers: dict[str, str] = {}
    if refusal.reason is not None:
        headers[DROPPED_REASON] = refusal.reason
    if refusal.retry_after is not None:
        headers["retry-after"] = str(refusal.retry_after)
    if request is not None and (number := request.headers.get(REQUEST_ID)):
        headers[REQUEST_ID] = number[:LONGEST_ID]
    return headers


def with_length(added: Mapping[str, str], client: Headers, size: int) -> Mapping[str, str]:
    """Headers for the model server, with the length of a body that is not the client's any more."""
    return {**added, "content-length": str(size)} if "content-length" in client else added
