"""The ``sim kube`` command on a loopback socket, for clients that need one."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from pointsman.actors.sim.kube.command import add_arguments, run
from pointsman.actors.sim.kube.kubeconfig import Access

ADDRESS = "127.0.78.1"


def options(*arguments: str) -> Namespace:
    parser = ArgumentParser(prog="pointsman sim kube")
    add_arguments(parser)
    return parser.parse_args([*arguments, "--port", "0", "--address", ADDRESS])


@asynccontextmanager
async def kube(*arguments: str | Path) -> AsyncGenerator[Access]:
    """A running server, and the way to it."""
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            access: Access = await tasks.start(run, options(*map(str, arguments)))
            yield access
            tasks.cancel_scope.cancel()
