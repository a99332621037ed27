"""What changes around the daemon meanwhile: endpoints, their health, and the configuration."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

from attrs import define, field
from tests.bench.model_servers import FAULTS
from tests.bench.server import Models, endpoints_file

FEWEST: Final = 3  # endpoints that stay, whatever goes
APART: Final = (0.7, 2.0)  # seconds between two changes, at least and at most
SETTLED: Final = 4.0  # seconds between two lists of endpoints: one that changes is not taken in
HISTORY: Final = 600.0  # seconds for which old sets of endpoints are remembered
SCORERS: Final = (
    "queue-scorer",
    "kv-cache-utilization-scorer",
    "prefix-cache-scorer",
    "active-request-scorer",
)
BROKEN: Final = (
    "plugins: [",
    "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: no-such-type}]\n",
    "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nschedulingProfiles: 7\n",
)


@define(eq=False)
class World:
    """The files of a daemon in *folder*, and the model servers that they name."""

    folder: Path
    models: Models
    random: Random
    changes: Counter[str] = field(factory=Counter[str], init=False)
    _pid: int | None = field(default=None, init=False)
    _listed: list[int] = field(factory=list[int], init=False)
    _sets: list[tuple[float, frozenset[str]]] = field(
        factory=list[tuple[float, frozenset[str]]], init=False
    )
    """What the file listed from when on."""
    _faulty: set[int] = field(factory=set[int], init=False)
    _due: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._list(range(len(self.models.hosts)))
        self.config.write_text(self._config_text())

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"

    @property
    def _endpoints(self) -> Path:
        return self.folder / "endpoints.yaml"

    def endpoints(self, since: float) -> Collection[str]:
        """All that were listed at some time since then."""
        known: set[str] = set()
        for begun, listed in reversed(self._sets):
            known |= listed
            if begun <= since:
                break
        return known

    def go_on(self, pid: int) -> None:
        """Change something, if it is time."""
        now = monotonic()
        if now < self._due:
            return
        self._due = now + self.random.uniform(*APART)
        self._pid = pid
        change = self.random.choice(self._choices())
        change()
        self.changes[change.__name__.strip("_").replace("_", " ")] += 1

    def calm_down(self) -> None:
        """Everything is well again."""
        self.config.write_text(self._config_text())
        for number in tuple(self._faulty):
            self._misbehave(number, "")

    def _choices(self) -> list[Callable[[], None]]:
        settled = monotonic() - self._sets[-1][0] > SETTLED
        return [
            *[self._endpoints_change] * (4 if settled else 0),
            *[self._server_fails] * 3,
            *[self._server_recovers] * 3,
            *[self._reload] * 2,
            self._reload_of_a_broken_file,
        ]

    # -- endpoints ----------------------------------------------------------------------------

    def _endpoints_change(self) -> None:
        everybody = range(len(self.models.hosts))
        self._list(self.random.sample(everybody, self.random.randint(FEWEST, len(everybody))))

    def _list(self, numbers: Collection[int]) -> None:
        now = monotonic()
        self._listed = list(numbers)
        every = self.models.endpoints
        self._sets = [each for each in self._sets if each[0] > now - HISTORY]
        self._sets.append((now, frozenset(every[number] for number in numbers)))
        self._write(self._endpoints, endpoints_file(self.models, numbers))

    def _server_fails(self) -> None:
        self._misbehave(self.random.randrange(len(self.models.hosts)), self.random.choice(FAULTS))

    def _server_recovers(self) -> None:
        if self._faulty:
            self._misbehave(self.random.choice(sorted(self._faulty)), "")

    def _misbehave(self, number: int, fault: str) -> None:
        self.models.misbehave(number, fault)
        (self._faulty.add if fault else self._faulty.discard)(number)

    # -- configuration ------------------------------------------------------------------------

    def _reload(self) -> None:
        self._write(self.config, self._config_text())
        self._hang_up()

    def _reload_of_a_broken_file(self) -> None:
        self._write(self.config, self.random.choice(BROKEN))
        self._hang_up()

    def _hang_up(self) -> None:
        if self._pid is not None:
            os.kill(self._pid, signal.SIGHUP)

    def _write(self, path: Path, text: str) -> None:
        """In place, or by a rename as careful editors do."""
        if self.random.random() < 0.5:
            path.write_text(text)
            return
        beside = path.with_suffix(".new")
        beside.write_text(text)
        beside.replace(path)

    def _config_text(self) -> str:
        """Other weights each time, and now and then another index of prefixes."""
        matched = self.random.choice([131_072, 131_072, 65_536])
        index = {"lruCapacityPerServer": 1_000, "maxPrefixTokensToMatch": matched}
        producer = {
            "type": "approx-prefix-cache-producer",
            "parameters": index | {"autoTune": False},
        }
        parameters = {"path": str(self._endpoints), "watchFile": True}
        file = {"type": "file-discovery", "parameters": parameters}
        picker = {"type": "max-score-picker"}
        scorers = [{"type": name} for name in SCORERS]
        weighed = [{"pluginRef": name, "weight": self.random.randint(1, 4)} for name in SCORERS]
        profile = {"name": "default", "plugins": [*weighed, {"pluginRef": "max-score-picker"}]}
        return json.dumps(
            {
                "apiVersion": "llm-d.ai/v1alpha1",
                "kind": "EndpointPickerConfig",
                "plugins": [*scorers, producer, picker, file],
                "schedulingProfiles": [profile],
                "dataLayer": {"discovery": {"pluginRef": "file-discovery"}},
            }
        )
