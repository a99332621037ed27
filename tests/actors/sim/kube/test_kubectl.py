"""Agreement with kubectl, where there is one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from pointsman.actors.sim.kube.samples import pod, pool

from .kit import DEPLOY
from .serving import kube

KUBECTL = shutil.which("kubectl")
pytestmark = [
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed"),
    pytest.mark.long,
]

Kubectl = Callable[..., Awaitable[str]]


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    """Run kubectl on the test's server; it must succeed, or fail with what *fails* says."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "KUBECONFIG": str(tmp_path / "kube.yaml"),
    }

    async def run(*arguments: str, text: str = "", fails: str = "") -> str:
        done = await trio.run_process(
            [KUBECTL or "", *arguments],
            stdin=text.encode(),
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            env=environment,
            check=False,
        )
        told = done.stdout.decode()
        assert (done.returncode != 0) is bool(fails), told
        assert fails in told
        return told

    return run


def arguments(tmp_path: Path, *more: str) -> list[str | Path]:
    path = tmp_path / "world.json"
    world = [
        pod("a", ip="10.0.0.1", labels={"app": "m"}),
        pool("pool", selector={"app": "m"}),
    ]
    path.write_text("\n---\n".join(map(json.dumps, world)))
    crds = sorted((DEPLOY / "crds").iterdir())
    return [path, *crds, "--kubeconfig", tmp_path / "kube.yaml", *more]


def manifest(image: str, priority: Any) -> str:
    objects: list[Any] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "b"},
            "spec": {"nodeName": "n", "containers": [{"name": "s", "image": image}]},
        },
        {
            "apiVersion": "llm-d.ai/v1alpha2",
            "kind": "InferenceObjective",
            "metadata": {"name": "hot"},
            "spec": {"poolRef": {"name": "pool"}, "priority": priority},
        },
    ]
    return "\n---\n".join(map(json.dumps, objects))


async def test_kubectl_shows_what_is_there(kubectl: Kubectl, tmp_path: Path) -> None:
    async with kube(*arguments(tmp_path)):
        header, row = (await kubectl("get", "pods", "-o", "wide")).splitlines()
        assert header.split() == ["NAME", "READY", "STATUS", "AGE", "IP", "NODE"]
        assert row.split()[:3] == ["a", "1/1", "Running"]
        assert "pool" in await kubectl("get", "infpool")
        assert "Running" in await kubectl("describe", "pod", "a")
        assert "inferencepools" in await kubectl("api-resources")
        uid = await kubectl("get", "pod", "a", "-o", "jsonpath={.metadata.uid}")
        assert len(uid) == 36
        await kubectl("get", "pod", "z", fails='pods "z" not found')
        await kubectl("get", "gadgets", fails="doesn't have a resource type")


async def test_kubectl_applies(kubectl: Kubectl, tmp_path: Path) -> None:
    async with kube(*arguments(tmp_path)):
        assert (await kubectl("apply", "-f", "-", text=manifest("x1", 5))).count("created") == 2
        assert (await kubectl("apply", "-f", "-", text=manifest("x2", 6))).count("configured") == 2
        assert (await kubectl("apply", "-f", "-", text=manifest("x2", 6))).count("unchanged") == 2
        served = await kubectl("apply", "--server-side", "-f", "-", text=manifest("x2", 7))
        assert served.count("serverside-applied") == 2
        assert "7" in await kubectl("get", "infobj", "hot")
        await kubectl(
            "apply", "-f", "-", text=manifest("x2", "high"), fails="spec.priority: Invalid"
        )
        wrong = manifest("x2", 7).replace("priority", "prio")
        await kubectl("apply", "-f", "-", text=wrong, fails='unknown field "spec.prio"')
        at_once = ("--grace-period=0", "--force")
        await kubectl("delete", "-f", "-", *at_once, text=manifest("x2", 7))
        assert "b " not in await kubectl("get", "pods")


async def test_kubectl_changes_and_waits(kubectl: Kubectl, tmp_path: Path) -> None:
    async with kube(*arguments(tmp_path)):
        await kubectl("label", "pod", "a", "tier=gpu")
        await kubectl("annotate", "pod", "a", "note=x")
        patch = '{"status":{"conditions":[{"type":"Special","status":"True"}]}}'
        await kubectl("patch", "pod", "a", "--subresource=status", "--type=merge", "-p", patch)
        await kubectl("wait", "--for=condition=Special", "pod/a", "--timeout=5s")
        await kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=5s")
        selected = await kubectl("get", "pods", "-l", "app in (m),tier", "-o", "name")
        assert selected == "pod/a\n"
        twice = '{"spec":{"targetPorts":[{"number":1},{"number":1}]}}'
        why = "may be listed only once"
        await kubectl("patch", "infpool", "pool", "--type=merge", "-p", twice, fails=why)


async def test_kubectl_makes_namespaces_and_what_is_in_them(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    async with kube(*arguments(tmp_path)):
        await kubectl("create", "namespace", "work")
        await kubectl("-n", "work", "create", "configmap", "c", "--from-literal=a=b")
        await kubectl("-n", "work", "create", "role", "r", "--verb=list", "--resource=pods")
        bound = ("--role=r", "--serviceaccount=work:app")
        await kubectl("-n", "work", "create", "rolebinding", "r", *bound)
        assert "Active" in await kubectl("get", "namespace", "work")
        await kubectl("delete", "namespace", "work")
        await kubectl("get", "namespace", "work", fails="not found")


async def test_kubectl_asks_for_rights_over_tls(kubectl: Kubectl, tmp_path: Path) -> None:
    more = ["--token", "admin", "--token", "app=system:serviceaccount:default:pointsman"]
    chosen = arguments(tmp_path, "--tls", "--authorization-mode", "RBAC", *more)
    async with kube(DEPLOY / "rbac.yaml", *chosen):
        assert await kubectl("auth", "can-i", "list", "pods", "--token=app") == "yes\n"
        assert "no\n" in await kubectl("auth", "can-i", "get", "pods", "--token=app", fails="no")
        assert "kubernetes-admin" in await kubectl("auth", "whoami")
        assert "a " in await kubectl("get", "pods", "--token=app")
        await kubectl("delete", "pod", "a", "--token=app", fails="Forbidden")
        await kubectl("get", "pods", "--token=wrong", fails="Unauthorized")
