"""The broker put together: configuration -> Space -> frontends, and the whole of its life.

start      the log is read (HTTP answers 503 meanwhile), the queues of the file are declared, the frontends listen
serve      SIGHUP reads the file of queues again, the tokens and the certificates
stop       on SIGTERM or SIGINT, in this order:
             1. publishes and /readyz answer 503, no new attempts, publishers that wait are answered
                                                                      (the Space drains)
             2. attempts in flight get 25 s, then stay pending
             3. all that was let in is written and fsynced
             4. checkpoint, clean marker, the log is closed           (the Space has ended)
             5. answers under way end, the frontends close
           A second signal ends the process at once; that loses nothing but time.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from syncbrok.cli.serve import heap
from syncbrok.cli.serve.certificates import Certificates, read_certificates
from syncbrok.cli.serve.follower_front import FollowerFront, RelayingNode
from syncbrok.cli.serve.reload import Reload
from syncbrok.cli.serve.single_node import SingleNode, SpaceOpener
from syncbrok.cli.serve.waiting_room import WaitingRoom
from syncbrok.config import Config, may_be_open, port_keys
from syncbrok.delivery.consumers import Consumers
from syncbrok.delivery.trace_context import TraceContexts
from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.own_sockets import OwnSockets
from syncbrok.delivery.webhook.resolver import DnsResolver, SystemResolver
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.frontends.bounds import Addresses, Bounds
from syncbrok.frontends.ephemeral_subscribers import EphemeralSubscribers
from syncbrok.frontends.from_yaml import QueuesFile, apply_queues, reload_queues
from syncbrok.frontends.listening import ListenerTls
from syncbrok.frontends.over_http.consuming import pull, streams
from syncbrok.frontends.over_http.leases import Leases
from syncbrok.frontends.over_http.requests.connection import Limits
from syncbrok.frontends.over_http.requests.context import HttpOptions, nobody
from syncbrok.frontends.over_http.requests.routes import Route
from syncbrok.frontends.over_http.resources import cluster, events, log_readers, log_segments, page, tokens
from syncbrok.frontends.over_http.server import HttpServer
from syncbrok.frontends.over_tcp.framed import Framed
from syncbrok.frontends.over_tcp.msgpack_bus import MsgpackBus
from syncbrok.frontends.over_tcp.multiplexed import Multiplexed
from syncbrok.frontends.over_tcp.session.first_use import FirstUse
from syncbrok.frontends.over_tcp.session.services import TcpServices
from syncbrok.frontends.over_tcp.topics import Topics
from syncbrok.model import limits
from syncbrok.model.errors import BadConfig, Draining, Fatal, LogFull
from syncbrok.model.message import CONSUMER_SCHEME, QueueSettings
from syncbrok.model.units import endpoint_scheme
from syncbrok.space.budgets import Budgets
from syncbrok.space.space import Space
from syncbrok.space.tracer import SpanExporter

_log: Final = logging.getLogger("syncbrok.broker")
_SWITCH_INTERVAL_S: Final = 0.0005


class Frontend(Protocol):
    """A way in. ``start`` raises ``OSError`` where its address cannot be had. ``ports`` are those it listens on: what
    is delivered is not delivered there."""

    @property
    def ports(self) -> list[int]: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


TCP_FRONTENDS: Final[Mapping[str, Callable[[TcpServices, Any, ListenerTls | None], Frontend]]] = {
    "framed": lambda services, settings, tls: Framed(services, settings.host, settings.port, tls),
    "topics": lambda services, settings, tls: Topics(services, settings.host, settings.port, tls),
    "multiplexed": lambda services, settings, tls: Multiplexed(services, settings.host, settings.port, tls),
    "msgpack_bus": lambda services, settings, tls: MsgpackBus(
        services, settings.host, settings.producer_port, settings.consumer_port, tls
    ),
}
"""By their names in ``FrontendsConfig``; each is made of the services, its own part of the configuration, and its
TLS where that has one."""


class Queues(NamedTuple):
    """The file of queues, read once already, and where to read it again. ``defaults``: of a queue."""

    path: Path
    file: QueuesFile
    defaults: QueueSettings


async def serve(
    config: Config,
    queues: Queues | None,
    variables: Mapping[str, str],
    budgets: Budgets,
    announce: Callable[[str], None],
    read_config: Callable[[], Config],
) -> None:
    """Run a broker from its start to its end. ``read_config`` reads the configuration again, on SIGHUP; it raises
    ``BadConfig``. Raises ``Fatal`` errors, ``OSError`` where an address cannot be had, and ``BadConfig`` where a
    certificate cannot be used."""
    # The writer thread and the loop hand the interpreter to each other at every commit: make that quick.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    heap.keep_blocks()
    signals = _Signals(asyncio.get_running_loop())
    certificates = Certificates(await asyncio.to_thread(read_certificates, config))
    bounds = Bounds(budgets, Addresses(config.http.proxies))
    opener, exporter = _space_opener(config, budgets, certificates), _exporter(config)
    async with _waiting_room(config, bounds, opener, certificates.of("http")) as room:
        if isinstance(room, FollowerFront):
            signals.reload = partial(room.reload, room.reload_of(config, read_config, certificates))
        space = await _open(opener, signals)
    if space is None:
        room.close()
        return
    heap.collect_seldom()  # after recovery, which has built what stays
    options, of_log = _http_options(config, opener.member), _of_log(opener, signals)
    frontends, http, ephemeral = _frontends(
        space, config, options, bounds, certificates, room.sockets, of_log, exporter
    )
    in_good_order = False
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(space.run(), name="syncbrok space")
            trimming = tasks.create_task(heap.give_back(), name="syncbrok heap")
            holding = tasks.create_task(opener.hold(), name="syncbrok leadership")
            signals.drain = lambda: tasks.create_task(_drain(space, opener))
            try:
                if queues is not None:
                    await _apply(queues, space)
                again = Reload(
                    config, read_config, http.set_tokens, certificates, lambda: bool(space.tokens.created_tokens())
                )
                await _reload_as(room, again)
                signals.reload = lambda: tasks.create_task(_reload(again, queues, variables, space))
                await ephemeral.delete_leftovers()
                await _start(frontends, config)
                announce(http.url)
                await asyncio.wait((running,))
            finally:
                signals.reload = None
                await space.drain()
                await asyncio.wait((running,))
                await _stop(frontends, None if opener.member or _ended_well(running) else http)
                trimming.cancel()
                holding.cancel()
                in_good_order = _ended_well(running)
    except BaseExceptionGroup as failed:
        cause = _first(failed)
        if not (isinstance(cause, Draining) and signals.asked):  # asked to stop before it served
            raise cause from failed
    finally:
        await _let_go(opener, space, room, in_good_order=in_good_order)
    _log.info("syncbrok.broker.stopped")


async def _let_go(opener: SpaceOpener, space: Space, room: WaitingRoom | FollowerFront, *, in_good_order: bool) -> None:
    """Not in the group of tasks, which cancels whatever awaits inside when one of them fails: a thread of the cluster
    that was not told of the end would go on, and with it a process that neither leads nor follows any more."""
    try:
        await opener.end(in_good_order=in_good_order)
    finally:
        space.close()
        room.close()


def _space_opener(config: Config, budgets: Budgets, certificates: Certificates) -> SpaceOpener:
    if config.cluster is None:
        return SingleNode(config, budgets)
    from syncbrok.cli.serve.cluster_member import ClusterMember  # noqa: PLC0415  it needs an extra

    return ClusterMember(config, budgets, lambda: certificates.as_client("http"))


def _exporter(config: Config) -> SpanExporter | None:
    if not config.traces.endpoint:
        return None
    try:
        from syncbrok.cli.serve.otlp_exporter import OtlpExporter  # noqa: PLC0415  it needs an extra
    except ImportError as missing:
        raise BadConfig(
            f"traces.endpoint is set, and {missing.name or 'a package'} is not installed: "
            "pip install 'syncbrok[otel]', or leave it out",
            key="traces.endpoint",
        ) from missing
    return OtlpExporter(config.traces)


async def _open(opener: SpaceOpener, signals: "_Signals") -> Space | None:
    signals.drain = opener.stop
    space = await opener.open()
    signals.drain = signals.reload = None
    return space


async def _drain(space: Space, opener: SpaceOpener) -> None:
    opener.stopping()
    await space.drain()


async def _stop(frontends: Sequence[Frontend], failed: HttpServer | None) -> None:
    """``failed``: the server that tells of a Space that has failed, where no other node tells of it. The next broker
    cannot: it is well."""
    if failed is not None:
        await failed.scraped_once_more()
    for frontend in reversed(frontends):
        await frontend.stop()


def _ended_well(running: "asyncio.Task[None]") -> bool:
    return running.done() and not running.cancelled() and running.exception() is None


def _frontends(
    space: Space,
    config: Config,
    options: HttpOptions,
    bounds: Bounds,
    certificates: Certificates,
    sockets: Sequence[socket.socket],
    of_log: Sequence[Route],
    exporter: SpanExporter | None,
) -> tuple[list[Frontend], HttpServer, EphemeralSubscribers]:
    """The ways in, and what they share. HTTP, which takes over ``sockets``, is the last: ready means all are there."""
    frontends: list[Frontend] = []
    traces = None if exporter is None else space.trace(config.traces.share, exporter)
    _deliver_to_webhooks(space, config, frontends, traces)
    consumers = _deliver_to_consumers(space, traces)
    declared, number_of = space.channels.subscribers, space.view.subscriber_number
    leases = Leases(declared, consumers, number_of)
    ephemeral = EphemeralSubscribers(declared, space.view, number_of, streams.NAME)
    streaming = streams.Streams(leases, consumers, ephemeral)
    created = tokens.routes(space.tokens.created_tokens)
    of_log = (*of_log, *log_readers.routes(space.log_readers))
    more = (*events.ROUTES, *page.routes(), *created, *pull.routes(leases), *streams.routes(streaming), *of_log)
    tls = certificates.of("http")
    http = HttpServer(space.channels, space.view, options, more, sockets, bounds, tls, space.lease)
    space.tokens.tokens_changed = http.set_created_tokens
    http.set_created_tokens(space.tokens.created_tokens())
    services = _services(space, consumers, bounds, config.http.content_bytes_max, config.queue_defaults)
    frontends += [*_tcp_frontends(config, certificates, services), http]
    return frontends, http, ephemeral


def _of_log(opener: SpaceOpener, signals: "_Signals") -> Sequence[Route]:
    if opener.member is None:
        return log_segments.routes(opener.files)
    return cluster.routes(opener.member, signals.stop)


def _waiting_room(
    config: Config, bounds: Bounds, opener: SpaceOpener, tls: ListenerTls | None
) -> WaitingRoom | FollowerFront:
    """The server that answers while there is no Space: of a single broker a waiting room, of a node of a cluster its
    front as a follower."""
    http = config.http
    if opener.member is not None:
        return FollowerFront(config, _http_options(config, opener.member), bounds, opener.member, tls)
    connections = bounds.connections(http.connections_max, http.connections_per_address_max)
    return WaitingRoom(http.host, http.port, Limits(http.headers_timeout_s, bounds, connections), tls)


def _deliver_to_webhooks(
    space: Space, config: Config, frontends: Sequence[Frontend], traces: TraceContexts | None
) -> None:
    """But not to the frontends of this process, which are all there once it serves."""
    own = OwnSockets(lambda: {port for frontend in frontends for port in frontend.ports})
    guard = AddressGuard(config.guard.allow, config.loopback_only, own)
    resolver = SystemResolver() if config.resolver.system else DnsResolver(config.resolver.servers)
    webhook = Webhook(
        guard,
        space.signing_keys,
        resolver=resolver,
        descriptors=space.budgets.descriptors,
        attempt_guard=space.attempt_guard,
        credentials=space.credentials,
        traces=traces,
    )
    space.handle("http", webhook)
    space.handle("https", webhook)


def _deliver_to_consumers(space: Space, traces: TraceContexts | None) -> Consumers:
    dispatcher = space.dispatcher
    consumers = Consumers(
        dispatcher.offer,
        dispatcher.awaited,
        space.budgets.leases,
        dispatcher.written,
        space.attempt_guard,
        traces,
        charge=space.budgets.shares.content.charge,
    )
    space.handle(CONSUMER_SCHEME, consumers)
    return consumers


def _services(
    space: Space, consumers: Consumers, bounds: Bounds, content_bytes_max: int, defaults: QueueSettings
) -> TcpServices:
    on_use = FirstUse(space.channels, space.view, defaults)
    number_of = space.view.subscriber_number
    return TcpServices(space.channels, space.view, on_use, consumers, number_of, bounds, content_bytes_max)


def existing(space: Space) -> Iterator[tuple[str, Sequence[str]]]:
    """Queues and their webhook subscribers; those of the TCP frontends come and go without the file."""
    after: str | None = None
    while True:
        queues, after = space.view.queues(after, limits.list_limit_max)
        for queue in queues:
            yield queue.name, list(_webhooks(space, queue.name))
        if after is None:
            return


def _webhooks(space: Space, queue: str) -> Iterator[str]:
    after: str | None = None
    while True:
        subscribers, after = space.view.subscribers(queue, after, limits.list_limit_max)
        yield from (one.id for one in subscribers if endpoint_scheme(one.settings.endpoint) in ("http", "https"))
        if after is None:
            return


async def _apply(queues: Queues, space: Space) -> None:
    """On a full disk the broker serves with what is declared: what it holds can be delivered, and that makes room."""
    try:
        await apply_queues(queues.file, space.channels, lambda: existing(space), queues.defaults)
    except LogFull as full:
        mend = "make room, then SIGHUP applies the file"
        _log.error("syncbrok.broker.queues_not_applied", extra={"detail": full.detail, "mend": mend})


async def _reload_as(room: WaitingRoom | FollowerFront, again: Reload) -> None:
    """Apply what was read again (SIGHUP) while there was no Space; nothing where nothing was."""
    if isinstance(room, FollowerFront) and room.reloaded:
        await again.run()


async def _reload(again: Reload, queues: Queues | None, variables: Mapping[str, str], space: Space) -> None:
    await again.run()
    if queues is not None:
        await reload_queues(queues.path, variables, space.channels, lambda: existing(space), queues.defaults)


def _tcp_frontends(config: Config, certificates: Certificates, services: TcpServices) -> list[Frontend]:
    return [
        TCP_FRONTENDS[name](services, settings, certificates.of(f"frontends.{name}"))
        for name, settings in config.frontends.on()
    ]


async def _start(frontends: Sequence[Frontend], config: Config) -> None:
    """Start the frontends in this order, those over TCP first. The log names each port of these beside the setting
    that asked for it: 0 asks for any that is free."""
    for frontend in frontends:
        await frontend.start()
    for (name, settings), frontend in zip(config.frontends.on(), frontends, strict=False):
        for key, port in zip(port_keys(settings), frontend.ports, strict=True):
            told = {"setting": f"frontends.{name}.{key}", "host": settings.host, "port": port}
            _log.info("syncbrok.broker.listens", extra=told)


def _http_options(config: Config, node: RelayingNode | None) -> HttpOptions:
    """``node``: this broker in its cluster."""
    http = config.http
    leader_url = "" if config.cluster is None else config.cluster.advertise
    return HttpOptions(
        host=http.host,
        port=http.port,
        sync=config.sync,
        tokens=http.tokens,
        may_be_open=may_be_open(config),
        hosts=http.hosts,
        leader_url=leader_url,
        node_name=urlsplit(leader_url).hostname or "" if http.tls is not None and http.tls.client_ca else "",
        machine_names=_machine_names(),
        node_metrics=bytes if node is None else node.metrics,
        is_peer=nobody if node is None else node.is_peer,
        peer_challenge=dict if node is None else node.peer_challenge,
        origins=http.origins,
        queue_defaults=config.queue_defaults,
        content_bytes_max=http.content_bytes_max,
        batch_lines_max=http.batch_lines_max,
        batch_bytes_max=http.batch_bytes_max,
        parents_max=http.parents_max,
        headers_timeout_s=http.headers_timeout_s,
        body_timeout_s=http.body_timeout_s,
        connections_max=http.connections_max,
        connections_per_address_max=http.connections_per_address_max,
    )


def _machine_names() -> tuple[str, ...]:
    """Names by which other machines may know this one, found without asking anybody's DNS."""
    name = socket.gethostname()
    return tuple({name, name.partition(".")[0]} - {""})


class _Signals:
    """``drain`` and ``reload`` are what SIGTERM or SIGINT and SIGHUP do. Until there is something to drain, and again
    for the second signal, the process ends at once: neither reading a log nor waiting for attempts needs an end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.drain: Callable[[], object] | None = None
        self.reload: Callable[[], object] | None = None
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._hangup)

    def stop(self) -> None:
        """As SIGTERM, where nobody has asked before."""
        if not self.asked:
            self._stop(signal.SIGTERM)

    def _stop(self, number: int) -> None:
        if self.drain is None or self.asked:
            _log.warning("syncbrok.broker.ended_at_once", extra={"signal": signal.Signals(number).name})
            os._exit(128 + number if self.asked else 0)
        self.asked = True
        _log.info("syncbrok.broker.stopping", extra={"signal": signal.Signals(number).name})
        self.drain()

    def _hangup(self) -> None:
        if self.reload is not None:
            self.reload()


def _first(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended the broker: a fatal one if there is any, else the first of all."""
    flat: list[BaseException] = []
    waiting: list[BaseException] = [failed]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
        else:
            flat.append(one)
    return next((one for one in flat if isinstance(one, Fatal)), flat[0])
