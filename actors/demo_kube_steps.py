"""What happens in the cluster while requests come in, and what has to become of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, final

import anyio
import httpx
from attrs import define, field

from .demo import say
from .demo_kube_cluster import APP, POOL, Cluster, pod
from .demo_kube_traffic import Sent, Traffic

SOON: Final = 30.0  # seconds within which whatever is waited for must happen
POLL: Final = 0.02  # seconds between two looks at what the daemon knows
ENOUGH: Final = 15  # requests that are to end before a step is over
FIRST: Final = ("llama-1", "llama-2", "llama-3")
MORE: Final = ("llama-4", "llama-5")
NEW: Final = {"track": "new"}
"""The label that only the later pods have."""


@final
@define(eq=False)
class Story:
    """One run through all steps."""

    cluster: Cluster
    traffic: Traffic
    wrong: list[str] = field(factory=list[str], init=False)
    """What was not as it has to be."""

    async def run(self) -> None:
        """Take every step, until something that has to happen does not."""
        for title, step in self._steps():
            self.traffic.step = title
            say(title)
            try:
                with anyio.fail_after(SOON):
                    await step()
            except TimeoutError:
                self._wrong(f"{title}: it was not done within {SOON:g} s")
                break
            except httpx.HTTPError as exc:
                self._wrong(f"{title}: the daemon does not answer: {type(exc).__name__}")
                break

    def _steps(self) -> Sequence[tuple[str, Callable[[], Awaitable[None]]]]:
        return (
            (f"{len(FIRST)} pods", self._begin),
            (f"scale up to {len(FIRST + MORE)}", self._scale_up),
            ("delete llama-1", self._delete),
            ("roll llama-2", self._roll),
            ("llama-6 comes and fails", self._fail),
            ("selector: track=new", self._select),
        )

    async def _begin(self) -> None:
        await self.traffic.more(2 * ENOUGH)

    async def _scale_up(self) -> None:
        for name in MORE:
            self.cluster.api.create(pod(name, **NEW))
        created = anyio.current_time()
        await self._known(*FIRST, *MORE)
        for name in MORE:
            first = await self._served_by(self.cluster.address(name), since=created)
            self._tell(f"{name} at {first.address}: first request {first.at - created:.1f} s later")
        await self.traffic.more(ENOUGH)

    async def _delete(self) -> None:
        await self._leave("llama-1")
        await self.traffic.more(ENOUGH)

    async def _roll(self) -> None:
        old = await self._leave("llama-2")
        self.cluster.api.create(pod("llama-2"))
        created = anyio.current_time()
        await self._known("llama-2", "llama-3", *MORE)
        new = self.cluster.address("llama-2")
        self._expect(new != old, f"llama-2 came back at {new}, where it was before")
        await self._served_by(new, since=created)
        self._tell(f"llama-2 came back at {new} and serves")
        await self.traffic.more(ENOUGH)

    async def _fail(self) -> None:
        """Nobody is told that connections are refused: Envoy finds out, request by request."""
        self.cluster.api.create(pod("llama-6"))
        others = ("llama-2", "llama-3", *MORE)
        await self._known(*others, "llama-6")
        failed = anyio.current_time()
        self.cluster.node.restart("llama-6")
        await self._known(*others)
        out = anyio.current_time() - failed
        await self._known(*others, "llama-6")
        back = anyio.current_time()
        await self._served_by(self.cluster.address("llama-6"), since=back)
        retried = sum(one.attempts > 1 for one in self.traffic.sent if failed <= one.at <= back)
        self._tell(f"{retried} requests found no connection there and went to the next server")
        self._tell(f"llama-6 left the pool {out:.1f} s after it failed, started again and serves")
        await self.traffic.more(ENOUGH)

    async def _select(self) -> None:
        selector = {"matchLabels": {**APP, **NEW}}
        self.cluster.api.patch("inferencepools", POOL, {"spec": {"selector": selector}})
        changed = anyio.current_time()
        known = await self._known(*MORE)
        since = anyio.current_time()
        self._tell(f"the pool is {' and '.join(MORE)} {since - changed:.2f} s later")
        await self.traffic.more(ENOUGH)
        self._only(known, since)

    async def _leave(self, name: str) -> str:
        """Delete a pod that is answering, and wait until it is gone; where it was."""
        where = self.cluster.address(name)
        await self.traffic.until(lambda: bool(self.traffic.running_at(where)))
        begun = self.traffic.running_at(where)
        self.cluster.api.delete("pods", name)
        deleted = anyio.current_time()
        await self._until_known(lambda known: where not in known)
        left = anyio.current_time()
        there = bool(self.cluster.address(name))
        self._expect(there, f"{name} was in the pool for as long as it was there")
        await self.cluster.until(lambda: not self.cluster.address(name))
        gone = anyio.current_time()
        self._expect(not self.traffic.running_at(where), f"{name} went with requests open")
        self._tell(
            f"{name} left the pool {1000 * (left - deleted):.0f} ms after it was deleted; it ended"
            f" {sum(one.ok for one in begun)} of {len(begun)} requests and went"
            f" after {gone - deleted:.1f} s"
        )
        late = [one for one in self.traffic.sent if one.at > left and one.address == where]
        self._expect(not late, f"{name} got {len(late)} requests after it had left the pool")
        return where

    async def _known(self, *names: str) -> Collection[str]:
        """Wait until the daemon chooses from these pods and no others; where they are."""
        return await self._until_known(
            lambda known: known == {self.cluster.address(name) for name in names}
        )

    async def _until_known(self, right: Callable[[Collection[str]], bool]) -> Collection[str]:
        """Wait until the addresses that the daemon chooses from are *right*."""
        while True:
            if right(known := await self.cluster.known()):
                return known
            await anyio.sleep(POLL)

    async def _served_by(self, address: str, *, since: float) -> Sent:
        """Wait for the first request that was sent after *since* and served there."""

        def found() -> list[Sent]:
            sent = self.traffic.sent
            return [one for one in sent if one.at >= since and one.ok and one.address == address]

        await self.traffic.until(lambda: bool(found()))
        return found()[0]

    def _only(self, known: Collection[str], since: float) -> None:
        """See that what was sent after *since* was served where the daemon sent it."""
        for address, count in Counter(
            one.address
            for one in self.traffic.sent
            if one.at > since and one.address and one.address not in known
        ).items():
            self._wrong(f"{count} requests went to {address}, which is not in the pool")

    def _tell(self, text: str) -> None:
        print(f"    {text}", flush=True)

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self._wrong(otherwise)

    def _wrong(self, text: str) -> None:
        self.wrong.append(text)
        self._tell(f"WRONG: {text}")
