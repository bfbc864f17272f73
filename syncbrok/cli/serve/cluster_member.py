"""The broker as one of several, where ``cluster:`` is configured: how its Space comes about, and what ends it besides.

It is imported only there: ``syncbrok.cluster`` needs packages of an extra.
"""

import asyncio
import itertools
import json
import logging
import os
import random
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, Final, Self
from urllib.parse import urlsplit

from syncbrok.cli.cluster.settings import engine_of
from syncbrok.cli.serve.cluster_metrics import ClusterFigures, exposition
from syncbrok.cli.serve.log_files import LogFiles
from syncbrok.cli.serve.single_node import RecoveryProgress, log_options
from syncbrok.cluster.election import Role
from syncbrok.cluster.engine import StreamState
from syncbrok.cluster.healing import Healing
from syncbrok.cluster.job_lease import JobLease, JobPhase
from syncbrok.cluster.leadership import NO_LEADERSHIP
from syncbrok.cluster.membership import ARCHIVES, Membership, NodeReport, archives_differ, as_of
from syncbrok.cluster.node import Node, NodeRun, NodeSettings, NodeStopped
from syncbrok.cluster.peer_signature import PeerSignature
from syncbrok.cluster.peers import Peers
from syncbrok.cluster.positions import Positions
from syncbrok.cluster.replicated_journal import ReplicatedJournal
from syncbrok.cluster.segment_care import SegmentCare
from syncbrok.cluster.stream_messages import StreamMessage
from syncbrok.config import ClusterConfig, Config, port_keys
from syncbrok.frontends.over_http.resources.log_archived import ArchivedSegments
from syncbrok.frontends.over_http.resources.log_segments import HeldSegment, ReadableLog
from syncbrok.frontends.relay import Upstream
from syncbrok.log.segments.options import PIPELINE
from syncbrok.log.segments.retention import line_of
from syncbrok.model import limits
from syncbrok.model.errors import BadConfig, BadSetting
from syncbrok.model.journal import QUORUM_FOLLOWER, LogIdentity
from syncbrok.model.tokens import Token
from syncbrok.space.budgets import Budgets
from syncbrok.space.clock import wall_us
from syncbrok.space.space import Space, SpaceOptions
from syncbrok.space.standby import Standby
from syncbrok.space.state.secret_store import put_secrets, stored_tokens
from syncbrok.space.state.secrets_file import decode_tokens

_log: Final = logging.getLogger(__name__)
_ERASES: Final = (
    "a cluster with cluster.keep: all erases nothing, since its stream forgets nothing; nothing has changed. With "
    "retention, or a size, it does"
)
_CANNOT_HOLD: Final = (
    "in a cluster no reader holds retention back, since a node that leads next would not know of it. What is to stay "
    "until it is read is archived: storage.archive: pipeline"
)
_TELL_EVERY_S: Final = 1.0
_GIVE_UP_S: Final = limits.drain_timeout_s + 10.0
"""after being asked to stop: an append that no quorum answers is given up, its fate unknown"""


class ClusterMember:
    """A ``SpaceOpener``. Made and used on the event loop. ``as_client``: the TLS with which other nodes are spoken
    to."""

    def __init__(
        self, config: Config, budgets: Budgets, as_client: Callable[[], ssl.SSLContext | None] = lambda: None
    ) -> None:
        assert config.cluster is not None
        self._config, self._cluster = config, config.cluster
        self._budgets = budgets
        self._as_client = as_client
        self._journal, self._in_files = log_options(config, budgets)
        self.engine = engine_of(self._cluster)
        self._membership = Membership(self.engine)
        self._signature = PeerSignature(self._cluster.key, self._cluster.space)
        self._peers = Peers(self._cluster.node, self._membership.nodes, self._signature, as_client)
        self.node = Node(
            self.engine,
            _settings(config, self._cluster),
            self._open_standby,
            self._healing,
            lambda: [one for one in self._membership.nodes() if one.node != self._cluster.node],
            self._put_secrets,
            NodeRun(secrets.token_hex(6), lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000, random.random),
        )
        self.files = LogFiles(config.storage.path, lambda: self.node.journal if self.node.sequence else None)
        self._positions: Positions | None = None
        if self._cluster.acknowledge == QUORUM_FOLLOWER:
            patience_s = 2 * self._cluster.lease_s
            self._positions = Positions(self.engine, self._cluster.node, lambda: self.node.generation, patience_s)
        self._syncs_always: dict[str, bool | None] = {}
        """of each server of the engine, by its URL, as it said lately; None: it did not"""
        self._stream: StreamState | None = None
        self._stream_lost = 0
        """messages of it that this node has and the stream had not, when it was asked last"""
        self._caught_up_s = time.monotonic()
        """when this node last had what every other one has"""
        self._created: Sequence[Token] = stored_tokens(config.storage.path)
        self.tokens_changed: Callable[[Sequence[Token]], None] = lambda _: None
        """See ``RelayingNode``."""
        self._loop: asyncio.AbstractEventLoop
        self._space: Space | None = None
        self._upstream_of: StreamMessage | None = None
        self._upstreams: Mapping[str, Upstream] = {}
        """of the claim ``_upstream_of``"""
        self._ended = threading.Event()
        self._news = threading.Event()
        """what the others are told of this node is not what it is now"""
        self._care: SegmentCare | None = None
        self._archiving: JobLease
        """since this node leads"""
        self._telling: asyncio.Task[None]
        self._caring: asyncio.Task[None]

    @property
    def member(self) -> Self:
        """See ``SpaceOpener``."""
        return self

    async def open(self) -> Space | None:
        """See ``SpaceOpener``: follow until this node leads. Raises what ``Node.until_leading`` does."""
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._ask_servers, name="syncbrok engine servers", daemon=True).start()
        self._telling = asyncio.create_task(asyncio.to_thread(self._tell), name="syncbrok membership")
        self._caring = asyncio.create_task(asyncio.to_thread(self._look_after), name="syncbrok segment care")
        try:
            standby = await asyncio.to_thread(self.node.until_leading)
        except NodeStopped:
            await self.end(in_good_order=False)
            return None
        except BaseException:
            await self.end(in_good_order=False)
            raise
        self._news.set()
        self._archiving = JobLease(time.monotonic)
        cluster = self._cluster
        options = SpaceOptions(
            self._journal,
            budgets=self._budgets,
            idle_after_s=self._config.groups.idle_after_s,
            erase_within_s=self._config.storage.erase_within_s,
            erases=_ERASES if cluster.keep == "all" else None,
            acknowledge=cluster.acknowledge,
            local_sync_s=0.0 if cluster.syncs_each else cluster.local_sync_s,
            copies=self._positions,
            cannot_hold=_CANNOT_HOLD,
        )
        self._space = Space(standby, options, self.node.leadership)
        return self._space

    def stop(self) -> None:
        """See ``SpaceOpener``."""
        self.node.stop()

    async def hold(self) -> None:
        """See ``SpaceOpener``: hold the lead. Raises ``Fenced`` once it is lost."""
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[None] = loop.create_future()

        def end(error: BaseException) -> None:
            if not lost.done():
                lost.set_exception(error)

        self.node.beat(lambda error: loop.call_soon_threadsafe(end, error))
        await lost

    def stopping(self) -> None:
        """See ``SpaceOpener``: an append that nobody answers shall not hold the end up for ever."""
        asyncio.get_running_loop().call_later(_GIVE_UP_S, self.node.stop)

    async def end(self, *, in_good_order: bool) -> None:
        """See ``SpaceOpener``. In good order another node may claim at once."""
        self._ended.set()
        self._news.set()
        await self._telling
        try:
            await asyncio.to_thread(self.node.end, give_way=in_good_order)
        finally:
            await self._caring  # last: it may wait for a peer that does not answer

    def created_tokens(self) -> Sequence[Token]:
        """See ``RelayingNode``."""
        return self._created

    def _put_secrets(self, data: bytes) -> None:
        """In the node's thread: another node has changed them."""
        asyncio.run(put_secrets(self._config.storage.path, data))
        self._loop.call_soon_threadsafe(self._take_tokens, decode_tokens(data))

    def _take_tokens(self, tokens: Sequence[Token]) -> None:
        self._created = tokens
        self.tokens_changed(tokens)

    # -- what it says -------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """``GET /v1/cluster``."""
        nodes = [self._of_now(one) for one in self._membership.nodes()]
        newest = self._newest()
        claim = self.node.claim
        epoch = self.node.leadership.epoch if claim is not None else 0
        leader = None
        if claim is not None and self.node.knows_leader:
            pid = next((one.pid for one in nodes if one.node == claim.node), None)
            leader = {"node": claim.node, "url": claim.url, "pid": pid}
        elif not self.node.caught_up:  # it has just begun: as the others say
            for one in nodes:
                if one.role == Role.LEADING.value and one.epoch >= epoch:
                    leader, epoch = {"node": one.node, "url": one.url, "pid": one.pid}, one.epoch
        return {
            "space": self._cluster.space,
            "epoch": epoch,
            "leader": leader,
            "nodes": [
                {
                    "node": one.node,
                    "url": one.url,
                    "pid": one.pid,
                    "role": one.role,
                    "sequence": one.sequence,
                    "lag_records": newest - one.sequence,
                    "archive": one.archive,
                }
                for one in as_of(epoch, nodes)
            ],
            "engine": [
                {"url": url, "alive": always is not None, "sync_always": bool(always)}
                for url, always in self._syncs_always.items()
            ],
        }

    def _of_now(self, told: NodeReport) -> NodeReport:
        """The report of a node; of this one as it is now, since what it told may be a second old."""
        return self._report() if told.node == self._cluster.node else told

    @property
    def leader_url(self) -> str:
        """See ``FollowerNode``."""
        claim = self.node.leader
        return claim.url if claim is not None else ""

    @property
    def ready(self) -> bool:
        """See ``FollowerNode``."""
        return self.node.hears_leader

    def upstream(self, listener: str = "http") -> Upstream | None:
        """See ``RelayingNode``."""
        claim = self.node.leader
        if claim is None:
            return None
        if self._upstream_of is not claim:
            self._upstream_of, self._upstreams = claim, _upstreams(claim)
        found = self._upstreams.get(listener)
        if found is None or listener != "http" or not claim.url.startswith("https:"):
            return found
        own = self._config.http.tls
        # Nodes that ask for certificates know each other by them: only then is it believed who the client is.
        return found._replace(tls=self._as_client() or _anybody(), proxied=own is not None and bool(own.client_ca))

    def is_peer(self, authorization: str, method: str, path: str, digest: str) -> bool:
        """See ``HttpOptions``."""
        return self._signature.is_node(authorization, method, path, digest)

    def peer_challenge(self) -> Mapping[str, str]:
        """See ``HttpOptions``."""
        return self._signature.challenge()

    def held_segments(self) -> list[HeldSegment]:
        """See ``SegmentHolder``."""
        return self.files.held_segments()

    def readable(self) -> ReadableLog | None:
        """See ``SegmentHolder``."""
        return self.files.readable()

    def erased_before(self) -> int | None:
        """See ``SegmentHolder``."""
        return self.node.journal.erased_before if self.node.sequence else None

    def held_segment(self, first: int) -> HeldSegment | None:
        """See ``SegmentHolder``."""
        return self.files.held_segment(first)

    def held_index(self, first: int) -> HeldSegment | None:
        """See ``SegmentHolder``."""
        return self.files.held_index(first)

    def archived(self) -> ArchivedSegments:
        """See ``ArchiveLeader``."""
        journal = self.node.journal
        return ArchivedSegments(journal.uuid.hex(), [line_of(one) for one in journal.archived.copies()])

    def note_archived(self, asked: ArchivedSegments) -> int:
        """See ``ArchiveLeader``."""
        if asked.job:
            self._archiving.take(asked.job, JobPhase(asked.phase))
        return self.node.note_archived(asked.log, asked.lines)

    def forget_archived(self) -> None:
        """See ``ArchiveLeader``."""
        self.node.forget_archived()

    def metrics(self) -> bytes:
        """See ``FollowerNode``."""
        node, newest = self.node, self._newest()
        epoch = node.leadership.epoch if node.claim is not None else 0
        told = node.leadership.statistics() if node.knows_lead else NO_LEADERSHIP
        figures = ClusterFigures(
            leads=node.role is Role.LEADING,
            stalled=node.stalled,
            epoch=epoch,
            lease_s=told.lease_s,
            append_s=told.append_s,
            appended=told.appended,
            found=told.found,
            not_found=told.not_found,
            claims_won=told.claims_won,
            claims_lost=told.claims_lost,
            fenced=node.fencings.count,
            withheld=0 if self._space is None else self._space.attempt_guard.withheld,
            unsynced_records=node.unsynced,
            confirmations_waiting=0 if self._space is None else self._space.confirmations.waiting,
            unconfirmed=0 if self._space is None else self._space.confirmations.unconfirmed,
            lag_records=newest - node.sequence,
            lag_s=time.monotonic() - self._caught_up_s if newest > node.sequence else 0.0,
            differing=0 if self._care is None else self._care.differing,
            mended=0 if self._care is None else self._care.mended,
            sync_always={url: always for url, always in self._syncs_always.items() if always is not None},
            stream_bytes=None if self._stream is None else self._stream.bytes,
            stream_lost=self._stream_lost,
        )
        return exposition(figures)

    def _newest(self) -> int:
        """The last record that any node has."""
        return max([self.node.sequence, *(one.sequence for one in self._membership.nodes())])

    def yields_to(self, node: str) -> None:
        """See ``ClusterNode``."""
        others = [one.node for one in self._membership.nodes() if one.node != self._cluster.node]
        if node and node not in others:
            what = f"expected a node that follows ({', '.join(others) or 'there is none now'}), not {node[:80]!r}"
            raise BadSetting(what, setting="to")
        self.node.yield_to = node

    def _tell(self) -> None:
        listening, differ = False, ""
        self._read_key()
        while True:
            self._news.wait(_TELL_EVERY_S)
            self._news.clear()  # first: whoever ends says so before there is news
            if self._ended.is_set():
                return
            self._read_key()
            with suppress(OSError, AssertionError):
                if not listening:
                    self._membership.listen()
                    if self._positions is not None:
                        self._positions.begin()
                    listening = True
                self._membership.announce(self._report())
                if self.node.sequence >= self._newest():
                    self._caught_up_s = time.monotonic()
                before, differ = differ, archives_differ(self._membership.nodes())
                if differ not in ("", before):
                    _log.error("syncbrok.cluster.archives_differ", extra={"detail": f"storage.archive is {differ}"})

    def _look_after(self) -> None:
        """Look after the segments of the journal that is open now, until the end: a node that is passed by opens
        another one."""
        node = self.node
        journal = None
        while not self._ended.wait(_TELL_EVERY_S):
            if not node.sequence:
                continue
            if self._care is None or journal is not node.journal:
                journal = node.journal
                self._care = SegmentCare(
                    self._config.storage.path,
                    self._healing(journal.identity, False),
                    self._peers,
                    journal,
                    lambda: node.role is not Role.LEADING,
                    node.refuse,
                    time.monotonic,
                    wall_us,
                )
            self._care.step()

    def _read_key(self) -> None:
        with suppress(BadConfig):  # the node says so where it needs the key
            self._signature.refresh()

    def _ask_servers(self) -> None:
        """In a thread that nobody waits for: a server whose host is gone takes its time not to answer."""
        servers = self.engine.servers
        for number, one in enumerate(itertools.cycle(servers), 1):  # all of them at once, then one a second
            always = self.engine.syncs_always(one)
            self._syncs_always = {**self._syncs_always, one.url: always}
            with suppress(OSError, AssertionError):  # it is not connected yet, or does not answer
                had = self.node.leadership.last if self.node.knows_lead else 0
                self._stream = self.engine.stream_state() or StreamState(
                    0, 0, 0
                )  # where there is none all of it is lost
                self._stream_lost = max(0, had - self._stream.last)
            if number >= len(servers) and self._ended.wait(_TELL_EVERY_S):
                return

    def _report(self) -> NodeReport:
        node = self.node
        epoch = node.leadership.epoch if node.role is Role.LEADING else 0
        role = "stalled" if node.stalled else node.role.value
        archive = self._config.storage.archive
        archives = ARCHIVES[0 if archive is None else 2 if archive == PIPELINE else 1]
        return NodeReport(
            self._cluster.node, self._cluster.advertise, os.getpid(), role, epoch, node.sequence, node.first, archives
        )

    def _healing(self, identity: LogIdentity, stream_is_cut: bool) -> Healing:
        return Healing(self._config.storage.path, identity, self._peers, wall_us, stream_is_cut=stream_is_cut)

    def _open_standby(self, identity: LogIdentity) -> Standby:
        opened = partial(ReplicatedJournal.open, in_files=self._in_files, identity=identity)
        return Standby.open(
            self._config.storage.path, self._journal, self._budgets, wall_us, RecoveryProgress(), opened
        )


def _settings(config: Config, cluster: ClusterConfig) -> NodeSettings:
    """Other listeners are reached at the host that is advertised for HTTP."""
    host = cluster.advertise.rpartition(":")[0].partition("://")[2]
    listeners = {
        f"{name}.{key}": f"{host}:{getattr(settings, key)}"
        for name, settings in config.frontends.on()
        for key in port_keys(settings)
    }
    storage = config.storage.path
    return NodeSettings(
        cluster.node,
        cluster.advertise,
        listeners,
        cluster.lease_s,
        cluster.key,
        storage,
        cluster.keep,
        cluster.local_sync_s,
        config.storage.erase_within_s,
    )


@cache
def _anybody() -> ssl.SSLContext:
    """For a leader with TLS, of a node without."""
    return ssl.create_default_context()


def _upstreams(claim: StreamMessage) -> Mapping[str, Upstream]:
    """The addresses of the listeners of whoever claimed, by their names; ``http`` is the one of its URL."""
    at = urlsplit(claim.url)
    found = {"http": f"{at.hostname}:{at.port or (443 if at.scheme == 'https' else 80)}"} | json.loads(
        claim.body or "{}"
    )
    upstreams = {}
    for name, address in found.items():
        host, _, port = address.rpartition(":")
        if port != "0":
            upstreams[name] = Upstream(claim.sequence, host.strip("[]"), int(port))
    return upstreams
