"""The life of one node: it follows until it leads, and leads until it is fenced, yields or stops.

    meet     connect, ask the engine how it runs, learn which log this is      (again and again while nobody answers)
    heal     get from peers what the files lack and the stream holds no more   (again too where it is passed by)
    follow   read the stream, write the files, keep the state and a checkpoint; quiet for too long: claim
    lead     what ``until_leading`` returns with: the state becomes a Space, a thread appends the beats
    end      the engine is let go of; in good order another node may claim at once

All of it blocks and runs in threads of its own. A fenced leader's process ends: it never follows again with a memory
that may hold a future that did not happen.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar

from syncbrok.cluster.archive_notes import named_copies
from syncbrok.cluster.election import Election, LeaseTimes, Role
from syncbrok.cluster.engine import Engine, EngineUnfit, StreamMissing
from syncbrok.cluster.fencings import Fencings
from syncbrok.cluster.following import Following, PassedBy, StreamTooShort, beginning_of, order_behind, roll_of
from syncbrok.cluster.generation import has_followed, remember
from syncbrok.cluster.healing import Healing, sealed_base
from syncbrok.cluster.leadership import Leadership
from syncbrok.cluster.membership import NodeReport
from syncbrok.cluster.positions import tell_position
from syncbrok.cluster.replicated_journal import ReplicatedJournal
from syncbrok.cluster.stream_messages import AppendNames, StreamKind, StreamMessage, identity_of
from syncbrok.cluster.stream_size import StreamErasure, StreamSize
from syncbrok.cluster.vault import Vault
from syncbrok.log.segments import files
from syncbrok.model import limits
from syncbrok.model.errors import Conflict, Fatal, LogCorrupt, LogDiverged, LogFailed
from syncbrok.model.facts import FactOrRun
from syncbrok.model.journal import Log, LogIdentity
from syncbrok.space.standby import Standby
from syncbrok.space.state.secret_store import FILE as SECRETS

T = TypeVar("T")
_log = logging.getLogger(__name__)

_AGAIN_S: Final = 0.5
_CERTAIN_S: Final = 15.0
"""longer than the engine needs to elect another leader. A server with damaged files that led for two seconds said of a
stream of 450 messages that it ended with 6"""
_POLL_S: Final = 0.03
"""from one look for what is new to the next. Each costs this node and the engine a millisecond of a processor, which
they may share with the leader: so it takes all that has come meanwhile, and not each message as it comes"""
_CHECKPOINT_S: Final = 300.0
_CUT_EVERY_S: Final = 1.0
_PEERS_S: Final = 10.0
"""for peers to be heard, and to have what this node lacks"""
_MARK_S: Final = 1.1 * limits.watermark_every_s
_PATIENT: Final = 0.4
"""the share of the time for erasing in which the stream waits for a second node; the first half is over then"""
_TELLS: Final = 5
"""times in a lease, whatever is new"""


class NodeRefused(Fatal):
    """The node cannot take part: its log, its engine or its key is not what the others have. Starting it again does
    not help."""

    slug = "node-refused"
    exit_code = 78


class NodeStopped(Fatal):
    """The node was asked to stop before it led."""

    slug = "node-stopped"
    exit_code = 0


class NodeSettings(NamedTuple):
    """``url``: where clients and other nodes reach this node. ``listeners``: its other listeners (host:port) by their
    names. ``key``: the file of the cluster's key. ``storage``: the directory of the log. ``keep``: of the stream, what
    retention has left, ``all``, or so many bytes. ``local_sync_s``: how often the files of a follower are fsynced where
    not at each commit. ``erase_within_s``: after so long what was erased is off the disks."""

    node: str
    url: str
    listeners: Mapping[str, str]
    lease_s: float
    key: Path
    storage: Path
    keep: Literal["retention", "all"] | int = "retention"
    local_sync_s: float = 1.0
    erase_within_s: float = limits.erase_within_default_s


OpenStandby = Callable[[LogIdentity], Standby]
"""open the log of this identity, and with it a ``ReplicatedJournal``"""
Heal = Callable[[LogIdentity, bool], Healing]
"""put the files of this log right before it is opened; whether its stream is cut, see ``Healing``"""


class NodeRun(NamedTuple):
    """``name`` is of this run of the process and of no other. ``clock_us`` is CLOCK_BOOTTIME, ``chance`` gives numbers
    from 0 up to 1. ``again_s``: from one question to the engine to the next, where it does not answer. ``certain_s``:
    for so long it must say that it lacks something before it is believed."""

    name: str
    clock_us: Callable[[], int]
    chance: Callable[[], float]
    again_s: float = _AGAIN_S
    certain_s: float = _CERTAIN_S


class Node:
    """``others``: the other nodes that were heard lately. ``secrets_changed`` is told what the file of secrets holds
    from now on, as another node has written it."""

    leadership: Leadership
    journal: ReplicatedJournal

    def __init__(
        self,
        engine: Engine,
        settings: NodeSettings,
        open_standby: OpenStandby,
        heal: Heal,
        others: Callable[[], Sequence[NodeReport]],
        secrets_changed: Callable[[bytes], None],
        run: NodeRun,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._open_standby = open_standby
        self._healing = heal
        self._passed_by = -1
        """what the stream began with when it had passed this node by"""
        self._others = others
        self._secrets_changed = secrets_changed
        self._names = AppendNames(settings.node, run.name)
        self._clock_us = run.clock_us
        self._chance = run.chance
        self._again_s, self._certain_s = run.again_s, run.certain_s
        self._stop = threading.Event()
        self.fencings = Fencings(settings.storage)
        self._following: Following | None = None
        self._beating: threading.Thread | None = None
        self._cutting: threading.Thread | None = None
        self._failed: Callable[[BaseException], object] = lambda _: None
        self._failure: NodeRefused | None = None
        self._vault: Vault
        self._sealed = b""
        """the secrets as they stand in the stream"""
        self.generation = 0
        """of the stream, once it is known"""
        self._told = 0
        self._tell_due_s = 0.0
        self._erase_due_s = 0.0
        self._forgetting: StreamErasure
        self.yield_to = ""
        """who goes first once this node has given way; empty: whoever is quickest"""

    # -- what it says, from any thread --------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """The role of now; ``FOLLOWING`` too while it does not know yet what to follow."""
        return self.leadership.role if self._following is not None else Role.FOLLOWING

    @property
    def knows_lead(self) -> bool:
        """Whether ``leadership`` is there: this node knows what to follow."""
        return self._following is not None

    @property
    def claim(self) -> StreamMessage | None:
        """The claim of the leader, as far as this node knows."""
        if self._following is None:
            return None
        return self._claim if self.role is Role.LEADING else self._following.claim

    @property
    def leader(self) -> StreamMessage | None:
        """The claim of another node that leads. None while this one leads, or led last as far as it knows; and until it
        has read all there was when it began: two nodes that just begin, each believing that the other leads, would send
        a client to and fro."""
        following = self._following
        if following is None or not following.caught_up or self.role not in (Role.FOLLOWING, Role.CLAIMING):
            return None
        claim = following.claim
        return None if claim is None or claim.node == self._settings.node else claim

    @property
    def hears_leader(self) -> bool:
        """Whether it follows a leader that was heard lately."""
        return self.leader is not None and not self.stalled and self.leadership.hears_leader()

    @property
    def caught_up(self) -> bool:
        """Whether it has read all there was when it began; before that it cannot say who leads."""
        return self._following is not None and self._following.caught_up

    @property
    def stalled(self) -> bool:
        """Whether it does not follow for want of room on its disk."""
        return self._following is not None and self.role is Role.FOLLOWING and self._following.stalled

    @property
    def knows_leader(self) -> bool:
        """Whether somebody leads now, as far as it can tell: another one that was heard lately, or this one, while its
        lease holds."""
        return self.hears_leader or (self.role is Role.LEADING and self.leadership.holds())

    @property
    def first(self) -> int:
        """The first of the log that this node has; 0 while its log is not open, or empty."""
        return self.journal.first_sequence if self.sequence else 0

    @property
    def sequence(self) -> int:
        """The last of the log that this node has; 0 while its log is not open."""
        return self.journal.next_sequence - 1 if self._following is not None else 0

    @property
    def unsynced(self) -> int:
        """Records in its files that are not fsynced."""
        return self.journal.next_sequence - 1 - self.journal.synced_sequence if self._following is not None else 0

    # -- until it leads -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """From any thread: ``until_leading`` raises ``NodeStopped`` soon."""
        self._stop.set()
        if self._following is not None:
            self.leadership.give_up()

    def refuse(self, why: str) -> None:
        """From any thread: this node may take part no longer. ``until_leading`` raises ``NodeRefused`` soon, or whoever
        watches the beats is told."""
        self._failure = NodeRefused(why)
        if self._beating is None:
            self.stop()
        else:
            self._failed(self._failure)

    def until_leading(self) -> Standby:
        """Follow until this node leads; the state of then, ready for a Space. Raises ``NodeRefused``, ``NodeStopped``,
        and what opening and following the log raises."""
        try:
            standby = None
            while standby is None:
                standby = self._until_claimed(self._meet())
        except LogDiverged as diverged:
            raise NodeRefused(diverged.detail) from diverged
        standby.ready(time.perf_counter())
        standby.secret_store.replicate = self._put_secrets
        return standby

    def _until_claimed(self, birth: StreamMessage) -> Standby | None:
        """The leadership of this node from now on; None where the stream has passed this node by, which begins again
        then."""
        self.generation = birth.generation
        identity = identity_of(birth.log)
        self._vault = Vault.open(self._settings.key, identity.uuid)
        beginning = self._patiently(lambda: beginning_of(self._engine))
        standby = self._open(identity, birth, beginning)
        try:
            remember(self._settings.storage, birth.generation)
            if self._begins_late(standby, beginning):
                standby = self._copied(standby, birth, identity)
            self._follow(standby, birth)
            self.journal.lead(self.leadership, self._sealed_now())
            if self._settings.keep != "all":
                self.journal.trimmed = self._purge
                self.journal.forget_erased = self._forgetting.forget
        except PassedBy as passed:
            standby.close()
            if beginning == self._passed_by:  # and what the peers have does not go on there either
                raise NodeRefused(f"{passed}; what lies between is nowhere to be had") from passed
            self._passed_by, self._following = beginning, None
            _log.warning("syncbrok.cluster.passed_by", extra={"detail": str(passed)})
            return None
        except BaseException:
            standby.close()
            raise
        return standby

    def _meet(self) -> StreamMessage:
        """Connect, and see to what must hold before a log is opened; the message that says which one it is."""
        try:
            return self._patiently(self._try_to_meet)
        except EngineUnfit as unfit:
            raise NodeRefused(unfit.detail) from unfit

    def _try_to_meet(self) -> StreamMessage:
        try:
            self._engine.connect()
            self._engine.verify()
            return self._birth()
        except StreamMissing as missing:
            if not has_followed(self._settings.storage):
                raise
            lost = f"the engine has lost the stream of the log in {self._settings.storage}, or is another one"
            raise StreamMissing(f"{lost}: nothing was changed; see syncbrok cluster reseed --help") from missing

    def _birth(self) -> StreamMessage:
        first = self._engine.first()
        if first is None or not first.log:
            what = "the stream of this space does not begin with the birth of a log"
            raise StreamMissing(f"{what}; `syncbrok cluster init` writes one, nothing else does")
        return first

    # -- its files ----------------------------------------------------------------------------------------------------

    def _open(self, identity: LogIdentity, birth: StreamMessage, beginning: int) -> Standby:
        """The log with all that peers have of what its files lacked. Raises ``NodeRefused`` where it cannot go on."""
        is_cut = birth.kind is StreamKind.ROLL and self._is_cut(birth)
        healing = self._healing(identity, is_cut)
        self._heal(healing, beginning)
        fetched: set[int] = set()
        while True:
            try:
                return self._open_standby(identity)
            except LogCorrupt as damaged:
                first = sealed_base(damaged)
                if first is None or first in fetched or not self._refetched(healing, first):
                    raise
                fetched.add(first)

    def _is_cut(self, roll: StreamMessage) -> bool:
        """Whether what stood in the stream before this roll is part of the log."""
        if isinstance(self._settings.keep, int):
            return True
        order = self._patiently(lambda: order_behind(self._engine, roll.sequence))
        return order is not None and order.first == roll.first

    def _heal(self, healing: Healing, beginning: int) -> None:
        """Until nothing is missing. Damage that no peer mends is left to the rules of damage; a log that does not reach
        the stream waits for a peer to be heard, and is refused where those that are do not have what it lacks."""
        began_s, heard_s, told = time.monotonic(), 0.0, ""
        while (lack := self._disk(lambda: healing.heal(beginning))) is not None:
            what = lack.describe()
            if what != told:
                told = what
                _log.warning("syncbrok.cluster.lacks_segments", extra={"detail": what})
            now_s = time.monotonic()
            heard_s = heard_s or (now_s if lack.peers else 0.0)
            if lack.fatal and heard_s and now_s - heard_s > _PEERS_S:
                raise NodeRefused(f"{what}. Start the node that has them, then this one")
            if not lack.fatal and now_s - (heard_s or began_s) > _PEERS_S:
                return
            self._pause(_AGAIN_S)

    def _refetched(self, healing: Healing, first: int) -> bool:
        """Fetch the segment again that cannot be read here; False where no peer has it in time."""
        until_s = time.monotonic() + _PEERS_S
        while time.monotonic() < until_s:
            if self._disk(lambda: healing.refetch(first)):
                return True
            self._pause(_AGAIN_S)
        return False

    def _disk(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as problem:
            raise files.opening_problem(problem, self._settings.storage) from problem

    def _begins_late(self, standby: Standby, beginning: int) -> bool:
        """Whether the files may not tell the whole state yet: the log begins somewhere in its middle, and messages of
        before that were carried to a place that is not read yet, while outcomes on the way speak of them."""
        journal = standby.journal
        late = journal.first_sequence > 1 if journal.sections() else beginning > 1
        return late and journal.load_checkpoint() is None

    def _copied(self, standby: Standby, birth: StreamMessage, identity: LogIdentity) -> Standby:
        """Read all that the stream has into the files alone; then the state is recovered from them as at any start."""
        self._begin_to_follow(standby.journal, lambda _: None, birth)
        assert self._following is not None
        while not self._following.caught_up:
            if not self._patiently(self._following.step):
                self._pause(_POLL_S)  # there may be no room for what was read
        self._following = None
        standby.close()
        return self._open_standby(identity)

    def _begin_to_follow(
        self, journal: Log, apply: Callable[[Sequence[FactOrRun]], None], birth: StreamMessage
    ) -> None:
        assert isinstance(journal, ReplicatedJournal)
        self.journal = journal
        patience_s = self._settings.erase_within_s * _PATIENT
        self._forgetting = StreamErasure(self._engine, self._others, patience_s, time.monotonic)
        journal.order_heard = self._forgetting.note_wanted
        election = Election(LeaseTimes.of(self._settings.lease_s), birth.generation, self._chance, self._clock_us())
        noted = self.fencings.note
        self.leadership = Leadership(self._engine, election, self._names, self._claim, self._clock_us, noted)
        self._following = Following(
            self._engine,
            self.journal,
            election,
            self.leadership,
            apply,
            self._take_vault,
            self._settings.node,
            self._clock_us,
        )
        self._patiently(self._following.begin)

    # -- following ----------------------------------------------------------------------------------------------------

    def _follow(self, standby: Standby, birth: StreamMessage) -> None:
        self._begin_to_follow(standby.journal, standby.apply, birth)
        following = self._following
        assert following is not None
        _log.info("syncbrok.cluster.follows", extra={"sequence": self.sequence})
        checkpoint_due_s = time.monotonic() + _CHECKPOINT_S
        sync_due_s = 0.0
        while True:
            looked_s = time.monotonic()
            found = self._patiently(following.step)
            self._tell_position()
            if following.caught_up and time.monotonic() >= self._erase_due_s:
                self._begin_to_erase(standby)
            if time.monotonic() >= sync_due_s:
                self.journal.sync()  # where each commit was one it saves the watermark
                sync_due_s = time.monotonic() + (self._settings.local_sync_s or _MARK_S)
            if found:  # a checkpoint, and a claim above all, wait until everything was read
                if following.caught_up:
                    self._pause(max(0.0, looked_s + _POLL_S - time.monotonic()))
                continue
            if time.monotonic() > checkpoint_due_s:
                standby.save()
                checkpoint_due_s = time.monotonic() + _CHECKPOINT_S
            elif self.sequence >= birth.last and following.claim_is_due():
                if self.leadership.claim():
                    self.journal.sync()  # whoever leads and has nothing to write would not
                    _log.info("syncbrok.cluster.leads", extra={"epoch": self.leadership.epoch})
                    return
            else:
                self._pause(_POLL_S)

    def _begin_to_erase(self, standby: Standby) -> None:
        """Where the stream says so, another thread writes segments anew (``SegmentCare``), once no checkpoint ends with
        a record of theirs, or has what is to go."""
        self._erase_due_s = time.monotonic() + _MARK_S
        order = self.journal.order
        if order is not None and self.journal.to_erase is None and standby.save_both():
            self.journal.to_erase = standby.state.erasures.messages_through(order.through)

    def _tell_position(self) -> None:
        """How far the files are, whenever that is new, and now and then: it may get lost."""
        now_s = time.monotonic()
        if self.sequence == self._told and now_s < self._tell_due_s:
            return
        with suppress(OSError):
            tell_position(self._engine, self._settings.node, self.generation, self.sequence)
            self._told, self._tell_due_s = self.sequence, now_s + self._settings.lease_s / _TELLS

    def _patiently(self, ask: Callable[[], T]) -> T:
        """The answer of the engine, which is asked again and again while it does not. That it lacks what it should have
        is raised once it has said nothing else for a while."""
        told = False
        doubted_s = 0.0
        while True:
            try:
                return ask()
            except OSError as silent:
                if not told:
                    told = True
                    _log.warning("syncbrok.cluster.engine_silent", extra={"detail": str(silent)})
            except (StreamMissing, StreamTooShort) as lacking:
                now_s = time.monotonic()
                if not doubted_s:
                    doubted_s = now_s
                    _log.warning("syncbrok.cluster.engine_doubted", extra={"detail": lacking.detail})
                if now_s - doubted_s > self._certain_s:
                    raise
            self._pause(self._again_s)

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise self._failure or NodeStopped("asked to stop before this node led")

    @property
    def _claim(self) -> StreamMessage:
        settings = self._settings
        listeners = json.dumps(dict(settings.listeners)).encode()
        return StreamMessage(StreamKind.CLAIM, 0, "", listeners, node=settings.node, url=settings.url)

    # -- secrets ------------------------------------------------------------------------------------------------------

    def _take_vault(self, sealed: bytes) -> None:
        self._sealed = sealed
        self._secrets_changed(self._vault.unseal(sealed))

    def _sealed_now(self) -> bytes:
        """The secrets for the stream, sealed with the key of now: once this node leads. A node whose files lacked
        nothing when it began has read none in the stream, and has them in its own file."""
        if self._sealed:
            if self._vault.is_old(self._sealed):
                self._sealed = self._vault.seal(self._vault.unseal(self._sealed))
        else:
            with suppress(FileNotFoundError):
                self._sealed = self._vault.seal((self._settings.storage / SECRETS).read_bytes())
        return self._sealed

    def _put_secrets(self, data: bytes) -> None:
        """See ``SecretStore.replicate``."""
        sealed = self._vault.seal(data)
        self.leadership.append(StreamMessage(StreamKind.VAULT, 0, "", sealed))
        self._sealed = self.journal.vault = sealed

    def _purge(self, first: int) -> None:
        """Forget what the stream has of before the record ``first`` of the log, which a segment begins with. The stream
        begins with that roll then, and with nothing else: a node learns from its first message which log it is. Where
        the engine does not answer the next time does it."""
        try:
            roll = roll_of(self._engine, first)
            if roll is not None:
                self._engine.purge(roll.sequence)
        except OSError as silent:
            _log.warning("syncbrok.cluster.not_purged", extra={"detail": str(silent)})

    # -- while it leads -----------------------------------------------------------------------------------------------

    def beat(self, failed: Callable[[BaseException], object]) -> None:
        """Append beats in a thread until ``end``; ``failed`` is told there what has ended it before that."""
        self._failed = failed
        self._beating = threading.Thread(target=self._beat, args=(failed,), name="syncbrok beat", daemon=True)
        self._beating.start()
        if isinstance(self._settings.keep, int):
            size = StreamSize(self._engine, self._settings.keep, self.journal.sections, self._others)
            self._cutting = threading.Thread(target=self._cut, args=(size,), name="syncbrok stream size", daemon=True)
            self._cutting.start()

    def _cut(self, size: StreamSize) -> None:
        """A thread of its own: the engine may take its time to answer, and beats do not wait for it."""
        while not self._stop.wait(_CUT_EVERY_S):
            try:
                forgotten = size.keep()
            except OSError as silent:
                _log.warning("syncbrok.cluster.not_purged", extra={"detail": str(silent)})
            else:
                if forgotten:
                    _log.info("syncbrok.cluster.purged", extra={"segments": forgotten})

    def _beat(self, failed: Callable[[BaseException], object]) -> None:
        every_s = self._settings.lease_s / 20
        try:
            while not self._stop.wait(every_s):
                self.leadership.beat()
            if self._failure is not None:  # it was refused in the moment in which it began to lead
                failed(self._failure)
        except BaseException as error:  # noqa: BLE001 (whoever watches is told, whatever it is)
            failed(error)

    def note_archived(self, log: str, lines: Sequence[str]) -> int:
        """Note for all nodes what of the ``log`` (its uuid) is archived; how many of the lines are new. From any
        thread; it waits for a quorum. Raises as ``named_copies`` and ``ArchiveNotes.add``, and ``Conflict`` for another
        log."""
        own = self.journal.uuid.hex()
        if log != own:
            raise Conflict(f"this is the log {own}, and not {log[:40]!r}")
        copies = named_copies(lines, self.journal.sections())
        return self._appending(lambda: self.journal.archived.add(copies))

    def forget_archived(self) -> None:
        """Take back, on all nodes, all that was noted as archived. Raises as ``ArchiveNotes.forget``."""
        self._appending(self.journal.archived.forget)

    def _appending(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except LogFailed as failed:  # nobody else hears of it where nothing is published
            self._failed(failed)
            raise

    def end(self, *, give_way: bool) -> None:
        """Once the log is closed. ``give_way``: it ended in good order, and no other node need wait for its lease to
        end. Raises as ``Leadership.append``."""
        self._stop.set()
        for one in (self._beating, self._cutting):
            if one is not None:
                one.join()
        try:
            if give_way and self.role is Role.LEADING:
                self.leadership.give_way(self.yield_to)
        finally:
            self._engine.close()
