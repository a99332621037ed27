"""The API server of `tests.bench.kube`: prepared bytes over one socket, in a process of its own.

Its port is printed; each line on its input names a series of events for the watch that is open.
"""

from __future__ import annotations

import json
import socket
import sys
from time import sleep
from typing import Any, Final

PODS: Final = 1000
PAGE: Final = 500
VERSION: Final = 1000  # of the list; events have the following ones
HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
)


def pod(number: int, version: int, address: str) -> dict[str, Any]:
    """A pod as a ReplicaSet and a kubelet make it: 9.4 KB, nearly half of them managedFields."""
    times = "2026-11-29T12:00:00Z"
    nothing: dict[str, object] = {}
    owned = {f"f:field-{n}": {".": nothing, "f:value": nothing} for n in range(120)}
    return {
        "metadata": {
            "name": f"vllm-7d9f8c5b4-{number:05}",
            "namespace": "default",
            "uid": f"0b9c1de2-4f60-4a8e-9d6f-{number:012}",
            "resourceVersion": str(version),
            "creationTimestamp": times,
            "labels": {"app": "vllm", "pod-template-hash": "7d9f8c5b4", "role": "both"},
            "annotations": {"example.test/checksum": "5" * 64},
            "managedFields": [{"manager": "kubelet", "time": times, "fieldsV1": owned}],
        },
        "spec": {
            "nodeName": f"node-{number // 8}",
            "containers": [
                {
                    "name": "vllm",
                    "args": ["--model", "llama", "--max-num-seqs", "256"],
                    "env": [{"name": f"VARIABLE_{n}", "value": "v" * 24} for n in range(45)],
                    "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
                    "volumeMounts": [{"name": f"v-{n}", "mountPath": "/m"} for n in range(8)],
                }
            ],
            "volumes": [{"name": f"v-{n}", "emptyDir": nothing} for n in range(8)],
        },
        "status": {
            "phase": "Running",
            "podIP": address,
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": times}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [{"name": "vllm", "imageID": "i" * 90, "restartCount": 0}],
        },
    }


def address(number: int, network: int = 0) -> str:
    return f"10.{network}.{number // 250}.{number % 250 + 1}"


def encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def page(first: int, token: str) -> bytes:
    items = [pod(number, number, address(number)) for number in range(first, first + PAGE)]
    body = encoded(
        {"metadata": {"resourceVersion": str(VERSION), "continue": token}, "items": items}
    )
    pieces = [chunk(body[at : at + 32768]) for at in range(0, len(body), 32768)]
    return b"".join((HEAD, *pieces, b"0\r\n\r\n"))


def event(number: int, version: int, network: int) -> bytes:
    obj = {"kind": "Pod", "apiVersion": "v1", **pod(number, version, address(number, network))}
    return chunk(encoded({"type": "MODIFIED", "object": obj}) + b"\n")


def serve(connection: socket.socket) -> None:
    """Answer one connection until it is closed."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    pages = [page(0, "more"), page(PAGE, "")]
    while request := connection.recv(65536):
        if b"watch=1" in request:
            connection.sendall(HEAD)
            tell(connection)
        else:
            connection.sendall(pages[b"continue=more" in request])


def tell(connection: socket.socket) -> None:
    """Send the series that are asked for: how many, seconds apart, in which network."""
    version = VERSION
    for line in sys.stdin:
        count, apart, network = line.split()
        events = [
            event(number % PODS, version + number + 1, int(network)) for number in range(int(count))
        ]
        version += len(events)
        for one in events:
            connection.sendall(one)
            if float(apart):
                sleep(float(apart))


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
        with connection:
            serve(connection)


if __name__ == "__main__":
    main()
