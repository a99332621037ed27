"""The ``sim kube`` command: files in, a server on a socket out."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import yaml

from pointsman.actors.sim.kube.command import read_tokens, run
from pointsman.actors.sim.kube.identity import ADMIN, service_account
from pointsman.actors.sim.kube.kubeconfig import Access

from .kit import DEPLOY, MERGE, PODS, POOLS
from .serving import ADDRESS, kube, options

pytestmark = pytest.mark.long

CRDS = sorted(map(str, (DEPLOY / "crds").iterdir()))
OBJECTS = """\
apiVersion: v1
kind: List
items:
  - apiVersion: inference.networking.k8s.io/v1
    kind: InferencePool
    metadata: {name: pool, namespace: models}
    spec: {selector: {matchLabels: {app: m}}, targetPorts: [{number: 8000}]}
  - apiVersion: v1
    kind: Pod
    metadata: {name: a, creationTimestamp: 2026-01-01T00:00:00Z}
    status: {podIP: 10.0.0.1}
---
---
apiVersion: v1
kind: Namespace
metadata: {name: models}
"""


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    path = tmp_path / "objects.yaml"
    path.write_text(OBJECTS)
    return path


def client(access: Access, context: ssl.SSLContext | bool = True) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {access.token}"} if access.token else {}
    return httpx.AsyncClient(base_url=access.url, headers=headers, verify=context, trust_env=False)


async def test_files_are_loaded_in_an_order_that_works(objects: Path) -> None:
    async with kube(objects, *CRDS) as access, client(access) as api:
        found = (await api.get(f"{PODS}/a")).json()
        assert found["status"]["podIP"] == "10.0.0.1"
        assert found["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
        listed = (await api.get(POOLS.replace("default", "models"))).json()
        assert [item["metadata"]["name"] for item in listed["items"]] == ["pool"]


async def follow(access: Access, seen: list[Any]) -> None:
    """Watch the pods, and change what is seen until nothing is left."""
    async with client(access) as api:
        await fault(api, action="end", skip=3)
        async with api.stream("GET", PODS, params={"watch": "1"}) as watch:
            async for line in watch.aiter_lines():
                event = json.loads(line)
                seen.append((event["type"], event["object"]["metadata"].get("labels")))
                if event["type"] == "ADDED":
                    patch = {"metadata": {"labels": {"x": "y"}}}
                    headers = {"content-type": MERGE}
                    await api.patch(f"{PODS}/a", json=patch, headers=headers)
                elif event["type"] == "MODIFIED":
                    await api.delete(f"{PODS}/a")


async def fault(api: httpx.AsyncClient, **settings: object) -> None:
    assert (await api.post("/sim/faults", json=settings)).status_code == 201


async def test_events_come_as_they_happen(objects: Path) -> None:
    seen: list[Any] = []
    async with kube(objects, *CRDS) as access:
        await follow(access, seen)
    assert seen == [("ADDED", None), ("MODIFIED", {"x": "y"}), ("DELETED", {"x": "y"})]


def test_it_works_on_asyncio_as_on_trio(objects: Path) -> None:
    seen: list[Any] = []

    async def main() -> None:
        async with kube(objects, *CRDS) as access:
            await follow(access, seen)

    anyio.run(main, backend="asyncio")
    assert [kind for kind, _labels in seen] == ["ADDED", "MODIFIED", "DELETED"]


async def test_connections_drop_and_bodies_break_off_on_the_wire(objects: Path) -> None:
    async with kube(objects, *CRDS) as access, client(access) as api:
        await fault(api, action="drop", count=1)
        with pytest.raises(httpx.RemoteProtocolError):
            await api.get(PODS)
        await fault(api, action="truncate", count=1)
        with pytest.raises(httpx.RemoteProtocolError):
            await api.get(PODS)
        await fault(api, action="truncate", verb="watch", count=1)
        with pytest.raises(httpx.RemoteProtocolError):
            await api.get(PODS, params={"watch": "1"})
        await fault(api, action="hang", count=1)
        with pytest.raises(httpx.ReadTimeout):
            await api.get(PODS, timeout=0.05)
        assert (await api.get(PODS)).status_code == 200


async def test_a_token_is_asked_for(objects: Path) -> None:
    async with kube(objects, *CRDS, "--token", "t-1") as access, client(access) as api:
        assert access.token == "t-1"
        assert (await api.get(PODS)).status_code == 200
        headers = {"authorization": "Bearer wrong"}
        assert (await api.get(PODS, headers=headers)).status_code == 401


def test_tokens_name_users() -> None:
    assert read_tokens(["a", "b=system:serviceaccount:default:pointsman"]) == {
        "a": ADMIN,
        "b": service_account("default", "pointsman"),
    }


async def test_rights_are_checked_on_demand(objects: Path) -> None:
    pointsman = "t-1=system:serviceaccount:default:pointsman"
    arguments = ["--token", pointsman, "--authorization-mode", "RBAC"]
    served = kube(objects, *CRDS, DEPLOY / "rbac.yaml", *arguments)
    async with served as access, client(access) as api:
        assert (await api.get(PODS)).status_code == 200
        assert (await api.get(f"{PODS}/a")).status_code == 403


def trusting(access: Access, folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=access.authority.decode())
    if access.client is not None:
        path = folder / "client.pem"
        path.write_bytes(access.client.key + access.client.certificate)
        context.load_cert_chain(path)
    return context


async def test_a_certificate_is_enough_over_tls(objects: Path, tmp_path: Path) -> None:
    arguments = ["--tls", "--authorization-mode", "RBAC"]
    async with kube(objects, *CRDS, *arguments) as access:
        async with client(access, trusting(access, tmp_path)) as api:
            assert (await api.get(PODS)).status_code == 200
            requests = (await api.get("/sim/requests")).json()
            assert requests[-1]["user"] == "kubernetes-admin"
        bare = ssl.create_default_context(cadata=access.authority.decode())
        async with client(access, bare) as api:
            assert (await api.get(PODS)).status_code == 403
            answer = await api.get(PODS, headers={"connection": "close"})
            assert answer.json()["reason"] == "Forbidden"


async def test_a_client_that_speaks_no_tls_disturbs_nobody(objects: Path, tmp_path: Path) -> None:
    async with kube(objects, *CRDS, "--tls") as access:
        plain = httpx.AsyncClient(base_url=access.url.replace("https", "http"), trust_env=False)
        async with plain:
            with pytest.raises(httpx.TransportError):
                await plain.get(PODS)
        stranger = ssl.create_default_context()
        async with client(access, stranger) as api:
            with pytest.raises(httpx.ConnectError):
                await api.get(PODS)
        async with client(access, trusting(access, tmp_path)) as api:
            assert (await api.get(PODS)).status_code == 200


async def test_the_kubeconfig_says_where_and_who(objects: Path, tmp_path: Path) -> None:
    path = tmp_path / "kube.yaml"
    async with kube(objects, *CRDS, "--tls", "--kubeconfig", path) as access:
        config = yaml.safe_load(path.read_text())
        assert path.stat().st_mode & 0o777 == 0o600
        assert config["clusters"][0]["cluster"]["server"] == access.url
        assert "client-key-data" in config["users"][0]["user"]
    async with kube(objects, *CRDS, "--token", "t-1", "--kubeconfig", path) as access:
        config = yaml.safe_load(path.read_text())
        assert config["users"][0]["user"] == {"token": "t-1"}
        assert config["clusters"][0]["cluster"] == {"server": access.url}
        assert config["current-context"] == config["contexts"][0]["name"]


async def test_it_says_when_it_is_ready(objects: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with kube(objects, *CRDS) as access:
        assert capsys.readouterr().out == f"ready: Kubernetes API on {access.url}\n"
    assert access.url.startswith(f"http://{ADDRESS}:")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "while parsing a flow node"),
        ("a: b", "document 1 is no Kubernetes object: it has no kind"),
        ("kind: Pod\n---\n- 1", "document 2 is no Kubernetes object: it has no kind"),
        ("kind: Gadget\napiVersion: v9", "no such kind is served: v9 Gadget"),
        ("kind: Pod\napiVersion: v1\nmetadata: {name: A}", 'Pod "A" is invalid: '),
    ],
)
async def test_a_file_that_cannot_be_loaded_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert await run(options(str(path))) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"pointsman sim kube: {path}: {why}")
    assert told.count("\n") == 1


async def test_a_file_that_is_not_there_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "missing.yaml"
    assert await run(options(str(path))) == 2
    assert capsys.readouterr().err == f"pointsman sim kube: {path}: No such file or directory\n"


async def test_a_port_in_use_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    async with kube() as access:
        chosen = options()
        chosen.port = int(access.url.rpartition(":")[2])
        capsys.readouterr()
        assert await run(chosen) == 2
    told = capsys.readouterr().err
    assert told == f"pointsman sim kube: {ADDRESS}:{chosen.port}: Address already in use\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--port", "70000"], "'70000' is no port number"),
        (["--port", "x"], "'x' is no port number"),
        (["--address", "here"], "'here' is no IP address"),
        (["--authorization-mode", "Maybe"], "invalid choice: 'Maybe'"),
    ],
)
def test_an_option_that_cannot_be_is_named(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(*arguments)
    assert why in capsys.readouterr().err


def test_the_help_shows_how_to_make_it_fail(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--help")
    assert "/sim/faults" in capsys.readouterr().out
