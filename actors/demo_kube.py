"""``pointsman demo kube``: pods come and go under traffic, and no request is to be lost."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from .arguments import Parser, port
from .demo import say
from .demo_kube_account import account, failures, served_by
from .demo_kube_cluster import Cluster, Settings, cluster, pod
from .demo_kube_steps import FIRST, Story
from .demo_kube_traffic import Traffic
from .sim.envoy import envoy_path
from .sim.envoy_bootstrap import Mode
from .sim.pods import PodSettings
from .sim.processes import ProcessError

EVERY: Final = 10.0  # seconds between two lines about the traffic that goes on
LAST_LINES: Final = 10  # of the daemon's log
DESCRIPTION: Final = """\
Starts a simulated Kubernetes API server, a node that runs model servers as pods, the daemon with
the rights of deploy/kubernetes/rbac.yaml, and a real Envoy, all on loopback. Then, while chat
requests come in all the time, it

  scales up            new pods serve as soon as they are ready
  deletes a pod        it leaves the pool at once and finishes what it has begun
  rolls a pod          the same name comes back with another address
  lets a server fail   it refuses connections before anybody was told: Envoy tries the next one
  changes the pool     only the pods that the new selector names go on serving

and prints what became of every request. Exit status 0: all were served, each where it should be.
"""
EPILOG: Final = """\
Examples:
  pointsman demo kube --once              about 20 seconds, then it ends by itself
  pointsman demo kube                     goes on, to be played with by kubectl, until Ctrl-C
  pointsman demo kube --once --rate 40    more traffic
"""


def add_arguments(parser: Parser) -> None:
    """Declare the options that `demo kube` takes."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("--once", action="store_true", help="end after the last step")
    text = "requests in a second, on average (%(default)g)"
    parser.add_argument("--rate", type=_rate, default=20.0, metavar="N", help=text)
    text = "of the requests: what they ask and when (%(default)s)"
    parser.add_argument("--seed", type=int, default=0, metavar="N", help=text)
    text = "of Envoy; any free one when left out"
    parser.add_argument("--port", type=port, default=0, help=text)
    modes = [mode.value for mode in (Mode.LEAN_BUFFERED, Mode.LEAN_DUPLEX, Mode.FULL_DUPLEX)]
    text = f"how much Envoy shows the daemon ({modes[0]})"
    parser.add_argument("--mode", choices=modes, default=modes[0], help=text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 200:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of requests from 1 to 200")
    return rate


async def run(options: argparse.Namespace) -> int:
    """Run the demonstration; 0 when everything went as it has to."""
    try:
        envoy_path()
        return await _demo(options)
    except ProcessError as exc:
        print(f"pointsman demo kube: {exc}", file=sys.stderr)
        return 2


async def _demo(options: argparse.Namespace) -> int:
    settings = Settings(
        port=options.port, mode=Mode(options.mode), first=[pod(name) for name in FIRST]
    )
    with TemporaryDirectory(prefix="pointsman-demo-") as folder:
        async with cluster(settings, Path(folder)) as running:
            return await _show(running, options)


async def _show(running: Cluster, options: argparse.Namespace) -> int:
    traffic = Traffic(running.gateway, Random(options.seed), options.rate)
    story = Story(running, traffic)
    say(f"sending {options.rate:g} chat requests a second through {running.gateway.base_url}")
    async with _sending(traffic):
        await story.run()
    print(account(traffic), flush=True)
    status = _judge(story, traffic)
    if status:
        _show_log(running)
    if not options.once:
        await _go_on(running, options)
    return status


@asynccontextmanager
async def _sending(traffic: Traffic) -> AsyncGenerator[None]:
    """Send during the block, and wait for the last answers after it."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(traffic.run)
        yield
        traffic.stop()


def _judge(story: Story, traffic: Traffic) -> int:
    wrong = [*failures(traffic), *story.wrong]
    for text in wrong:
        print(f"WRONG: {text}", flush=True)
    served = sum(one.ok for one in traffic.sent)
    print(f"{served} of {len(traffic.sent)} requests served", flush=True)
    return 1 if wrong else 0


def _show_log(running: Cluster) -> None:
    lines = running.daemon.output.splitlines()[-LAST_LINES:]
    print("the daemon's last words:", *lines, sep="\n    ", flush=True)


async def _go_on(running: Cluster, options: argparse.Namespace) -> None:
    """Keep sending, and say from time to time who serves."""
    kubectl = f"kubectl --kubeconfig {running.kubeconfig}"
    say("the requests go on; change something:")
    print(f"    {kubectl} get pods --show-labels")
    print(f"    {kubectl} delete pod llama-4 --wait=false")
    print(f"    {kubectl} run llama-7 --image=model-server --labels=app=llama,track=new")
    print(f"    {kubectl} patch infpool llama --type=merge \\")
    everybody = '{"spec": {"selector": {"matchLabels": {"app": "llama", "track": null}}}}'
    print(f"        -p '{everybody}'")
    say(f"what the daemon knows: curl -s {running.admin.base_url}/debug/endpoints")
    question = json.dumps({"model": PodSettings().model, "prompt": "Hello"})
    say(f"a request: curl -s {running.gateway.base_url}/v1/completions -d '{question}'")
    say("Ctrl-C ends it")
    traffic = Traffic(running.gateway, Random(options.seed), options.rate)
    async with _sending(traffic):
        while True:
            traffic.sent[:] = [one for one in traffic.sent if one.running]
            await anyio.sleep(EVERY)
            print(f"    {account_line(traffic)}", flush=True)


def account_line(traffic: Traffic) -> str:
    """The last seconds in one line."""
    ended = [one for one in traffic.sent if not one.running]
    failed = sum(not one.ok for one in ended)
    return f"{len(ended)} requests, {failed} failed; served by {served_by(ended) or 'nobody'}"
