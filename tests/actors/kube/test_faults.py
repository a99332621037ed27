"""Every fault of an API server, at every step of a small story, and a day of everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from pointsman.actors.sim.kube.faults import Fault
from pointsman.actors.sim.kube.samples import objective, pod, pool, readiness
from pointsman.actors.sim.kube.store import Deletion

from .clusters import OBJECTIVES, POOLS, Cluster, X, Y
from .conftest import Start

pytestmark = pytest.mark.long

AT_ONCE: Final = Deletion(grace=0)
RECOVERY: Final = 420.0  # seconds: a watch that fell silent is noticed after up to 375


def remake_b(cluster: Cluster) -> None:
    cluster.server.delete("pods", "b", AT_ONCE)
    cluster.server.create(pod("b", ip="10.0.1.2", labels=X))


STORY: Final[Sequence[Callable[[Cluster], object]]] = (
    lambda c: c.server.create(pod("c", ip="10.0.0.3", labels=X)),
    lambda c: c.server.patch("pods", "a", readiness(False)),
    lambda c: c.server.patch("pods", "a", readiness(True)),
    remake_b,
    lambda c: c.server.patch("pods", "c", {"metadata": {"labels": Y}}),
    lambda c: c.change_pool(X, ports=(8000, 8001)),
    lambda c: c.server.delete("pods", "a", Deletion(grace=30)),
    lambda c: c.change_pool(Y, ports=(8000,)),
)

FAULTS: Final[dict[str, dict[str, Any]]] = {
    "drop": {"action": "drop", "count": 3},
    "slow": {"action": "delay", "seconds": 20, "count": 2},
    "hang": {"action": "hang", "count": 1},
    "truncated": {"action": "truncate", "count": 1},
    "unauthorized": {"action": "status", "status": 401, "count": 3},
    "forbidden": {"action": "status", "status": 403, "count": 3},
    "missing": {"action": "status", "status": 404, "plain": True, "count": 3},
    "gone": {"action": "status", "status": 410, "count": 3},
    "throttled": {"action": "status", "status": 429, "seconds": 7, "count": 2},
    "broken": {"action": "status", "status": 500, "count": 3},
    "down": {"action": "status", "status": 503, "plain": True, "count": 3},
    "ended": {"action": "end", "count": 1},
    "reset": {"action": "break", "count": 1},
    "silent": {"action": "silence", "count": 1},
    "expired": {"action": "expire", "count": 1},
    "garbage": {"action": "garbage", "count": 1},
}


def arm(fault: str, resource: str, cluster: Cluster) -> None:
    cluster.server.faults.add(Fault(**FAULTS[fault], resource=resource))


def restart(cluster: Cluster) -> None:
    """What a restart of the server does: all connections break, and a while nothing is heard."""
    cluster.fail("drop", count=10)
    cluster.server.faults.disconnect()


async def tell(cluster: Cluster, fault: Callable[[Cluster], object], step: int) -> None:
    """The story, with a fault before one of its steps."""
    for number, change in enumerate(STORY):
        if number == step:
            fault(cluster)
        change(cluster)
        await trio.sleep(1)


@pytest.mark.parametrize("resource", ["pods", POOLS, "*"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_at_any_step_is_made_good(
    start: Start, autojump_clock: MockClock, fault: str, resource: str
) -> None:
    for step in range(len(STORY)):
        cluster = start("a", "b")
        await trio.sleep(2)
        await tell(cluster, partial(arm, fault, resource), step)
        await trio.sleep(RECOVERY)
        assert cluster.addresses == cluster.wanted, f"at step {step}"
        assert cluster.discovery.synced.value
        assert len(cluster.server.watches) == 4
        cluster.stop()


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_at_the_start_is_made_good(
    start: Start, autojump_clock: MockClock, fault: str
) -> None:
    cluster = start("a", "b", follow=False)
    arm(fault, "*", cluster)
    cluster.follow()
    await trio.sleep(RECOVERY)
    assert cluster.addresses == cluster.wanted
    assert cluster.discovery.synced.value


@pytest.mark.parametrize("step", range(len(STORY)))
@pytest.mark.parametrize("compacted", [False, True])
async def test_a_restart_at_any_step_is_made_good(
    start: Start, autojump_clock: MockClock, step: int, compacted: bool
) -> None:
    def fault(cluster: Cluster) -> None:
        restart(cluster)
        if compacted:
            cluster.server.compact()

    cluster = start("a", "b")
    await trio.sleep(2)
    await tell(cluster, fault, step)
    await trio.sleep(60)
    assert cluster.addresses == cluster.wanted


@define(eq=False)
class Churn:
    """Whatever may happen to a cluster, at random."""

    cluster: Cluster
    random: Random
    _number: int = field(default=0, init=False)

    def happen(self) -> None:
        """Let one thing happen."""
        things: dict[Callable[[], object], int] = {
            self.create: 25,
            self.delete: 20,
            self.terminate: 5,
            self.remake: 5,
            self.flip: 30,
            self.move: 10,
            self.relabel: 5,
            self.annotate: 10,
            self.reprioritise: 3,
            self.change_pool: 1,
            self.replace_pool: 1,
            self.fail: 2,
        }
        (thing,) = self.random.choices(list(things), list(things.values()))
        thing()

    def pods(self) -> list[str]:
        return [one["metadata"]["name"] for one in self.cluster.server.objects("pods")]

    def a_pod(self) -> str | None:
        names = self.pods()
        return self.random.choice(names) if names else None

    def create(self) -> None:
        if len(self.pods()) >= 30:
            self.delete()
        self._number += 1
        self._make(f"pod-{self._number}")

    def _make(self, name: str) -> None:
        labels, ready = self.random.choice((X, X, Y)), self.random.random() < 0.8
        address = f"10.{self.random.randrange(256)}.{self.random.randrange(256)}.1"
        self.cluster.server.create(pod(name, ip=address, labels=labels, ready=ready))

    def delete(self) -> None:
        if (name := self.a_pod()) is not None:
            self.cluster.server.delete("pods", name, AT_ONCE)

    def terminate(self) -> None:
        if (name := self.a_pod()) is not None:
            self.cluster.server.delete("pods", name, Deletion(grace=30))

    def remake(self) -> None:
        if (name := self.a_pod()) is not None:
            self.cluster.server.delete("pods", name, AT_ONCE)
            self._make(name)

    def _patch(self, patch: dict[str, Any]) -> None:
        if (name := self.a_pod()) is not None:
            self.cluster.server.patch("pods", name, patch)

    def flip(self) -> None:
        self._patch(readiness(self.random.random() < 0.6))

    def move(self) -> None:
        self._patch({"status": {"podIP": f"10.1.0.{self.random.randrange(1, 255)}"}})

    def relabel(self) -> None:
        self._patch({"metadata": {"labels": self.random.choice((X, Y))}})

    def annotate(self) -> None:
        self._patch({"metadata": {"annotations": {"n": str(self.random.random())}}})

    def reprioritise(self) -> None:
        name = f"o-{self.random.randrange(4)}"
        if name in [one["metadata"]["name"] for one in self.cluster.server.objects(OBJECTIVES)]:
            self.cluster.server.delete(OBJECTIVES, name)
        else:
            priority = self.random.randrange(-3, 3)
            self.cluster.server.create(objective(name, priority=priority, pool="p"))

    def change_pool(self) -> None:
        if self.cluster.server.objects(POOLS):
            ports = self.random.choice(((8000,), (8000, 8001), (9000,)))
            self.cluster.change_pool(self.random.choice((X, Y)), ports=ports)

    def replace_pool(self) -> None:
        if self.cluster.server.objects(POOLS):
            self.cluster.server.delete(POOLS, "p")
        else:
            self.cluster.server.create(pool("p", selector=X))

    def fail(self) -> None:
        match self.random.randrange(4):
            case 0:
                restart(self.cluster)
            case 1:
                self.cluster.server.compact()
            case _:
                fault = self.random.choice(list(FAULTS.values()))
                self.cluster.server.faults.add(Fault(**fault))


async def test_a_day_of_churn_ends_equal_to_the_server(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a", "b")
    churn = Churn(cluster, Random(4))
    for _ in range(10_000):
        churn.happen()
        await trio.sleep(churn.random.expovariate(1 / 8.64))
    cluster.server.faults.clear()
    if not cluster.server.objects(POOLS):
        churn.replace_pool()
    await trio.sleep(RECOVERY)
    assert cluster.addresses == cluster.wanted
    assert len(cluster.addresses) > 3
    priorities = {
        one["metadata"]["name"]: one["spec"].get("priority", 0)
        for one in cluster.server.objects(OBJECTIVES)
    }
    held = cluster.store.snapshot.objectives
    assert {name: one.priority for name, one in held.items()} == priorities
    assert len(cluster.server.watches) == 4
