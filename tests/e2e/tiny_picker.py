"""The smallest picker that Envoy is content with: what the harness itself is tested against.

It shares nothing with Pointsman but the command line: grpc.aio, protobuf, and a pick that reads
the label ``waiting`` from the endpoints file.
"""

# grpcio and the messages that it makes from a .proto file at run time come without types.
# pyright: basic

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import yaml
from attrs import define, field
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DESTINATION = "x-gateway-destination-endpoint"
BUFFERED, DUPLEX = 2, 4  # of the body modes
OVERWRITE = 2  # of the append actions
CHUNK = 62_000  # bytes
RECEIVE_LIMIT = 64 << 20  # bytes

messages: Any = grpc.protos("ext_proc.proto")


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message


@define(eq=False)
class Pool:
    """The endpoints of a file that is read anew for each pick."""

    path: Path
    running: int = 0

    def pick(self, subset: list[str] | None) -> str:
        endpoints = json.loads(self.path.read_text())["endpoints"]
        waiting = {f"{e['address']}:{e['port']}": int(e["labels"]["waiting"]) for e in endpoints}
        eligible = [e for e in waiting if subset is None or e in subset]
        if not eligible:
            raise Refused(503, "no endpoint can serve this request")
        return min(eligible, key=waiting.__getitem__)


@define(eq=False)
class Conversation:
    """One request and its response: what to answer to each message."""

    pool: Pool
    body: bytearray = field(factory=bytearray)
    request_mode: int = 0
    response_mode: int = 0
    subset: list[str] | None = None
    picked: bool = False

    def answer(self, request: Any) -> Iterator[Any]:
        try:
            yield from getattr(self, request.WhichOneof("request"))(request)
        except Refused as refusal:
            yield immediate(refusal)

    def request_headers(self, request: Any) -> Iterator[Any]:
        self.request_mode = request.protocol_config.request_body_mode
        self.response_mode = request.protocol_config.response_body_mode
        hint = dict(request.metadata_context.filter_metadata).get("envoy.lb.subset_hint")
        if hint is not None:
            self.subset = list(hint[f"{DESTINATION}-subset"])
        if request.request_headers.end_of_stream or self.request_mode not in (BUFFERED, DUPLEX):
            yield self.decision("request_headers", messages.HeadersResponse)
        elif self.request_mode == BUFFERED:
            yield messages.ProcessingResponse(request_headers=messages.HeadersResponse())

    def request_body(self, request: Any) -> Iterator[Any]:
        self.body += request.request_body.body
        if self.request_mode == DUPLEX:
            if request.request_body.end_of_stream:
                yield from self.whole_body(end_of_stream=True)
        elif self.request_mode == BUFFERED:
            self.check_body()
            yield self.decision("request_body", messages.BodyResponse)
        else:
            yield messages.ProcessingResponse(request_body=messages.BodyResponse())

    def request_trailers(self, _: Any) -> Iterator[Any]:
        if self.request_mode == DUPLEX:
            yield from self.whole_body(end_of_stream=False)
        yield messages.ProcessingResponse(request_trailers=messages.TrailersResponse())

    def response_headers(self, _: Any) -> Iterator[Any]:
        yield messages.ProcessingResponse(response_headers=messages.HeadersResponse())

    def response_body(self, request: Any) -> Iterator[Any]:
        if self.response_mode == DUPLEX:
            seen = request.response_body
            yield messages.ProcessingResponse(
                response_body=streamed(bytes(seen.body), seen.end_of_stream)
            )
        else:
            yield messages.ProcessingResponse(response_body=messages.BodyResponse())

    def response_trailers(self, _: Any) -> Iterator[Any]:
        yield messages.ProcessingResponse(response_trailers=messages.TrailersResponse())

    def whole_body(self, *, end_of_stream: bool) -> Iterator[Any]:
        self.check_body()
        yield self.decision("request_headers", messages.HeadersResponse)
        for start in range(0, len(self.body) or 1, CHUNK):
            last = start + CHUNK >= len(self.body)
            chunk = bytes(self.body[start : start + CHUNK])
            yield messages.ProcessingResponse(request_body=streamed(chunk, last and end_of_stream))

    def check_body(self) -> None:
        try:
            json.loads(self.body)
        except ValueError as exc:
            raise Refused(400, f"the body is not JSON: {exc}") from exc

    def decision(self, phase: str, response: Any) -> Any:
        endpoint = self.pool.pick(self.subset)
        if not self.picked:
            self.picked = True
            self.pool.running += 1
        common = messages.CommonResponse(
            header_mutation=mutation({DESTINATION: endpoint}), clear_route_cache=True
        )
        reply = messages.ProcessingResponse(**{phase: response(response=common)})
        reply.dynamic_metadata.update({"envoy.lb": {DESTINATION: endpoint}})
        return reply

    def close(self) -> None:
        self.pool.running -= self.picked


def streamed(body: bytes, end_of_stream: bool) -> Any:
    chunk = messages.StreamedBodyResponse(body=body, end_of_stream=end_of_stream)
    changed = messages.BodyMutation(streamed_response=chunk)
    return messages.BodyResponse(response=messages.CommonResponse(body_mutation=changed))


def mutation(headers: dict[str, str]) -> Any:
    values = [messages.HeaderValue(key=k, raw_value=v.encode()) for k, v in headers.items()]
    options = [messages.HeaderValueOption(header=v, append_action=OVERWRITE) for v in values]
    return messages.HeaderMutation(set_headers=options)


def immediate(refusal: Refused) -> Any:
    error = {"message": refusal.message, "type": "refused", "code": refusal.status}
    response = messages.ImmediateResponse(
        status=messages.HttpStatus(code=refusal.status),
        headers=mutation({"content-type": "application/json"}),
        body=json.dumps({"error": error}).encode(),
    )
    return messages.ProcessingResponse(immediate_response=response)


def ext_proc(pool: Pool) -> Any:
    async def process(requests: AsyncIterator[Any], _: Any) -> AsyncIterator[Any]:
        conversation = Conversation(pool)
        try:
            async for request in requests:
                for reply in conversation.answer(request):
                    yield reply
                    if reply.HasField("immediate_response"):
                        return
        finally:
            conversation.close()

    handler = grpc.stream_stream_rpc_method_handler(
        process,
        request_deserializer=messages.ProcessingRequest.FromString,
        response_serializer=messages.ProcessingResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(
        "envoy.service.ext_proc.v3.ExternalProcessor", {"Process": handler}
    )


def self_signed() -> Any:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tiny picker")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = certificate.public_bytes(serialization.Encoding.PEM)
    return grpc.ssl_server_credentials([(pem, chain)])


async def serve_admin(pool: Pool, port: int, stopping: asyncio.Event) -> asyncio.Server:
    """Answer /readyz and /metrics, one request a connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        status = "503 Draining" if path == b"/readyz" and stopping.is_set() else "200 OK"
        text = f"pointsman_open_streams {pool.running}\n"
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n"
        writer.write((head + text).encode())
        await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", port)


async def main() -> None:
    arguments = parse_arguments()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    plugins = yaml.safe_load(arguments.config_file.read_text())["plugins"]
    path = next(p["parameters"]["path"] for p in plugins if p["type"] == "file-discovery")
    pool = Pool(Path(path))
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", RECEIVE_LIMIT)])
    server.add_generic_rpc_handlers((ext_proc(pool),))
    address = f"127.0.0.1:{arguments.grpc_port}"
    if arguments.secure_serving == "true":
        server.add_secure_port(address, self_signed())
    else:
        server.add_insecure_port(address)
    await server.start()
    async with await serve_admin(pool, arguments.metrics_port, stopping):
        await stopping.wait()
        await server.stop(float(arguments.drain_timeout.removesuffix("s")))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bind-address", help="ignored: it is loopback")
    parser.add_argument("--grpc-port", type=int, required=True)
    parser.add_argument("--grpc-health-port", type=int, required=True)
    parser.add_argument("--metrics-port", type=int, required=True)
    parser.add_argument("--secure-serving", default="true")
    parser.add_argument("--drain-timeout", default="30s")
    parser.add_argument("--refresh-metrics-interval", help="ignored: nothing is scraped")
    parser.add_argument("--config-file", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main())
