"""The ``pointsman sim kube`` command: an API server that holds what some YAML files say."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import SocketAttribute, TaskStatus

from pointsman.actors.http import serve

from .certificates import Authority
from .failures import ApiError, NoSuchKind
from .identity import ADMIN, Authenticator, User, read_user
from .kubeconfig import Access, write_kubeconfig
from .manifests import BadManifest, load_manifests
from .server import ApiServer
from .tls import serve_tls

_DESCRIPTION: Final = """\
An in-memory Kubernetes API server, good enough for kubectl, clients and pickers; no cluster.

  pointsman sim kube deploy/kubernetes/crds/*.yaml pods.yaml --kubeconfig kube.yaml
  kubectl --kubeconfig kube.yaml get pods --watch
"""
_EPILOG: Final = """\
It can be made to fail while it runs; what it was asked is on /sim/requests:
  curl http://127.0.0.1:8001/sim/faults -d '{"action": "silence", "resource": "pods"}'
  curl http://127.0.0.1:8001/sim/faults -d '{"action": "status", "status": 503, "count": 3}'
  curl http://127.0.0.1:8001/sim/faults -d '{"action": "compact"}'
Actions: delay, status, drop, hang; on watches truncate, end, break, silence, expire, garbage;
at once compact, disconnect. DELETE /sim/faults ends them all.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options that `run` takes."""
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="YAML with objects")
    parser.add_argument(
        "--address", type=_address, default="127.0.0.1", metavar="IP", help="(default %(default)s)"
    )
    parser.add_argument(
        "--port", type=_port, default=8001, metavar="N", help="(default %(default)s; 0: any)"
    )
    text = "write a file there with which clients find the server"
    parser.add_argument("--kubeconfig", type=Path, metavar="PATH", help=text)
    access = parser.add_argument_group("access")
    access.add_argument(
        "--token",
        action="append",
        default=[],
        metavar="TOKEN[=USER[,GROUP...]]",
        help="let in who shows it (as an administrator, unless a user is named), and nobody else;"
        " may be given several times, the kubeconfig has the first",
    )
    text = "serve HTTPS; clients may show a certificate, as the one in the kubeconfig"
    access.add_argument("--tls", action="store_true", help=text)
    access.add_argument(
        "--authorization-mode",
        choices=("AlwaysAllow", "RBAC"),
        default="AlwaysAllow",
        help="who may do what (default %(default)s)",
    )


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no IP address") from None


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise ArgumentTypeError(f"{text!r} is no port number")
    return int(text)


def read_tokens(texts: Sequence[str]) -> dict[str, User]:
    """The users behind the tokens of the command line."""
    tokens: dict[str, User] = {}
    for text in texts:
        token, _, user = text.partition("=")
        tokens[token] = read_user(user) if user else ADMIN
    return tokens


def build(options: Namespace) -> ApiServer:
    """The server that *options* describe, with the objects of the files.

    Raises:
        BadManifest: a file cannot be loaded.
    """
    tokens = read_tokens(options.token)
    authenticator = Authenticator(tokens, anonymous=not tokens)
    server = ApiServer(options.authorization_mode, authenticator, Random())
    load(server, options.files)
    return server


def load(server: ApiServer, paths: Sequence[Path]) -> None:
    """Put the objects of the files into *server*, definitions first.

    Raises:
        BadManifest: a file cannot be loaded, or an object not be created.
    """
    for manifest in load_manifests(paths):
        try:
            server.create(manifest.object)
        except (ApiError, NoSuchKind) as error:
            raise BadManifest(manifest.path, str(error)) from None


async def run(options: Namespace, *, task_status: TaskStatus[Access] = TASK_STATUS_IGNORED) -> int:
    """Serve what *options* describe until cancelled; 2 when that is not possible.

    Its start, for those who wait for it, is when it listens; they come with the way to it.
    """
    try:
        server = build(options)
        await _serve(server, options, task_status)
    except BadManifest as error:
        return _complain(str(error))
    except OSError as error:
        return _complain(f"{options.address}:{options.port}: {error.strerror or error}")
    return 0


def _complain(message: str) -> int:
    print(f"pointsman sim kube: {message}", file=sys.stderr)
    return 2


async def _serve(server: ApiServer, options: Namespace, task_status: TaskStatus[Access]) -> None:
    listener = await anyio.create_tcp_listener(local_host=options.address, local_port=options.port)
    async with listener, anyio.create_task_group() as tasks:
        port: int = listener.extra(SocketAttribute.local_port)
        authority = Authority.new() if options.tls else None
        access = _access(options, port, authority)
        if options.kubeconfig is not None:
            write_kubeconfig(options.kubeconfig, access)
        if authority is None:
            tasks.start_soon(serve, listener, server.handle)
        else:
            context = authority.server_context(options.address, "localhost", "kubernetes")
            tasks.start_soon(serve_tls, listener, context, server.handle)
        tasks.start_soon(server.run)
        print(f"ready: Kubernetes API on {access.url}", flush=True)
        task_status.started(access)


def _access(options: Namespace, port: int, authority: Authority | None) -> Access:
    host = f"[{options.address}]" if ":" in options.address else options.address
    token = options.token[0].partition("=")[0] if options.token else ""
    if authority is None:
        return Access(url=f"http://{host}:{port}", token=token)
    client = None if token else authority.client(ADMIN)
    return Access(url=f"https://{host}:{port}", authority=authority.pem, token=token, client=client)
