"""The daemon: everything is constructed and wired here, and shut down in the reverse order."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final, final

import anyio
from attrs import define, field

from pointsman import plugins
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

from . import report, tls, tracing
from .admin import AdminServer
from .admin_access import AdminAccess, admin_access
from .config_watch import ConfigWatch
from .conversation import SessionSettings
from .discovery import Discovery, discovered, make_discovery
from .explain import daemon_state, endpoints, plugin_states
from .extproc_server import ExtProcServer, Listening
from .extproc_server_health import HealthServer
from .fetching import HttpFetching
from .figure_sources import show_deprecated, show_pool, show_version, show_watches
from .figures import Figures
from .file_discovery import read_text
from .listeners import Listeners
from .memory import keep_collected, keep_trimmed, return_large_buffers
from .metrics import MetricsActor, Rhythm
from .plugin_figures import PluginFigures
from .plugin_services import PluginServices
from .reading import APART_FROM
from .reaper import Reaper
from .signals import Signals
from .tls_policy import Policy
from .tracing import Follow

logger = logging.getLogger(__name__)

FLOOR: Final = 0.05  # seconds between scrapes, at least
CHANGES: Final = 1024  # that may wait for the datastore
FIRST_ROUND: Final = 2.0  # seconds that readiness waits for the endpoints' first reports
QUIET: Final = 5.0  # seconds without a stream, after which a draining daemon has nothing to do


def make_registry() -> Registry:
    """The built-in plugin types, and those of installed distributions."""
    registry = Registry(absent=plugins.ABSENT)
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
    for line in report.cost(wiring):
        logger.info("%s", line)


@final
@define(eq=False)
class Daemon:
    """The parts of a running daemon."""

    options: argparse.Namespace
    random: Random
    follow: Follow | None = None
    """Traces conversations."""
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
    certificates: tls.Certificates | None = field(default=None, init=False)
    access: AdminAccess = field(init=False)

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
        self.access = admin_access(self.options, self.discovery)
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
            self._listening(),
            self.wiring,
            self.datastore,
            self.figures,
            self.random,
            follow=self.follow,
        )
        self._describe()

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            registry=make_registry(),
            topics=self.topics,
            random=self.random,
            allow_experimental=self.options.allow_experimental_plugins,
            calls_of=self.figures.calls.of,
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
            tls=self._tls(),
            sessions=SessionSettings(
                body_limit=self.options.grpc_max_recv_msg_size,
                heeds_subset=not self.options.disable_endpoint_subset_filter,
                read_apart_from=APART_FROM,
                emits_scores=self.options.emit_endpoint_scores,
            ),
            plain=self.options.plain_grpc,
            response_figures=self.options.response_figures,
        )

    def _tls(self) -> ssl.SSLContext | None:
        options = self.options
        if not options.secure_serving:
            if options.cert_path:
                logger.warning("--cert-path has no effect with --secure-serving=false")
            return None
        policy = Policy(minimum=options.tls_min_version, suites=options.tls_cipher_suites)
        if not options.cert_path:
            if options.enable_cert_reload:
                logger.warning("--enable-cert-reload has no effect without --cert-path")
            return tls.self_signed(policy)
        self.certificates = tls.Certificates.load(Path(options.cert_path), policy)
        return self.certificates.context

    def _describe(self) -> None:
        figures, metrics, options = self.figures, self.metrics, self.options
        show_version(figures, os.environ)
        figures.tokens = options.enable_token_metrics
        pool = show_pool(figures, options.pool_name or "", lambda: self.datastore.snapshot)
        figures.stale.set_function(lambda: metrics.stale)
        text = "Streams that are open."
        figures.watch("pointsman_open_streams", text, lambda: self.server.open_streams.value)
        show_watches(figures, self.discovery.ages)
        of_plugins = PluginFigures(self.wiring, self.listeners, self.signals).families
        figures.collect(of_plugins)
        if options.enable_deprecated_metrics:
            show_deprecated(figures, pool, of_plugins)
        if options.enable_grpc_stream_metrics:
            figures.watch_streams(lambda: self.server.open_streams.value)

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
                services.start(Child(name="memory", run=keep_trimmed))
                services.start(Child(name="collections", run=keep_collected))
                services.start(Child(name="body reader", run=self.server.reader.run))
                services.start(Child(name="signals", run=self.signals.run))
                services.start(Child(name="plugins", run=PluginServices(self.wiring).run))
                if self.certificates is not None and self.options.enable_cert_reload:
                    services.start(Child(name="certificates", run=self.certificates.run))
                if self.access.certificates is not None:
                    run = self.access.certificates.run
                    services.start(Child(name="certificates of figures", run=run))
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
            guards=self.access.guards,
            tls=self.access.tls,
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
        """Only the machine itself may look inside, and who may get the page if that is asked."""
        if not self.access.confidential:
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
    return_large_buffers()
    async with tracing.running(os.environ, wanted=options.tracing) as follow:
        daemon = Daemon(options, Random(), follow)
        daemon.build()
        await daemon.run()
