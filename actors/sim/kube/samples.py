"""The objects that a picker meets, as a cluster would have made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from .objects import Object

STARTED: Final = "2026-11-29T12:00:00Z"
POOL_GROUP: Final = "inference.networking.k8s.io"
OBJECTIVE_GROUP: Final = "llm-d.ai"
PORT: Final = 8000
_STARTED: Final = ("PodScheduled", "Initialized")
_READY: Final = ("ContainersReady", "Ready")


def pod(
    name: str,
    *,
    ip: str,
    namespace: str = "default",
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
    ready: bool = True,
    uid: str = "",
    port: int = PORT,
    phase: str = "Running",
    node: str = "node-1",
) -> Object:
    """A pod that runs a model server; not *ready*, it runs and is not yet to be used."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels),
            "annotations": dict(annotations),
            "uid": uid,
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": "server", "image": "model-server", "ports": [{"containerPort": port}]}
            ],
        },
        "status": {
            "phase": phase,
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "startTime": STARTED,
            "conditions": [*_conditions(True, *_STARTED), *_conditions(ready, *_READY)],
        },
    }


def _conditions(met: bool, *kinds: str) -> list[Object]:
    return [
        {
            "type": kind,
            "status": "True" if met else "False",
            "lastProbeTime": None,
            "lastTransitionTime": STARTED,
        }
        for kind in kinds
    ]


def readiness(ready: bool) -> Object:
    """The merge patch that makes a pod ready, or no longer."""
    return {"status": {"conditions": _conditions(ready, *_READY)}}


def running(ip: str) -> Object:
    """The merge patch with which a node says that a pod runs and may be used."""
    status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "startTime": STARTED}
    conditions = [*_conditions(True, *_STARTED), *_conditions(True, *_READY)]
    return {"status": {**status, "conditions": conditions}}


def pool(
    name: str,
    *,
    selector: Mapping[str, str],
    ports: Sequence[int] = (PORT,),
    namespace: str = "default",
) -> Object:
    """An InferencePool."""
    return {
        "apiVersion": f"{POOL_GROUP}/v1",
        "kind": "InferencePool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": dict(selector)},
            "targetPorts": [{"number": port} for port in ports],
            "endpointPickerRef": {"name": "pointsman", "port": {"number": 9002}},
        },
    }


def objective(
    name: str,
    *,
    priority: int | None,
    pool: str,
    namespace: str = "default",
    group: str = OBJECTIVE_GROUP,
) -> Object:
    """An InferenceObjective."""
    wanted = {} if priority is None else {"priority": priority}
    return {
        "apiVersion": f"{group}/v1alpha2",
        "kind": "InferenceObjective",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"poolRef": {"name": pool}, **wanted},
    }


def rewrite(
    name: str,
    *,
    pool: str,
    models: Sequence[str] = (),
    targets: Mapping[str, int | None],
    namespace: str = "default",
    group: str = OBJECTIVE_GROUP,
    created: str = STARTED,
) -> Object:
    """An InferenceModelRewrite with one rule; without *models* it is about all of them."""
    rule: Object = {
        "targets": [
            {"modelRewrite": model} | ({} if weight is None else {"weight": weight})
            for model, weight in targets.items()
        ]
    }
    if models:
        rule["matches"] = [{"model": {"type": "Exact", "value": model}} for model in models]
    return {
        "apiVersion": f"{group}/v1alpha2",
        "kind": "InferenceModelRewrite",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": created},
        "spec": {"poolRef": {"name": pool}, "rules": [rule]},
    }
