"""The exchanges of the bench: what Envoy 1.40 sends for a chat request, and what must come back.

Full duplex: headers, the body in parts of at most 32 KB, an empty message that ends it; later the
response likewise. Lean buffered: headers, an answer, the body in one message, and no response.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from attrs import evolve, frozen

from .messages import protos
from .wire import Step

KB: Final = 1024
PART: Final = 32 * KB  # bytes of body that Envoy hands over at a time in full duplex
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
CHUNK: Final = 62_000  # bytes of body in one reply at most

_WORDS: Final = (
    "compare the two offers and say which of them a small workshop with nine people should take "
    "and why then list what is still unknown about either of them in order of its cost "
)
DUPLEX: Final = {"request_body_mode": 4, "response_body_mode": 4}
LEAN_DUPLEX: Final = {"request_body_mode": 4}
BUFFERED: Final = {"request_body_mode": 2}
HEADERS_ONLY: Final[Mapping[str, int]] = {}
_USAGE: Final = {"usage": {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}}


@frozen
class Exchange:
    """One request from its first message to its last reply."""

    name: str
    body: bytes
    """The request's, as the client sent it."""
    buffered: bool
    response: tuple[bytes, ...]
    """The response body's parts; none when the response does not pass the picker."""
    steps: tuple[Step, ...]

    @property
    def messages(self) -> int:
        """How many the picker receives."""
        return sum(len(step.messages) for step in self.steps)

    @property
    def replies(self) -> int:
        return sum(step.replies for step in self.steps)


def chat_body(size: int, *, stream: bool = False) -> bytes:
    """A chat completion request of exactly *size* bytes for the model ``m``."""
    envelope = json.dumps(_chat(stream, ""), separators=(",", ":")).encode()
    length = size - len(envelope)
    if length < 0:
        raise ValueError(f"a chat request takes {len(envelope)} bytes at least")
    text = (_WORDS * (length // len(_WORDS) + 1))[:length]
    return json.dumps(_chat(stream, text), separators=(",", ":")).encode()


def _chat(stream: bool, text: str) -> dict[str, object]:
    return {
        "model": "m",
        "stream": stream,
        "max_tokens": 64,
        "temperature": 0.2,
        "messages": [
            {"role": "system", "content": "Answer briefly and to the point."},
            {"role": "user", "content": text},
        ],
    }


def duplex(name: str, body: bytes, answer: Sequence[bytes] = (), kind: str = JSON) -> Exchange:
    """Full duplex both ways; *answer* is the response's body, each part sent once the one before
    is answered. Without an answer the stream ends after the request phase."""
    parts = [body[at : at + PART] for at in range(0, len(body), PART)]
    sent = (request_headers(body, DUPLEX), *bodies("request_body", parts))
    request = Step(sent, replies=1 + -(-len(body) // CHUNK))
    steps = (request, *_response(answer, kind)) if answer else (request,)
    return Exchange(name, body, buffered=False, response=tuple(answer), steps=steps)


def buffered(name: str, body: bytes) -> Exchange:
    """Lean buffered: the headers are answered first, the decision goes with the body's reply."""
    whole = message(request_body={"body": body, "end_of_stream": True})
    steps = (
        Step((request_headers(body, BUFFERED),), replies=1),
        Step((whole,), replies=1),
    )
    return Exchange(name, body, buffered=True, response=(), steps=steps)


def lean_duplex(name: str, body: bytes) -> Exchange:
    """The request as in full duplex, and then no more than the response's headers."""
    exchange = duplex(name, body)
    sent = request_headers(body, LEAN_DUPLEX), *exchange.steps[0].messages[1:]
    request = Step(sent, exchange.steps[0].replies)
    response = Step((response_headers((), EVENTS),), replies=1)
    return evolve(exchange, steps=(request, response))


def headers_only(name: str, path: str = "/v1/models", *, end: bool = True) -> Exchange:
    """A request without a body, or (not *end*) with one that stays with the proxy."""
    sent = request_headers(b"", DUPLEX if end else HEADERS_ONLY, path=path, end=end)
    return Exchange(name, b"", buffered=False, response=(), steps=(Step((sent,), replies=1),))


def chat(size: int, name: str) -> Exchange:
    """A request of *size* bytes and a response in one piece."""
    return duplex(name, chat_body(size), [_completion()])


def sse(chunks: int, name: str) -> Exchange:
    """A 2 KB request whose response comes as *chunks* events and one with the usage."""
    events = [_event("hello"), *[_event("world")] * (chunks - 1), _usage()]
    return duplex(name, chat_body(2 * KB, stream=True), events, kind=EVENTS)


def _response(answer: Sequence[bytes], kind: str) -> Iterable[Step]:
    """Headers with the first part, then one part a step, the end with the last one."""
    first, *parts, end = bodies("response_body", answer)
    steps = [[response_headers(answer, kind), first], *([part] for part in parts)]
    steps[-1].append(end)
    return (Step(tuple(messages), replies=len(messages)) for messages in steps)


def request_headers(
    body: bytes,
    modes: Mapping[str, int],
    *,
    path: str = "/v1/chat/completions",
    end: bool = False,
) -> bytes:
    """The first message; with *end* it is the only one of the request."""
    headers = {
        ":authority": "127.0.0.1:10000",
        ":path": path,
        ":method": "POST",
        ":scheme": "http",
        "user-agent": "bench/1.0",
        "accept": "*/*",
        "accept-encoding": "gzip, deflate",
        "content-type": JSON,
        "authorization": "Bearer sk-00112233445566778899aabbccddeeff",
        "content-length": str(len(body)),
        "x-forwarded-proto": "http",
        "x-request-id": "0f9dd3a2-6a3c-4c59-8b8e-4d1f5e6c7a90",
    }
    shown = _headers(headers) | ({"end_of_stream": True} if end else {})
    return message(request_headers=shown, protocol_config=modes)


def response_headers(answer: Sequence[bytes], kind: str) -> bytes:
    headers = {":status": "200", "content-type": kind}
    if kind == JSON:
        headers["content-length"] = str(sum(map(len, answer)))
    else:
        headers["transfer-encoding"] = "chunked"
    return message(response_headers=_headers(headers))


def _headers(values: dict[str, str]) -> dict[str, object]:
    pairs = [{"key": key, "raw_value": value.encode()} for key, value in values.items()]
    return {"headers": {"headers": pairs}}


def bodies(field: str, parts: Iterable[bytes]) -> Iterable[bytes]:
    yield from (message(**{field: {"body": part}}) for part in parts)
    yield message(**{field: {"end_of_stream": True}})


def message(**fields: object) -> bytes:
    # The metadata context is in every message of Envoy's, empty or not.
    request: bytes = protos().ProcessingRequest(metadata_context={}, **fields).SerializeToString()
    return request


def _completion() -> bytes:
    message = {"role": "assistant", "content": "hello"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps(_answer("chat.completion", [choice]) | _USAGE).encode()


def _event(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return _data(_answer("chat.completion.chunk", [choice]))


def _usage() -> bytes:
    return _data(_answer("chat.completion.chunk", []) | _USAGE) + b"data: [DONE]\n\n"


def _data(event: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def _answer(kind: str, choices: list[object]) -> dict[str, object]:
    return {"id": "c-1", "object": kind, "created": 1, "model": "m", "choices": choices}
