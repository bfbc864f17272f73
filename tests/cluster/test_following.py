"""What a node that follows learns from the stream besides the log: who leads, and when it may claim."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cluster.election import Due, Election, LeaseTimes, claim_of
from syncbrok.cluster.following import Following, roll_of
from syncbrok.cluster.leadership import Leadership
from syncbrok.cluster.replicated_journal import ReplicatedJournal
from syncbrok.cluster.stream_messages import AppendNames, EraseOrder, StreamKind, StreamMessage, log_name
from syncbrok.log.journal import FileJournal
from syncbrok.log.reading.recent import Batch, OpeningBatch
from syncbrok.log.segments.sealed_segments import sealed_segments
from syncbrok.model.errors import LogDiverged
from syncbrok.model.journal import PreparedBatch
from tests.support.cluster.memory_engine import MemoryEngine
from tests.support.cluster.replicated_places import CLAIM, IDENTITY, HeldReplicated, take_over
from tests.support.log.journal_places import HeldFiles
from tests.support.log.journals import append_snapshot, message, opened, publish

TIMES = LeaseTimes.of(2.0)


class Follower:
    """Node ``b``, behind a stream that the test writes."""

    def __init__(
        self, directory: Path, engine: MemoryEngine | None = None, kind: type[ReplicatedJournal] = HeldReplicated
    ) -> None:
        self.now_us = 0
        self.engine = engine or MemoryEngine(1)
        self.election = Election(TIMES, 1, lambda: 0.5, 0)
        names = AppendNames("b", "run")
        self.leadership = Leadership(self.engine, self.election, names, CLAIM, lambda: self.now_us)
        directory.mkdir(exist_ok=True)
        self.journal: Any = opened(kind, directory, identity=IDENTITY)
        self.following = Following(
            self.engine,
            self.journal,
            self.election,
            self.leadership,
            lambda _: None,
            lambda _: None,
            "b",
            lambda: self.now_us,
        )

    def told(self, kind: StreamKind, epoch: int = 1, **fields: str) -> None:
        """The leader appends this, and it is read."""
        place = len(self.engine.messages) + 1
        self.engine.messages.append(StreamMessage(kind, epoch, f"a.{place}", sequence=place, **fields))
        assert self.following.step()

    def claims_after(self, wait_us: int) -> bool:
        self.now_us += wait_us
        return self.election.due(self.now_us) is Due.CLAIM

    def reads(self, kind: StreamKind, data: bytes = b"", **fields: int) -> int:
        """As ``told``, of a stream of another journal's bytes; how many were taken."""
        place = len(self.engine.messages) + 1
        self.engine.messages.append(StreamMessage(kind, 1, f"a.{place}", data, sequence=place, **fields))
        return self.following.step()


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    made = Follower(tmp_path)
    yield made
    made.journal.close()


@pytest.mark.parametrize(("to", "soon"), [("", True), ("b", True), ("c", False)])
def test_a_yield_ends_the_waiting_of_whom_it_is_for(follower: Follower, to: str, soon: bool) -> None:
    """A planned switch takes no lease: whoever may claim does so within a beat, others wait as ever."""
    follower.told(StreamKind.CLAIM, node="a")
    follower.told(StreamKind.YIELD, node=to)
    assert follower.claims_after(TIMES.beat_us) is soon
    assert soon or follower.claims_after(TIMES.patience_us + TIMES.jitter_us)


def test_a_yield_is_over_with_the_claim_behind_it(follower: Follower) -> None:
    """CLUSTER, R4: a node that begins reads a planned switch of before and the claim that followed in one step. There
    is a leader again, whose lease must end first."""
    follower.told(StreamKind.CLAIM, node="a")
    for kind in (StreamKind.YIELD, StreamKind.CLAIM):
        place = len(follower.engine.messages) + 1
        follower.engine.messages.append(StreamMessage(kind, 1, f"c.{place}", sequence=place))
    assert follower.following.step() == 2
    assert not follower.claims_after(TIMES.lease_us)
    assert follower.claims_after(TIMES.patience_us + TIMES.jitter_us)


def test_a_leader_is_heard_until_a_claim_is_due(follower: Follower) -> None:
    """Readiness of a follower rests on it, whoever does not answer."""
    follower.told(StreamKind.CLAIM, node="a")
    assert follower.leadership.hears_leader()
    follower.now_us += TIMES.patience_us
    assert follower.leadership.hears_leader()
    follower.now_us += TIMES.jitter_us
    assert not follower.leadership.hears_leader()
    follower.told(StreamKind.BEAT)
    assert follower.leadership.hears_leader()


def test_it_has_caught_up_once_there_was_nothing_more(follower: Follower) -> None:
    """Before that the claim that was read last may be one of long ago."""
    follower.told(StreamKind.CLAIM, node="a")
    assert not follower.following.caught_up
    assert not follower.following.step()
    assert follower.following.caught_up


@pytest.mark.parametrize(
    ("messages", "soon"),
    [
        ([(StreamKind.BIRTH, 0)], True),
        ([(StreamKind.BIRTH, 0), (StreamKind.VAULT, 0)], True),
        ([(StreamKind.BIRTH, 0), (StreamKind.CLAIM, 0)], False),
        ([(StreamKind.BIRTH, 0), (StreamKind.CLAIM, 0), (StreamKind.BEAT, 2)], False),
    ],
    ids=["birth", "init", "claim", "beat"],
)
def test_nobody_is_waited_for_where_nobody_has_ever_led(
    follower: Follower, messages: list[tuple[StreamKind, int]], soon: bool
) -> None:
    """On a stream that only ``cluster init`` has written to, the first claim comes within a beat; one that was ever
    claimed has a lease that must end first, whoever reads it from where."""
    for kind, epoch in messages:
        follower.told(kind, epoch)
    assert not follower.following.step()
    assert follower.claims_after(TIMES.beat_us) is soon


def test_a_node_that_has_all_of_it_finds_out_too(follower: Follower) -> None:
    """One whose files became the stream begins behind it, and reads nothing new."""
    follower.engine.messages.append(StreamMessage(StreamKind.BIRTH, 0, "init.1", sequence=1))
    follower.leadership.last = 1
    assert not follower.following.step()
    assert follower.claims_after(TIMES.beat_us)


def test_what_one_server_lacks_is_asked_for_again(follower: Follower) -> None:
    """CLUSTER, failures: bits turned in the files of one server, which leaves out what it cannot read, or is behind. A
    node that took its word would write a log with a hole, or refuse for good as one that has more than the stream."""
    engine, following = follower.engine, follower.following
    for kind in (StreamKind.BIRTH, StreamKind.CLAIM, StreamKind.BEAT, StreamKind.BEAT):
        engine.messages.append(StreamMessage(kind, 1, "a.1", sequence=len(engine.messages) + 1))
    engine.lacking = range(2, 3)
    assert following.step() == 1
    with pytest.raises(OSError, match="lacks the message 2"):
        following.step()
    engine.lacking = range(0)
    assert following.step() == 3
    engine.purge(4)
    follower.leadership.last = 1
    assert following.step() == 1, "what was purged is nobody's lack"


@pytest.mark.parametrize("lacks", ["lacking", "lagging"])
def test_nobody_refuses_for_what_one_server_lacks(tmp_path: Path, lacks: str) -> None:
    """CLUSTER, failures: a node that begins looks for the place where its files end. It refuses for good where the
    stream has lost its end, and not where the server that it happens to ask has."""
    engine, directory = MemoryEngine(1), tmp_path / "leader"
    engine.messages = [StreamMessage(StreamKind.BIRTH, 0, "init", log=log_name(IDENTITY), generation=1, sequence=1)]
    directory.mkdir()
    journal = opened(HeldReplicated, directory, identity=IDENTITY)
    take_over(engine, journal)
    append_snapshot(journal)
    for _ in range(3):
        journal.append(journal.prepare([message(journal.id_key, journal.next_sequence)]))
    journal.close()
    behind = Follower(tmp_path / "behind", engine)
    while behind.following.step():
        pass
    whole = len(engine.messages)
    setattr(engine, lacks, range(2, whole + 1) if lacks == "lacking" else whole - 1)
    with pytest.raises(OSError, match="server of the engine"):
        behind.following.begin()
    setattr(engine, lacks, range(0) if lacks == "lacking" else 0)
    behind.following.begin()
    del engine.messages[3:]
    with pytest.raises(LogDiverged, match="the stream with"):
        behind.following.begin()
    behind.journal.close()


def test_a_purged_stream_begins_with_a_roll_that_says_all(tmp_path: Path) -> None:
    """CLUSTER, keep: birth is repeated in each roll, and so is who leads: of a stream that was purged up to one a node
    learns which log it is, and where its leader and the leader's listeners are, though birth and claim are gone. What
    stood before the roll (beats, say) goes with the rest, else the first message would say nothing."""
    engine, directory = MemoryEngine(1), tmp_path / "leader"
    engine.messages = [StreamMessage(StreamKind.BIRTH, 0, "init", log=log_name(IDENTITY), generation=1, sequence=1)]
    directory.mkdir()
    journal = opened(HeldReplicated, directory, identity=IDENTITY)
    leadership = take_over(engine, journal)
    append_snapshot(journal)
    journal.append(journal.prepare([message(journal.id_key, journal.next_sequence)]))
    leadership.append(StreamMessage(StreamKind.BEAT, 0, "", node="a"))
    append_snapshot(journal)
    roll = roll_of(engine, journal.sections()[-1].first)
    assert roll is not None
    assert engine.messages[roll.sequence - 2].kind is StreamKind.BEAT
    engine.purge(roll.sequence)
    journal.close()
    assert (roll.log, roll.generation) == (log_name(IDENTITY), 1)
    late = Follower(tmp_path / "late", engine)
    late.following.begin()
    assert late.following.step()
    assert late.following.claim == CLAIM._replace(n=roll.n, sequence=claim_of(roll.epoch))
    late.journal.close()


def test_a_new_leader_says_the_secrets_again(tmp_path: Path) -> None:
    """CLUSTER, vault: they follow each roll. A leader that dies right behind a roll leaves a stream which a purge up to
    there robs of them: who begins with an empty disk would sign nothing. Whoever leads next says them first."""
    engine = MemoryEngine(1)
    journal = opened(HeldReplicated, tmp_path, identity=IDENTITY)
    leadership = take_over(engine, journal)
    append_snapshot(journal)  # without them, as if it had died then
    journal.lead(leadership, b"sealed")
    assert [one.kind for one in engine.messages[-2:]] == [StreamKind.ROLL, StreamKind.VAULT]
    append_snapshot(journal)
    assert [(one.kind, one.body) for one in engine.messages[-1:]] == [(StreamKind.VAULT, b"sealed")]
    journal.close()


class HeldCopy(HeldFiles, ReplicatedJournal):
    """Of a node that follows; its disk is full when the test says so."""


class Leader(FileJournal):
    """Another node's files, and what it has appended."""

    appended: list[Batch | OpeningBatch]

    def append(self, batch: PreparedBatch, *, essential: bool = False) -> None:
        super().append(batch, essential=essential)
        assert isinstance(batch, Batch | OpeningBatch)
        self.appended.append(batch)


@pytest.mark.parametrize("full_at", range(4))
def test_without_room_it_stalls_and_goes_on(tmp_path: Path, full_at: int) -> None:
    """CLUSTER, "a follower's disk is full": it ends nothing, says that it does not follow, and reads no further; with
    room it writes what it had read, and its files are those of the leader, whichever record it was that found none, one
    that opens a section too."""
    (tmp_path / "leads").mkdir()
    leads: Leader = opened(Leader, tmp_path / "leads", identity=IDENTITY)
    leads.appended = []
    append_snapshot(leads)
    publish(leads, 3)
    publish(leads, 2)
    append_snapshot(leads)
    follower = Follower(tmp_path / "follows", kind=HeldCopy)
    for at, batch in enumerate(leads.appended):
        kind = StreamKind.BATCH if isinstance(batch, Batch) else StreamKind.ROLL
        told = {"first": batch.first, "last": batch.last, "batch": batch.number}
        follower.journal.full = at == full_at
        taken = follower.reads(kind, batch.data, **told)
        if at == full_at:
            assert (taken, follower.following.stalled, follower.leadership.last) == (0, True, at)
            assert not follower.following.step()
            follower.journal.full = False
            assert follower.following.step() == 1
        assert (follower.following.stalled, follower.leadership.last) == (False, at + 1)
    assert follower.journal.next_sequence == leads.next_sequence
    leads.close()
    follower.journal.close()
    found = [{path.name: path.read_bytes() for path in (tmp_path / one).glob("*.log")} for one in ("leads", "follows")]
    assert found[0]
    assert found[0] == found[1]


def test_who_has_no_room_claims_last(tmp_path: Path) -> None:
    """One that has read all there is, but could take no message, gives the others a lease to go first; one that has not
    read all never claims, for it does not know what they know."""
    follower = Follower(tmp_path, kind=HeldCopy)
    follower.told(StreamKind.CLAIM, node="a")
    follower.journal.full = True
    follower.now_us += TIMES.patience_us + TIMES.jitter_us
    assert not follower.following.claim_is_due()
    follower.now_us += TIMES.lease_us
    assert follower.following.claim_is_due()
    follower.journal.close()


def test_who_is_stalled_claims_nothing(tmp_path: Path) -> None:
    """However long nobody is heard."""
    (tmp_path / "leads").mkdir()
    leads: Leader = opened(Leader, tmp_path / "leads", identity=IDENTITY)
    leads.appended = []
    append_snapshot(leads)
    leads.close()
    follower = Follower(tmp_path / "follows", kind=HeldCopy)
    follower.journal.full = True
    (batch,) = leads.appended
    assert not follower.reads(StreamKind.ROLL, batch.data, first=batch.first, last=batch.last, batch=batch.number)
    follower.now_us += 100 * TIMES.lease_us
    assert follower.following.stalled
    assert not follower.following.claim_is_due()
    follower.journal.full = False
    assert follower.following.step() == 1
    assert follower.following.claim_is_due()
    follower.journal.close()


def test_a_roll_says_what_stands_before_it(tmp_path: Path) -> None:
    """CLUSTER, "replicas differ": the leader's checksum of the segment that ends travels with the roll. Who has another
    one seals nothing and stops."""
    engine, directory = MemoryEngine(1), tmp_path / "leader"
    directory.mkdir()
    journal = opened(HeldReplicated, directory, identity=IDENTITY)
    take_over(engine, journal)
    append_snapshot(journal)
    append_snapshot(journal)
    (sealed,) = sealed_segments(directory)
    journal.close()
    roll = next(one for one in reversed(engine.messages) if one.kind is StreamKind.ROLL)
    assert roll.sealed == sealed.checksum
    engine.messages[roll.sequence - 1] = roll._replace(sealed="0badcafe")
    late = Follower(tmp_path / "late", engine)
    late.following.begin()
    with pytest.raises(LogDiverged, match="the replicas differ"):
        late.following.step()
    assert [one.sealed for one in late.journal.sections()] == [False]
    late.journal.close()


def test_all_nodes_erase_the_same(tmp_path: Path) -> None:
    """RULES 32: the stream says up to which segment and fact, behind the roll, each later one, and again by a new
    leader, until retention has taken those segments. A follower that has checkpoints writes the same bytes; one that
    was stopped between reading it and doing it knows it at its next start; what came later stays as it is."""
    engine = MemoryEngine(1)
    (tmp_path / "a").mkdir()
    leader = opened(HeldReplicated, tmp_path / "a", identity=IDENTITY)
    leadership = take_over(engine, leader)
    append_snapshot(leader)
    (gone,) = publish(leader, content=b"secret")
    append_snapshot(leader)
    (kept,) = publish(leader, content=b"kept")
    through = leader.durable_sequence
    assert leader.erase_waits_for_snapshot([gone.sequence], through)
    append_snapshot(leader)
    order = EraseOrder(leader.sections()[-1].first, through)
    assert [one.kind for one in engine.messages[-2:]] == [StreamKind.ROLL, StreamKind.ERASE]
    assert not leader.erase_waits_for_snapshot([gone.sequence], through)
    assert leader.erased_before is None
    forgotten: list[int] = []
    leader.forget_erased = forgotten.append
    assert leader.erase([gone.sequence]) == 1
    assert (leader.erased_before, forgotten) == (order.first, [order.first])
    append_snapshot(leader)
    leader.lead(leadership)
    publish(leader)
    told = [EraseOrder(one.first, one.last) for one in engine.messages if one.kind is StreamKind.ERASE]
    assert told == [order] * 3
    for run in range(3):  # the second begins behind all of it
        follower = Follower(tmp_path / "b", engine)
        follower.following.begin()
        while follower.following.step():
            pass
        assert (follower.journal.order, follower.journal.erased_before) == (order, None)
        if run:
            follower.journal.to_erase = [gone.sequence]
        follower.journal.erase_as_ordered()
        assert follower.journal.erased_before == (order.first if run else None)
        follower.journal.close()
    sealed = [one.path.read_bytes() for one in leader.sections()[:-1]]
    assert [path.read_bytes() for path in sorted((tmp_path / "b").glob("0*.log"))[:-1]] == sealed
    assert not any(b"secret" in one for one in sealed)
    assert any(kept.content in one for one in sealed)
    while leader.first_sequence < order.first:
        leader.trim_oldest()
    before = len(engine.messages)
    append_snapshot(leader)
    assert [one.kind for one in engine.messages[before:]] == [StreamKind.ROLL]
    assert leader.erased_before == 0
    leader.close()
