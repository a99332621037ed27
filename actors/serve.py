"""The daemon: everything is constructed and wired here, and shut down in the reverse order."""

from __future__ import annotations

import argparse
import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Final, final

import anyio
from attrs import define, field
from prometheus_client.core import GaugeMetricFamily

from pointsman import __version__, plugins
from pointsman.kernel.candidates import Surroundings
from pointsman.kernel.channel import Latest
from pointsman.kernel.config import Config, read_config
from pointsman.kernel.datastore import Change, Datastore
from pointsman.kernel.mailbox import Mailbox
from pointsman.kernel.model import FRESHNESS
from pointsman.kernel.registry import Registry
from pointsman.kernel.supervisor import Child, supervise
from pointsman.kernel.topic import Topics
from pointsman.kernel.wiring import Wiring, wire

from . import tls
from .admin import AdminServer
from .config_watch import ConfigWatch
from .discovery import Discovery, discovered, make_discovery
from .explain import daemon_state, endpoints, plugin_states
from .extproc_server import ExtProcServer, Listening
from .extproc_server_health import HealthServer
from .fetching import HttpFetching
from .figures import OWN, Figures
from .file_discovery import read_text
from .listeners import Listeners
from .metrics import MetricsActor, Rhythm
from .plugin_figures import PluginFigures
from .plugin_services import PluginServices
from .reaper import Reaper
from .signals import Signals

logger = logging.getLogger(__name__)

FLOOR: Final = 0.05  # seconds between scrapes, at least
CHANGES: Final = 1024  # that may wait for the datastore
FIRST_ROUND: Final = 2.0  # seconds that readiness waits for the endpoints' first reports
QUIET: Final = 5.0  # seconds without a stream, after which a draining daemon has nothing to do


def make_registry() -> Registry:
    """The built-in plugin types, and those of installed distributions."""
    registry = Registry()
    for plugin_class in plugins.BUILT_IN:
        registry.register(plugin_class)
    registry.register_entry_points()
    return registry


def load(options: argparse.Namespace) -> Config:
    """The configuration that the command line names. Raises ConfigError."""
    if options.config_text:
        return read_config(options.config_text, "--config-text")
    if options.config_file:
        path = Path(options.config_file)
        return read_config(read_text(path), str(path))
    path = Path(__file__).parents[1] / "conf" / "default.yaml"
    return read_config(read_text(path), "the default configuration (without --config-file)")


def announce(wiring: Wiring) -> None:
    """Say what a configuration does that its author did not write."""
    for warning in wiring.warnings:
        logger.warning("%s", warning)
    for name, why in wiring.added.items():
        logger.info("plugin %s was added: %s", name, why)


@final
@define(eq=False)
class Daemon:
    """The parts of a running daemon."""

    options: argparse.Namespace
    random: Random
    figures: Figures = field(factory=Figures)
    topics: Topics = field(factory=Topics)
    ready: Latest[bool] = field(factory=lambda: Latest(value=False))
    draining: bool = field(default=False, init=False)
    around: Surroundings = field(init=False)
    inbox: Mailbox[Change] = field(init=False)
    datastore: Datastore = field(init=False)
    wiring: Latest[Wiring] = field(init=False)
    discovery: Discovery = field(init=False)
    metrics: MetricsActor = field(init=False)
    listeners: Listeners = field(init=False)
    signals: Signals = field(init=False)
    server: ExtProcServer = field(init=False)

    def build(self) -> None:
        """Construct everything. Raises ConfigError."""
        with ExitStack() as unless_built:
            inbox = Mailbox[Change].open("datastore", capacity=CHANGES)
            self.inbox = unless_built.enter_context(inbox)
            unless_built.callback(self.topics.close)
            self._construct()
            unless_built.pop_all()

    def _construct(self) -> None:
        self.datastore = Datastore(self.inbox, self.topics)
        self.around = self._surroundings()
        wiring = wire(load(self.options), self.around)
        announce(wiring)
        self.wiring = Latest(wiring)
        self.datastore.track({*wiring.processing.endpoint_values, FRESHNESS.name})
        self.listeners = Listeners(self.wiring, self.topics, self.datastore.members)
        self.listeners.subscribe()
        self.signals = Signals(self.wiring, lambda: self.datastore.snapshot)
        self.discovery = make_discovery(self.options, wiring, self.inbox.address, self.random)
        self.metrics = MetricsActor(
            self.datastore.members,
            self.wiring,
            self.inbox.address,
            HttpFetching(),
            self.figures,
            self._rhythm(),
            self.random,
        )
        self.server = ExtProcServer(
            self._listening(), self.wiring, self.datastore, self.figures, self.random
        )
        self._describe()

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            registry=make_registry(),
            topics=self.topics,
            random=self.random,
            allow_experimental=self.options.allow_experimental_plugins,
            count_failure=self.figures.plugin_failed,
            count_violation=self.figures.scope_violated,
        )

    def rewire(self, text: str, source: str) -> Wiring:
        """Put another configuration in the place of the current one, for new requests.

        Plugins whose entry did not change go on; requests under way end on the old wiring.

        Raises:
            ConfigError: and everything stays as it was.
        """
        before = self.wiring.value
        wiring = wire(read_config(text, source), self.around, before)
        if discovered(wiring) != discovered(before):
            logger.warning("another source of endpoints takes effect with the next start")
        announce(wiring)
        values = before.processing.endpoint_values | wiring.processing.endpoint_values
        self.datastore.track({*values, FRESHNESS.name})
        self.wiring.set(wiring)
        self.listeners.subscribe()
        return wiring

    def _rhythm(self) -> Rhythm:
        busy = self.options.refresh_metrics_interval
        if busy < FLOOR:
            logger.warning("--refresh-metrics-interval is raised to %g s", FLOOR)
            busy = FLOOR
        stale_after = self.options.metrics_staleness_threshold
        if stale_after < 3 * busy:
            stale_after = 3 * busy
            logger.warning("--metrics-staleness-threshold is raised to %g s", stale_after)
        return Rhythm(busy=busy, idle=max(busy, Rhythm().idle), stale_after=stale_after)

    def _listening(self) -> Listening:
        return Listening(
            host=self.options.bind_address,
            port=self.options.grpc_port,
            tls=tls.self_signed() if self.options.secure_serving else None,
            body_limit=self.options.grpc_max_recv_msg_size,
            plain=self.options.plain_grpc,
        )

    def _describe(self) -> None:
        figures, metrics = self.figures, self.metrics
        figures.info.labels(__version__).set(1)
        pool = figures.ready_endpoints.labels(self.options.pool_name or "")
        pool.set_function(lambda: len(self.datastore.members.value))
        figures.stale.set_function(lambda: metrics.stale)
        text = "Streams that are open."
        figures.watch("pointsman_open_streams", text, lambda: self.server.open_streams.value)
        figures.collect(self._watch_ages)
        figures.collect(PluginFigures(self.wiring, self.listeners, self.signals).families)

    def _watch_ages(self) -> Iterator[GaugeMetricFamily]:
        text = "Seconds since the API server last told something, by kind of object."
        family = GaugeMetricFamily(f"{OWN}kube_watch_age_seconds", text, labels=["kind"])
        for kind, age in self.discovery.ages().items():
            family.add_metric([kind], age)
        yield family

    # -- running ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until a signal says to end; then drain.

        Raises:
            ConfigError: there is no way to the endpoints.
            OSError: (in an exception group) a port cannot be had.
        """
        with ExitStack() as opened:
            opened.enter_context(self.inbox)
            opened.callback(self.topics.close)
            await self.discovery.prepare()
            async with supervise(random=self.random) as services:
                services.start(Child(name="datastore", run=self.datastore.run, inbox=self.inbox))
                services.start(Child(name="discovery", run=self.discovery.run))
                services.start(Child(name="metrics", run=self.metrics.run))
                services.start(Child(name="listeners", run=self.listeners.run))
                services.start(Child(name="reaper", run=Reaper(self.wiring).run))
                services.start(Child(name="signals", run=self.signals.run))
                services.start(Child(name="plugins", run=PluginServices(self.wiring).run))
                if self.options.config_file:
                    path = Path(self.options.config_file)
                    watch = ConfigWatch(path, self.rewire, self.figures)
                    services.start(Child(name="configuration", run=watch.run))
                await self._serve()

    async def _serve(self) -> None:
        """Requests end before the services that they use."""
        options = self.options
        host = options.bind_address
        health = HealthServer(host, options.grpc_health_port, self.ready)
        admin = AdminServer(
            host,
            options.metrics_port,
            self.ready,
            self.figures,
            self._waits_for,
            debug=self._debug_pages(),
        )
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with anyio.create_task_group() as requests:
                for server in (self.server, health, admin):
                    await requests.start(server.run)
                async with anyio.create_task_group() as starting:
                    starting.start_soon(self._follow_readiness)
                    await anext(aiter(signals))
                    starting.cancel_scope.cancel()
                await self._drain(aiter(signals))
                requests.cancel_scope.cancel()

    async def _follow_readiness(self) -> None:
        """Ready once the endpoints are known, and as long as there is a pool."""
        await self._become_ready()
        while True:
            version, synced = self.discovery.synced.version, self.discovery.synced.value
            if synced is not self.ready.value:
                logger.warning("%s", "ready again" if synced else "not ready: the pool is gone")
                self.ready.set(synced)
            await self.discovery.synced.newer(version)

    async def _become_ready(self) -> None:
        await self.discovery.synced.until(wanted=True)
        await self.datastore.synced.until(wanted=True)
        with anyio.move_on_after(FIRST_ROUND):  # or the first picks would be blind
            await self.metrics.first_round()
        self._go()

    def _go(self) -> None:
        """Everything that stays is here now: collections need not look at it again."""
        gc.collect()
        gc.freeze()
        self.ready.set(True)
        known = len(self.datastore.members.value)
        logger.info("ready: %d endpoints, ext_proc on port %d", known, self.options.grpc_port)

    async def _drain(self, signals: AsyncIterator[object]) -> None:
        """Be unready at once, serve on for a while; another signal shortens it."""
        self.draining = True
        self.ready.set(False)
        most = self.options.drain_timeout
        logger.info("draining for at most %g s: %d streams", most, self.server.open_streams.value)
        async with anyio.create_task_group() as waiting:

            async def until_drained() -> None:
                await self.server.drain(most=most, quiet=min(QUIET, most))
                waiting.cancel_scope.cancel()

            waiting.start_soon(until_drained)
            await anext(signals)
            waiting.cancel_scope.cancel()

    def _debug_pages(self) -> Mapping[str, Callable[[], object]]:
        """Nobody but the machine itself may look inside."""
        address = self.options.bind_address
        if address is None or not ip_address(address).is_loopback:
            return {}
        return {
            "/debug/endpoints": lambda: endpoints(self.wiring.value, self.datastore.snapshot),
            "/debug/state": lambda: daemon_state(self.datastore.snapshot, self.discovery),
            "/debug/plugins/state": lambda: plugin_states(self.wiring.value, self.signals),
        }

    def _waits_for(self) -> str:
        if self.draining:
            return "draining"
        if not self.discovery.synced.value:
            return "the pool" if self.options.pool_name else "the first list of endpoints"
        return "the endpoints' first reports"


async def run(options: argparse.Namespace) -> None:
    """The command ``pointsman serve``. Raises ConfigError."""
    daemon = Daemon(options, Random())
    daemon.build()
    await daemon.run()
