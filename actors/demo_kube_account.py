"""The account of a run: what happened to every request, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from .demo_kube_traffic import Sent, Traffic


def account(traffic: Traffic) -> str:
    """A line for each step, in their order, and who served."""
    steps = list(dict.fromkeys(one.step for one in traffic.sent))
    width = max((len(step) for step in steps), default=0)
    moved = movers(traffic.sent)
    lines = [f"{'':<{width}}{'sent':>6}{'ok':>6}{'retried':>9}{'failed':>8}  served by"]
    lines += [f"{step:<{width}}{_row(traffic.of(step), moved)}" for step in steps]
    return "\n".join(lines)


def _row(sent: Sequence[Sent], moved: Collection[str]) -> str:
    ok = sum(one.ok for one in sent)
    retried = sum(one.attempts > 1 for one in sent)
    failed = sum(bool(one.problem) for one in sent)
    return f"{len(sent):>6}{ok:>6}{retried:>9}{failed:>8}  {served_by(sent, moved)}"


def movers(sent: Sequence[Sent]) -> Collection[str]:
    """The pods that served at more than one address."""
    homes = Counter(pod for pod, _address in {(one.pod, one.address) for one in sent if one.ok})
    return {pod for pod, count in homes.items() if count > 1}


def served_by(sent: Sequence[Sent], moved: Collection[str] = ()) -> str:
    """Who served how many; those who *moved* are told apart by their addresses."""
    counts = Counter((one.pod, one.address) for one in sent if one.ok)
    return ", ".join(
        f"{pod}{f' at {address}' if pod in moved else ''} {count}"
        for (pod, address), count in sorted(counts.items())
    )


def failures(traffic: Traffic) -> Sequence[str]:
    """What went wrong with requests, each thing once and with the number of its requests."""
    found = Counter((one.step, one.problem) for one in traffic.sent if one.problem)
    return [f"{step}: {count} requests failed: {why}" for (step, why), count in found.items()]
