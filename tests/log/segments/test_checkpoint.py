"""A checkpoint is believed only about the log it was made of."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from syncbrok.delivery.handler import AttemptResult
from syncbrok.delivery.scheduler.content_budget import ContentBudget
from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.delivery.scheduler.shares import Shares
from syncbrok.log.segments import checkpoint
from syncbrok.model.budget import Budget
from syncbrok.model.facts import Attributes, Messages, Outcomes, QueueSet, Reason, SubscriberSet
from syncbrok.model.message import ParentFailure, QueueSettings, Scope, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from tests.support.log.journals import START_US, open_journal, publish

UUID = bytes(range(16))
PARTS = {"scheduler": b"state" * 1_000, "queues": b"", "a-name-of-thirty-two-characters-": b"\0\xff"}


def plenty() -> Shares:
    """For tests that take all there is at once."""
    content = ContentBudget(Budget("content", 1 << 40))
    return Shares(Budget("attempts", 1 << 40), Budget("leases", 1 << 40), content, set())


def crc_of(known: dict[int, int]) -> Callable[[int], int | None]:
    return known.get


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    """Parts come back byte for byte, with the sequence they are applied through."""
    assert checkpoint.load(tmp_path, UUID, crc_of({})) is None
    checkpoint.save(tmp_path, UUID, 7, 0xABCD, PARTS)
    assert checkpoint.load(tmp_path, UUID, crc_of({7: 0xABCD})) == (7, PARTS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]


def test_refused_where_the_log_differs(tmp_path: Path) -> None:
    """DESIGN 4: another log, another record of that sequence, or no such record: the log is replayed instead."""
    checkpoint.save(tmp_path, UUID, 7, 0xABCD, PARTS)
    assert checkpoint.load(tmp_path, UUID, crc_of({7: 0xABCE})) is None
    assert checkpoint.load(tmp_path, UUID, crc_of({8: 0xABCD})) is None
    assert checkpoint.load(tmp_path, bytes(16), crc_of({7: 0xABCD})) is None


def test_the_one_before_is_kept(tmp_path: Path) -> None:
    """Where the newest names a record that was cut away as a torn tail, the one before it serves."""
    for through in (5, 6, 7):
        checkpoint.save(tmp_path, UUID, through, through, {"n": b"%d" % through})
    assert checkpoint.load(tmp_path, UUID, crc_of({5: 5, 6: 6, 7: 7})) == (7, {"n": b"7"})
    assert checkpoint.load(tmp_path, UUID, crc_of({5: 5, 6: 6})) == (6, {"n": b"6"})
    assert checkpoint.load(tmp_path, UUID, crc_of({5: 5})) is None


def test_a_save_cut_short_changes_nothing(tmp_path: Path) -> None:
    """Whatever a crash leaves of a save, the checkpoints before it stand."""
    checkpoint.save(tmp_path, UUID, 5, 5, PARTS)
    (tmp_path / "checkpoint.tmp").write_bytes(b"half")
    assert checkpoint.load(tmp_path, UUID, crc_of({5: 5})) == (5, PARTS)
    (tmp_path / "checkpoint").rename(tmp_path / "checkpoint.before")
    assert checkpoint.load(tmp_path, UUID, crc_of({5: 5})) == (5, PARTS)
    checkpoint.save(tmp_path, UUID, 6, 6, PARTS)
    assert checkpoint.load(tmp_path, UUID, crc_of({5: 5})) == (5, PARTS)


def test_every_byte_counts(tmp_path: Path) -> None:
    """A checkpoint with any byte changed or missing is ignored, never half believed."""
    checkpoint.save(tmp_path, UUID, 7, 7, {"one": b"12345", "two": b"678"})
    path = tmp_path / "checkpoint"
    good = path.read_bytes()
    for place in range(len(good)):
        for bad in (good[:place], good[:place] + bytes([good[place] ^ 0x40]) + good[place + 1 :]):
            path.write_bytes(bad)
            assert checkpoint.load(tmp_path, UUID, lambda _: 7) is None
    path.write_bytes(good + b"\0")
    assert checkpoint.load(tmp_path, UUID, lambda _: 7) is None


# -- the scheduler's books -------------------------------------------------------------------------------------------


def run_of(first: int, count: int, queue: int) -> Messages:
    attributes = Attributes(queue, Scope.ALL, ParentFailure.FAIL, "")
    return Messages(first, START_US, bytes(16 * count), ((count, attributes),))


def taken(scheduler: Scheduler, limit: int) -> list[tuple[int, int]]:
    return [(one.message, one.subscriber) for one in scheduler.take(START_US, 100_000, limit)]


@pytest.fixture
def declared() -> list[QueueSet | SubscriberSet]:
    """Two queues; the first has two subscribers, the second one."""
    settings = SubscriberSettings(endpoint="http://127.0.0.1:1/", window=50_000)
    return [
        *(QueueSet(n, START_US, n, QueueName(f"q{n}"), QueueSettings()) for n in (1, 2)),
        *(
            SubscriberSet(2 + n, START_US, n, queue, SubscriberId(f"s{n}"), 2 + n, settings)
            for n, queue in ((1, 1), (2, 1), (3, 2))
        ),
    ]


def test_a_long_backlog_is_a_small_checkpoint(declared: list[QueueSet | SubscriberSet]) -> None:
    """The loop stands still while a checkpoint is made: 300,000 messages that wait and are all alike are no work, and
    come back as they were."""
    scheduler = Scheduler()
    for fact in declared:
        scheduler.apply(fact)
    for number in range(30):
        scheduler.apply(run_of(100 + 10_000 * number, 10_000, 1))
    parts = scheduler.checkpoint()
    assert sum(map(len, parts.values())) < 100_000
    again = Scheduler()
    again.restore(parts, declared)
    assert again.checkpoint() == parts
    assert again.queue_statistics(1) == scheduler.queue_statistics(1)
    assert [again.message_state(one) for one in (99, 100, 150_000, 300_099)] == ["complete", *3 * ["pending"]]
    assert taken(again, 40_000) == taken(scheduler, 40_000)


def test_every_form_of_a_backlog_comes_back(declared: list[QueueSet | SubscriberSet], seed: int) -> None:
    """Whole chunks alike, mixed ones, queues in turns, some of it delivered: the same books, and they go on."""
    dice = random.Random(seed)
    scheduler = Scheduler(shares=plenty())
    for fact in declared:
        scheduler.apply(fact)
    sequence = 100
    for _ in range(60):
        count = dice.choice((1, 1, 2, 17, 500, 5_000))
        scheduler.apply(run_of(sequence, count, dice.choice((1, 2))))
        sequence += count
        out = scheduler.take(START_US, 100_000, dice.choice((0, 0, 64, 3_000)))
        rows, _ = scheduler.settle([(one, AttemptResult(Reason.NONE, 200)) for one in out], START_US, lambda: 0.0)
        if rows:
            scheduler.apply(Outcomes(sequence, START_US, tuple(rows)))
            sequence += 1
    parts = scheduler.checkpoint()
    again = Scheduler(shares=plenty())
    again.restore(parts, declared)
    assert again.checkpoint() == parts
    assert [again.message_state(one) for one in range(sequence + 2)] == [
        scheduler.message_state(one) for one in range(sequence + 2)
    ]
    for one in (scheduler, again):
        one.apply(run_of(sequence, 3, 1))
    assert sorted(taken(again, 1_000_000)) == sorted(taken(scheduler, 1_000_000))


def test_a_checkpoint_of_another_version_is_refused(declared: list[QueueSet | SubscriberSet]) -> None:
    """What an older program wrote is not guessed at: the log is replayed instead."""
    scheduler = Scheduler()
    for fact in declared:
        scheduler.apply(fact)
    parts = scheduler.checkpoint()
    state = orjson.loads(parts["state"])
    with pytest.raises(ValueError, match="version"):
        Scheduler().restore({**parts, "state": orjson.dumps(state | {"version": 1})}, declared)


def test_two_that_are_saved_at_once_are_both_whole(tmp_path: Path) -> None:
    """DESIGN 4: a shutdown makes its checkpoint while the one before it may still be on its way in another thread. One
    comes after the other, and neither fails for it."""
    journal = open_journal(tmp_path)
    publish(journal)
    through = journal.durable_sequence
    with ThreadPoolExecutor(4) as threads:
        saving = [threads.submit(journal.save_checkpoint, through, PARTS) for _ in range(60)]
        for one in saving:
            one.result()
    assert journal.load_checkpoint() == (through, PARTS)
    journal.close()
