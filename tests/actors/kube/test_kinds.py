"""How the kinds are read, and what becomes of what does not fit."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.kube.attached import objectives_of, rewrites_of
from pointsman.actors.kube.errors import ApiError
from pointsman.actors.kube.kinds import (
    OBJECTIVES,
    PODS,
    POOL_GROUP,
    REWRITES,
    InferenceModelRewrite,
    InferenceObjective,
    InferencePool,
    Kind,
    Notice,
    PoolReference,
    Selection,
    label_selector,
    pools,
)
from pointsman.actors.kube.pool import pool_of
from pointsman.actors.kube.watching import Bookmark, Broken, decode
from pointsman.actors.sim.kube.samples import objective, pod, pool, rewrite
from pointsman.kernel.pool import RewriteRule, RewriteTarget

from .scripts import line

POOLS: Final = pools(POOL_GROUP)
KINDS: Final[list[Kind[Any]]] = [PODS, POOLS, OBJECTIVES, REWRITES]
SAMPLES: Final = [
    pod("a", ip="10.0.0.1", labels={"app": "x"}),
    pool("p", selector={"app": "x"}),
    objective("o", priority=1, pool="p"),
    rewrite("r", pool="p", models=["m"], targets={"n": 1}),
]


def changed(obj: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy of *obj* with another value at ``a.0.b``."""
    copy: Any = msgspec.json.decode(msgspec.json.encode(obj))
    *way, last = (int(part) if part.isdecimal() else part for part in path.split("."))
    here = copy
    for part in way:
        here = here[part]
    here[last] = value
    copied: dict[str, Any] = copy
    return copied


def selection(kind: Kind[Any]) -> Selection[Any]:
    return Selection(kind, "default")


@pytest.mark.parametrize(
    ("kind", "resource", "group"),
    [
        (PODS, "pods", "/api/v1"),
        (POOLS, f"inferencepools.{POOL_GROUP}", f"/apis/{POOL_GROUP}/v1"),
        (OBJECTIVES, "inferenceobjectives.llm-d.ai", "/apis/llm-d.ai/v1alpha2"),
    ],
)
def test_a_kind_has_its_place_in_the_api(kind: Kind[Any], resource: str, group: str) -> None:
    assert kind.resource == resource
    assert kind.path("n") == f"{group}/namespaces/n/{kind.plural}"


@pytest.mark.parametrize(("kind", "sample"), [*zip(KINDS, SAMPLES, strict=True)])
def test_what_the_server_sends_is_read(kind: Kind[Any], sample: dict[str, Any]) -> None:
    seen = decode(selection(kind), line("ADDED", sample))
    assert isinstance(seen, Notice)
    assert seen.object.metadata.name == sample["metadata"]["name"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_bookmark_is_read_whatever_the_kind(kind: Kind[Any]) -> None:
    obj = {"kind": "X", "metadata": {"resourceVersion": "9", "creationTimestamp": None}}
    assert decode(selection(kind), line("BOOKMARK", obj)) == Bookmark("9")


POOL, OBJECTIVE, REWRITE = SAMPLES[1:]


@pytest.mark.parametrize(
    ("kind", "obj"),
    [
        (POOLS, changed(POOL, "spec.targetPorts", [])),
        (POOLS, changed(POOL, "spec.targetPorts.0.number", 0)),
        (POOLS, changed(POOL, "spec.targetPorts.0.number", 65536)),
        (POOLS, changed(POOL, "spec.targetPorts.0.number", "8000")),
        (POOLS, changed(POOL, "spec.selector", {})),
        (POOLS, changed(POOL, "spec.selector.matchLabels", {})),
        (POOLS, changed(POOL, "spec.selector.matchLabels", {"app": 1})),
        (POOLS, {"metadata": POOL["metadata"]}),
        (OBJECTIVES, changed(OBJECTIVE, "spec.priority", 2**31)),
        (OBJECTIVES, changed(OBJECTIVE, "spec.priority", "high")),
        (OBJECTIVES, changed(OBJECTIVE, "spec.poolRef", {})),
        (REWRITES, changed(REWRITE, "spec.rules.0.targets", [])),
        (REWRITES, changed(REWRITE, "spec.rules.0.targets.0.weight", 0)),
        (REWRITES, changed(REWRITE, "spec.rules.0.targets.0.modelRewrite", "")),
        (REWRITES, changed(REWRITE, "spec.rules.0.matches.0.model.type", "Prefix")),
        (PODS, changed(SAMPLES[0], "status.conditions", "none")),
        (PODS, changed(SAMPLES[0], "metadata.labels", {"app": None})),
    ],
)
def test_what_breaks_the_schema_is_broken(kind: Kind[Any], obj: dict[str, Any]) -> None:
    seen = decode(selection(kind), line("MODIFIED", obj))
    assert isinstance(seen, Broken)
    assert seen.metadata.name == obj["metadata"]["name"]
    assert "`$" in seen.problem


@pytest.mark.parametrize("missing", [None, {}])
def test_absent_parts_of_a_pod_are_no_mistake(missing: object) -> None:
    obj = {"metadata": {"name": "a", "labels": None, "annotations": None}} | (
        {} if missing is None else {"status": missing, "spec": missing}
    )
    assert not isinstance(decode(selection(PODS), line("ADDED", obj)), Broken)


events = st.sampled_from(["ADDED", "DELETED", "BOOKMARK", "ERROR", "?"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["metadata", "name", "status", "spec", "x"]), inner)
    ),
    max_leaves=8,
)


@given(
    st.sampled_from(KINDS),
    st.sampled_from(["ADDED", "DELETED", "BOOKMARK", "ERROR", "?"]),
    json_values,
)
def test_any_json_is_read_or_refused(kind: Kind[Any], event: str, value: object) -> None:
    with suppress(ApiError):
        decode(selection(kind), msgspec.json.encode({"type": event, "object": value}))


@given(st.sampled_from(KINDS), st.binary())
def test_any_bytes_are_read_or_refused(kind: Kind[Any], data: bytes) -> None:
    with suppress(ApiError):
        decode(selection(kind), data)


@given(st.integers(0, 1500), st.binary(min_size=1, max_size=3))
def test_a_spoiled_line_is_read_or_refused(place: int, spoil: bytes) -> None:
    text = line("ADDED", SAMPLES[0])
    with suppress(ApiError):
        decode(selection(PODS), text[:place] + spoil + text[place + len(spoil) :])


def test_a_selector_of_labels_is_sorted() -> None:
    assert label_selector({"b": "2", "a": ""}) == "a=,b=2"


def read_pool(**spec: Any) -> Any:
    obj = POOL | {"spec": POOL["spec"] | spec}
    return pool_of(msgspec.convert(obj, InferencePool), "default")


def test_a_target_port_that_is_listed_twice_counts_once() -> None:
    ports = [{"number": number} for number in (8001, 8000, 8001)]
    assert read_pool(targetPorts=ports).ports == (8001, 8000)


@pytest.mark.parametrize("protocol", ["http", "kubernetes.io/h2c"])
def test_a_pool_has_a_protocol(protocol: str) -> None:
    assert read_pool(appProtocol=protocol).app_protocol == protocol
    assert read_pool().app_protocol == "http"


def test_a_reference_names_an_inference_pool_unless_it_says_otherwise() -> None:
    assert msgspec.convert({"name": "p"}, PoolReference) == PoolReference("p")
    other = msgspec.convert({"name": "p", "kind": "Service"}, PoolReference)
    assert other != PoolReference("p")


def test_an_objective_without_a_priority_is_worth_nothing_special() -> None:
    obj = msgspec.convert(objective("o", priority=None, pool="p"), InferenceObjective)
    assert objectives_of([obj]).objectives["o"].priority == 0


def test_rewrites_are_in_the_order_of_their_age_and_name() -> None:
    made = [("b", "2026-01-02"), ("c", "2026-01-01"), ("a", "2026-01-02")]
    objects = [
        msgspec.convert(
            rewrite(name, pool="p", targets={"m": None}, created=f"{day}T00:00:00Z"),
            InferenceModelRewrite,
        )
        for name, day in made
    ]
    assert [one.name for one in rewrites_of(objects).rewrites] == ["c", "a", "b"]


def test_weights_may_be_missing_in_part() -> None:
    sample = rewrite("r", pool="p", targets={"m": 5, "n": None})
    (read,) = rewrites_of([msgspec.convert(sample, InferenceModelRewrite)]).rewrites
    targets = (RewriteTarget("m", 5), RewriteTarget("n"))
    assert read.rules == (RewriteRule(targets=targets),)


def test_a_rewrite_without_rules_does_nothing() -> None:
    sample = rewrite("r", pool="p", targets={})
    del sample["spec"]["rules"]
    (read,) = rewrites_of([msgspec.convert(sample, InferenceModelRewrite)]).rewrites
    assert read.rules == ()
