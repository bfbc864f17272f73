"""What a start reads by columns is what it would read record by record, and leads to the same state.

Broken by hand to see these fail: a run that goes on over a message with a key; one that begins below ``after``; the
sidecar's offsets taken unlooked at; the last record of a gathered piece left out.
"""

import random
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.delivery.scheduler.snapshot import encoded
from syncbrok.log.format import stream
from syncbrok.log.format.codec import Corrupt, walk
from syncbrok.log.index import sidecar
from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.log.journal import FileJournal
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, read_seal
from syncbrok.model.errors import LogCorrupt
from syncbrok.model.facts import (
    Fact,
    FactOrRun,
    Messages,
    Outcome,
    Outcomes,
    QueueSet,
    Reason,
    Row,
    StoredMessage,
    SubscriberSet,
)
from syncbrok.model.limits import KIB
from syncbrok.model.message import ParentFailure, QueueSettings, Scope, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.space.state.recovery import recover
from syncbrok.space.state.state import State
from tests.support.disk import rot
from tests.support.log.journals import START_US, message, open_journal, publish, roll


def one_by_one(facts: Iterable[FactOrRun]) -> Iterator[Fact]:
    for fact in facts:
        if isinstance(fact, Messages):
            yield from fact.messages()
        else:
            yield fact


def told(facts: Iterable[FactOrRun]) -> list[Fact]:
    """The facts but for what a run does not tell: each message's time and content type, which no state is made of."""
    return [
        fact._replace(time_us=0, content_type="") if isinstance(fact, StoredMessage) else fact
        for fact in one_by_one(facts)
    ]


def whole(found: Iterable[FactOrRun | Corrupt]) -> Iterator[FactOrRun]:
    for fact in found:
        assert not isinstance(fact, Corrupt)
        yield fact


def declare(journal: FileJournal) -> None:
    """Queues 1 and 2; two subscribers of the first, one of the second."""
    for number in (1, 2):
        first = journal.next_sequence
        queue = QueueSet(first, START_US + first, number, QueueName(f"q{number}"), QueueSettings())
        journal.append(journal.prepare([queue]))
    for number, of in ((1, 1), (2, 1), (3, 2)):
        first = journal.next_sequence
        settings = SubscriberSettings(endpoint="http://127.0.0.1:1/")
        subscriber = SubscriberSet(first, START_US + first, number, of, SubscriberId(f"s{number}"), first, settings)
        journal.append(journal.prepare([subscriber]))


def some_traffic(journal: FileJournal, dice: random.Random, batches: int) -> None:
    """Bursts of bare messages in two queues, and everything that may stand between them."""
    known: list[StoredMessage] = []
    for _ in range(batches):
        first = journal.next_sequence
        if journal.wants_snapshot:
            roll(journal)
            continue
        if known and dice.random() < 0.3:
            journal.append(journal.prepare([outcomes(journal, dice.sample(known, min(len(known), 30)), dice)]))
            continue
        queue, scope = dice.choice(((1, Scope.ALL), (1, Scope.ALL), (2, Scope.ALL), (2, Scope.SAME)))
        batch: list[StoredMessage] = []
        for sequence in range(first, first + dice.choice((1, 15, 16, 17, 60, 300))):
            one = message(journal.id_key, sequence, queue=queue, scope=scope)
            if dice.random() < 0.02:
                one = one._replace(**unlike(dice, [*known, *batch], sequence))
            batch.append(one)
        journal.append(journal.prepare(batch))
        known += batch


def unlike(dice: random.Random, known: list[StoredMessage], sequence: int) -> dict[str, Any]:
    """What makes a message one of its own."""
    parent = dice.choice(known) if known else None
    kinds: list[dict[str, Any]] = [
        {"key": "k"},
        {"idempotency_key": f"i{sequence}", "fingerprint": bytes(16)},
        {"due_us": START_US + 10**12},
        {"expires_us": START_US + 10**12},
        {"headers": (("a", "b"),)},
        {"only": 1, "queue": 1},
        {"parent_failure": ParentFailure.HOLD},
    ]
    if parent is not None:
        kinds.append({"parents": (parent.id,), "root": parent.root, "depth": parent.depth + 1})
    return dice.choice(kinds)


def outcomes(journal: FileJournal, messages: list[StoredMessage], dice: random.Random) -> Outcomes:
    rows = []
    for one in messages:
        subscriber = 3 if one.queue == 2 else dice.choice((1, 2))
        ended = dice.choice((Outcome.DELIVERED, Outcome.DELIVERED, Outcome.FAILED, Outcome.DEAD))
        reason = Reason.NONE if ended is Outcome.DELIVERED else Reason.STATUS
        due_us = START_US + 10**11 if ended is Outcome.FAILED else 0
        rows.append(Row(one.sequence, subscriber, 1, ended, reason, 200, START_US, due_us, 0, 1))
    return Outcomes(journal.next_sequence, START_US + journal.next_sequence, tuple(rows))


@pytest.fixture
def journal(tmp_path: Path, seed: int) -> Iterator[FileJournal]:
    """Some segments of traffic, and one message more. The last segment has room: opened again it is not rolled, which
    would be a fact that was not there."""
    opened = open_journal(tmp_path / "log", segment_bytes=64 * KIB)
    declare(opened)
    dice = random.Random(seed)
    some_traffic(opened, dice, 60)
    while len(opened.sections()) <= 3:  # chance may have made it short
        some_traffic(opened, dice, 10)
    publish(opened)
    if opened.wants_snapshot:
        roll(opened)
    yield opened
    opened.close()


def test_by_columns_is_what_record_by_record_is(journal: FileJournal, seed: int) -> None:
    """From wherever it begins, in however large pieces the headers are looked at: the same facts in the same order."""
    dice = random.Random(seed)
    last = journal.next_sequence - 1
    for after in (0, last - 1, last, *(dice.randrange(last) for _ in range(10))):
        assert told(journal.facts_or_runs(after)) == told(journal.facts(after))
    for info in journal.sections():
        data = info.path.read_bytes()
        offsets, end = walk(data, SEGMENT_HEADER_BYTES, info.bytes)
        assert end == info.bytes
        expected = told(
            fact for fact in stream.facts(data[:end], SEGMENT_HEADER_BYTES) if not isinstance(fact, Corrupt)
        )
        for together in (1, 16, 100):
            assert told(whole(stream.facts_or_runs(data, offsets, 0, together))) == expected
    runs = [fact for fact in journal.facts_or_runs() if isinstance(fact, Messages)]
    assert sum(run.size for run in runs) > last // 2, "most of it are messages"
    assert any(run.extras for run in runs)
    assert any(len(run.stretches) > 1 for run in runs)
    assert all(run.contents == () for run in runs)


def test_the_same_state(journal: FileJournal) -> None:
    """DESIGN 3: recovery applies the facts that live traffic makes. By runs they make the same books, byte for byte."""
    slowly = State(Scheduler())
    for fact in journal.facts():
        slowly.apply((fact,))
    quickly, replayed = recover(journal, Scheduler)
    assert replayed == len(list(journal.facts()))
    assert quickly.through == slowly.through
    slowly.time_us = max(slowly.time_us, *(segment.last_time_us for segment in journal.sections()))
    assert encoded(quickly.save()) == encoded(slowly.save())
    for sequence in range(1, journal.next_sequence):
        found = journal.place_of(sequence)
        if found is not None:
            place = quickly.lineage.place(found[0], sequence)
            assert place is not None
            assert place == slowly.lineage.place(found[0], sequence)


def test_a_sidecar_is_not_trusted_over_its_segment(journal: FileJournal, tmp_path: Path) -> None:
    """DESIGN 4: one that was written wrong, though whole, costs time and nothing else."""
    expected = told(journal.facts())
    journal.close()
    info = journal.sections()[0]
    seal = read_seal(info.path)
    assert seal is not None
    sealed = sidecar.Sealed(journal.uuid, info.base, info.bytes, seal[1].crc)
    right = sidecar.read(info.path.parent, sealed)
    assert right is not None
    for wrong in (right.sparse + 92, right.sparse[:1], np.flip(right.sparse)):
        first_us, last_us = right.times_us
        tables = right._current().parts[0]
        index = SegmentIndex.restore(
            info.base,
            tables,
            right.positions,
            wrong,
            (),
            last=right.last,
            end=right.end,
            first_time_us=first_us,
            last_time_us=last_us,
        )
        path, written = sidecar.path_of(info.path.parent, info.base), sidecar.encode(index, sealed)
        path.unlink()  # the tables are pages of the file as it was: cut short in its place it would take them away
        path.write_bytes(written)
        again = open_journal(tmp_path / "log", segment_bytes=64 * KIB)
        assert told(again.facts_or_runs()) == expected
        again.close()


def test_damage_of_a_message_does_not_stop_a_start(journal: FileJournal, tmp_path: Path) -> None:
    """RULES 28: whatever byte of a message rots, the start goes on with what the log still tells of it, which is all
    but its content: the state is the same."""
    expected = told(journal.facts_or_runs())
    journal.close()
    path = sorted((tmp_path / "log").glob("*.log"))[1]
    whole = path.read_bytes()
    hit = [record for record in rot.records(path) if record.kind == rot.MESSAGE][3::97]
    places = [at for record in hit for at in (*range(record.at, record.content_at), record.content_at, record.end - 1)]
    for at in places[:: len(places) // 40]:
        rot.flip(path, at)
        again = open_journal(tmp_path / "log", segment_bytes=64 * KIB)
        assert told(again.facts_or_runs()) == expected, f"byte {at}"
        assert len(again.damages) == 1
        again.close()
        path.write_bytes(whole)


def test_damage_of_anything_else_is_refused(journal: FileJournal, tmp_path: Path) -> None:
    """RULES 28: without an outcome, a queue or a subscriber nobody can tell how things stood. The error names file and
    place; a reader that begins behind the damage, as from a checkpoint, does not meet it."""
    journal.close()
    sealed = sorted((tmp_path / "log").glob("*.log"))[:-1]
    path = max(sealed, key=lambda one: len({record.kind for record in rot.records(one)}))
    whole = path.read_bytes()
    others = [record for record in rot.records(path) if record.kind not in (rot.MESSAGE, rot.SEALED)]
    kinds = {record.kind: record for record in others}
    assert len(kinds) >= 2
    for record in kinds.values():
        for at in (record.at + 7, record.at + 30, record.end - 1):
            rot.flip(path, at)
            again = open_journal(tmp_path / "log", segment_bytes=64 * KIB)
            with pytest.raises(LogCorrupt, match=f"{path.name}, offset {record.at}, "):
                list(again.facts_or_runs())
            assert list(again.facts_or_runs(record.sequence))
            again.close()
            path.write_bytes(whole)


def test_a_header_that_is_beyond_knowing_is_of_no_kind(journal: FileJournal, tmp_path: Path) -> None:
    """RULES 28: where nobody can tell that it was a message, it may have been anything."""
    journal.close()
    path = sorted((tmp_path / "log").glob("*.log"))[1]
    both = pairwise(rot.records(path))
    record = next(one for one, following in both if one.kind == following.kind == rot.MESSAGE)
    for at in range(record.at, record.at + 8):
        rot.flip(path, at)
    again = open_journal(tmp_path / "log", segment_bytes=64 * KIB)
    with pytest.raises(LogCorrupt, match="unknown kind"):
        list(again.facts_or_runs())
    assert again.kind_of(record.sequence) == "lost"
    assert again.kind_of(record.sequence + 1) == "message"
    again.close()
