"""What a follower promises (``syncbrok.model.journal.Follower``): its log is byte for byte that of the leader, whose
batches, snapshots and drops it is given, and answers the same.

Broken by hand to see these fail: a seal with a time of its own; the segment's header with another identity; a batch
with a hole before it taken; what a record says of those before it not made true under ``interval``; a log that begins
late whose watermark does not say so.
"""

import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncbrok.log.format.codec import encode, encode_batch
from syncbrok.log.format.records import SegmentOpened, SegmentSealed
from syncbrok.log.journal import FileJournal
from syncbrok.log.offline.verify import Finding, verify
from syncbrok.log.reading.recent import OpeningBatch
from syncbrok.log.segments import segment, watermark
from syncbrok.log.segments.segment import ActiveSegment
from syncbrok.model.errors import LogDiverged, LogFull
from syncbrok.model.facts import FactOrRun, Messages, StoredMessage, SubscriberSet
from syncbrok.model.journal import Follower, PreparedBatch, Snapshot
from syncbrok.model.message import SubscriberSettings
from syncbrok.model.names import SubscriberId
from tests.log.test_journal_port import Story, questions_are_answered
from tests.support.log.journal_places import HeldFiles
from tests.support.log.journals import (
    START_US,
    Clock,
    append_snapshot,
    killed_before,
    message,
    opened,
    publish,
    records,
)


class Leader(HeldFiles):
    """Says in ``stream`` what it has appended and dropped."""

    stream: list[bytes | int]
    """bytes of a batch, or the first sequence that is left"""

    def append(self, batch: PreparedBatch, *, essential: bool = False) -> None:
        super().append(batch, essential=essential)
        self.stream.append(batch.data)

    def trim_oldest(self) -> None:
        super().trim_oldest()
        self.stream.append(self.first_sequence)


def lead(directory: Path, **changed: Any) -> Leader:
    directory.mkdir(exist_ok=True)
    journal: Leader = opened(Leader, directory, **changed)
    journal.stream = []
    return journal


def follow(directory: Path, leader: FileJournal, **changed: Any) -> HeldFiles:
    directory.mkdir(exist_ok=True)
    follower: HeldFiles = opened(HeldFiles, directory, Clock(5), leader.identity, **changed)
    return follower


def feed(follower: FileJournal, stream: list[bytes | int]) -> list[FactOrRun]:
    """The facts that it was told."""
    told: list[FactOrRun] = []
    for one in stream:
        if isinstance(one, int):
            follower.drop_before(one)
        else:
            batch, facts = follower.prepare_copy(one)
            follower.append(batch)
            told += facts
    return told


def files(journal: FileJournal) -> dict[str, bytes]:
    """Each segment by its name; of the active one without the room behind its records."""
    return {one.name: one.path.read_bytes()[: one.bytes] for one in journal.sections()}


def alone(facts: list[FactOrRun]) -> list[object]:
    """One by one, without what a run leaves out."""
    each = [one for fact in facts for one in (fact.messages() if isinstance(fact, Messages) else (fact,))]
    return [one._replace(time_us=0, content_type="") if isinstance(one, StoredMessage) else one for one in each]


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    journal = lead(tmp_path / "leader")
    append_snapshot(journal)
    yield journal
    journal.close()


@pytest.mark.parametrize("sync", ["always", "interval"])
@pytest.mark.parametrize("seed", range(2))
def test_a_copy_is_byte_for_byte_the_log_and_answers_the_same(tmp_path: Path, seed: int, sync: str) -> None:
    """Port, Follower: segments, sealed ones to their last byte, questions and facts, over batches, rolls and drops; and
    once more after it was opened again."""
    leader = lead(tmp_path / "leader", sync=sync)
    append_snapshot(leader)
    follower = follow(tmp_path / "follower", leader, sync=sync)
    assert isinstance(follower, Follower)
    chance = random.Random(seed)
    story = Story(leader, chance)
    story.go_on(4)
    first = leader.sections()[0]
    for own in [one for one in story.there() if one <= first.last]:
        if chance.random() < 0.3:
            story.carry(own)
    leader.trim_oldest()
    told = feed(follower, leader.stream)
    assert alone(told)[-50:] == alone(list(leader.facts_or_runs(told[-50].sequence - 1)))[-50:]
    for journal in (follower, leader):
        assert [met for met in verify(tmp_path / "follower") if isinstance(met, Finding)] == []
        assert files(follower) == files(leader)
        assert all(one.path.stat().st_size == one.bytes for one in journal.sections()[:-1])
        assert records(follower) == records(leader)
        assert list(follower.facts()) == list(leader.facts())
        assert list(follower.inherited()) == list(leader.inherited())
        assert follower.next_sequence == leader.next_sequence
        questions_are_answered(follower, story)
    follower.close()
    again = follow(tmp_path / "follower", leader, sync=sync)
    questions_are_answered(again, story)
    story.journal, leader.stream = leader, []
    story.go_on(5)
    feed(again, leader.stream)
    assert files(again) == files(leader)
    again.close()
    leader.close()


def test_it_goes_on_as_the_leader(tmp_path: Path, leader: Leader) -> None:
    """Port, Follower: who has followed appends the next batch itself, and the one before it follows now."""
    publish(leader, 3)
    follower = follow(tmp_path / "follower", leader)
    feed(follower, leader.stream)
    for batch in (follower.prepare([message(follower.id_key, follower.next_sequence)]), None):
        made = batch or follower.prepare_snapshot(nothing, 1 << 50)
        follower.append(made)
        feed(leader, [made.data])
    assert files(follower) == files(leader)
    publish(leader, 2)
    feed(follower, leader.stream[-1:])
    assert files(follower) == files(leader)
    follower.close()


def test_a_copy_too_vouches_at_once_for_what_older_versions_misread(tmp_path: Path, leader: Leader) -> None:
    """Log format, version 2: the copy's watermark covers such a record before a second has passed."""
    counts_not = SubscriberSettings("http://s/", counts=False)
    fact = SubscriberSet(leader.next_sequence, START_US, 1, 1, SubscriberId("s"), 1, counts_not)
    leader.append(leader.prepare([fact]))
    directory = tmp_path / "follower"
    directory.mkdir()
    follower = opened(HeldFiles, directory, lambda: START_US, leader.identity)  # no time goes by
    feed(follower, leader.stream)
    mark = watermark.read(directory)
    assert mark is not None
    assert mark.durable == fact.sequence
    follower.close()


def nothing(sequence: int, time_us: int) -> Snapshot:
    return Snapshot(sequence, time_us, (), (), (), ())


def broken(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def test_what_does_not_go_on_here_is_refused(tmp_path: Path, leader: Leader) -> None:
    """Port, LogDiverged: a batch damaged, cut short, with a hole before it, there already, of an old number, without an
    end, or of what no batch has; a segment that begins elsewhere; a drop of nothing. Nothing of it is written."""
    publish(leader, 3)
    publish(leader, 2)
    append_snapshot(leader)
    first, three, two, again = leader.stream
    assert isinstance(first, bytes)
    assert isinstance(three, bytes)
    assert isinstance(two, bytes)
    assert isinstance(again, bytes)
    follower = follow(tmp_path / "follower", leader)
    refused(follower, three, b"", broken(first), first + three)
    feed(follower, [first])
    following, key = follower.next_sequence, follower.id_key
    one = message(key, following)
    late = Snapshot(following + 2, one.time_us, (), (), (), ())
    refused(follower, broken(three), three[:-1], three + b"\0", two, first, three + two, again)
    refused(
        follower,
        encode(one, batch=2),
        encode(one, batch=9, ends_unit=False),
        encode(one, batch=9) + encode(message(key, following + 1), batch=10),
        encode(one, batch=9) + encode(message(key, following + 2), batch=9),
        encode(SegmentSealed(following, one.time_us, 1, 1), batch=9),
        encode(SegmentOpened.of(late._replace(sequence=following + 1), 0), batch=2),
        encode(SegmentOpened.of(late, 0), batch=9),
        encode_batch([one, SegmentOpened.of(late._replace(sequence=following + 1), 0)], batch=9, synced_through=0).data,
    )
    with pytest.raises(LogDiverged):
        follower.drop_before(following)
    feed(follower, [three, two, again])
    assert files(follower) == files(leader)
    follower.close()


def refused(follower: FileJournal, *batches: bytes) -> None:
    before = records(follower), follower.next_sequence
    for data in batches:
        with pytest.raises(LogDiverged):
            follower.prepare_copy(data)
    assert (records(follower), follower.next_sequence) == before


def test_another_log_is_not_followed(tmp_path: Path, leader: Leader) -> None:
    """Port, identity: a directory that holds another log is refused as it is opened, and left as it was."""
    other = lead(tmp_path / "other")
    append_snapshot(other)
    other.close()
    before = files(other)
    with pytest.raises(LogDiverged, match="another log"):
        follow(tmp_path / "other", leader)
    assert files(other) == before
    opened(FileJournal, tmp_path / "other").close()


def test_without_room_the_same_batch_goes_in_later(tmp_path: Path, leader: Leader) -> None:
    """Port, LogFull: as for a batch of its own."""
    publish(leader, 3)
    follower = follow(tmp_path / "follower", leader)
    feed(follower, leader.stream[:1])
    follower.full = True
    with pytest.raises(LogFull):
        feed(follower, leader.stream[1:])
    assert follower.next_sequence == 2
    follower.full = False
    feed(follower, leader.stream[1:])
    assert files(follower) == files(leader)
    follower.close()


class NoRoomBehindTheSeal(Leader):
    """The disk is full once the segment is sealed, when the test says so."""

    full_behind = False

    def _begin(self, batch: OpeningBatch) -> ActiveSegment:
        if self.full_behind:
            assert self._active is not None
            self._seal(self._active, batch.number - 1, batch.opened.time_us)
            raise LogFull("no room, says the test")
        return super()._begin(batch)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_seal_is_the_same_where_no_room_was_behind_it(tmp_path: Path, leader: Leader, restarted: bool) -> None:
    """Port, Follower: whether the leader's disk was full between seal and snapshot, or the copy's, or it was killed
    there; the same snapshot goes in later, or the next one."""
    first, second = (opened(NoRoomBehindTheSeal, tmp_path / name, identity=leader.identity) for name in "ab")
    first.stream, second.stream = [], []
    append_snapshot(first)
    publish(first, 3)
    feed(second, first.stream)
    second.stream.clear()
    first.full_behind = second.full_behind = True
    with pytest.raises(LogFull):
        append_snapshot(first)
    with pytest.raises(LogFull):
        publish(first)
    first.full_behind = False
    if restarted:
        first.close()
        first = opened(NoRoomBehindTheSeal, tmp_path / "a", identity=leader.identity)
        first.stream = []
    append_snapshot(first)
    publish(first, 2)
    with pytest.raises(LogFull):
        feed(second, first.stream[-2:])
    second.full_behind = False
    feed(second, first.stream[-2:])
    assert files(second) == files(first)
    first.close()
    second.close()


def test_a_copy_may_begin_late(tmp_path: Path, leader: Leader) -> None:
    """Port, Follower: an empty one begins with any snapshot, also if it is killed at any moment of that."""
    publish(leader, 3)
    at = len(leader.stream)
    append_snapshot(leader)
    publish(leader, 2)
    stream = leader.stream[at:]
    for call in itertools.count(1):
        directory = tmp_path / f"killed before {call}"
        killed = killed_before(call, begins(directory, leader, stream))
        follower = follow(directory, leader)
        if follower.next_sequence == 1:
            feed(follower, stream)
        elif follower.next_sequence < leader.next_sequence:
            feed(follower, stream[1:])
        assert follower.first_sequence == leader.sections()[-1].first
        assert list(files(follower).values()) == list(files(leader).values())[-1:]
        follower.close()
        follow(directory, leader).close()
        if not killed:
            return
        shutil.rmtree(directory)


def begins(directory: Path, leader: Leader, stream: list[bytes | int]) -> Callable[[], None]:
    def work() -> None:
        follower = follow(directory, leader)
        feed(follower, stream)
        follower.close()

    return work


def test_what_a_record_says_of_those_before_it_is_true_here(tmp_path: Path, leader: Leader) -> None:
    """Log format, synced_through: a leader that syncs each batch says so in each. Whoever copies them and syncs later
    has synced those before, so that a start after power loss takes no lost tail for damage."""
    follower = follow(tmp_path / "follower", leader, sync="interval")
    for _ in range(3):
        publish(leader, 2)
    for one in leader.stream:
        feed(follower, [one])
        assert follower.durable_sequence >= follower.next_sequence - 3
    assert follower.durable_sequence < follower.next_sequence - 1, "else this test shows nothing"
    follower.close()
    assert segment.read_segment_header(follower.sections()[0].path).uuid == leader.uuid
