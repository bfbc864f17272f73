"""The parts of the audit, one by one."""

import random
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from syncbrok.log.format.records import Gap, SegmentOpened
from syncbrok.log.segments import watermark
from syncbrok.model.facts import Outcome, QueueSet, RearmedEntry, SubscriberDeleted, SubscriberSet
from syncbrok.model.message import QueueSettings, SubscriberSettings
from syncbrok.model.names import SEQUENCE_MAX
from syncbrok.pipeline.audit.checksum_rule import SegmentToCheck, check, missing
from syncbrok.pipeline.audit.declarations import FOREVER, declared
from syncbrok.pipeline.audit.end_propagation import ends_of, propagated_ends
from syncbrok.pipeline.audit.fact_scan import NotAFact, put_together, scan
from syncbrok.pipeline.audit.row_encoding import DELIVER, FAIL, HOLD, NEVER
from syncbrok.pipeline.audit.rules import ALL, NO_REASONS, REASONS, RULES, AuditFinding, sentence
from syncbrok.pipeline.audit.sequence_rule import LogExtent, SequenceBlock, broken_blocks
from syncbrok.pipeline.log_place import LogDirectory
from tests.support.log.segment_files import flip, offsets, write_log
from tests.support.log.story import Story
from tests.support.pipeline.audit_frames import rows_of
from tests.support.pipeline.audit_steps import facts_batch, kinds_of


def test_audiences_change_with_the_declarations() -> None:
    """RULES 3: who is counted is who had subscribed before; a snapshot that says the same changes nothing."""
    queue = QueueSet(1, 0, 7, "orders", QueueSettings())  # type: ignore[arg-type]
    one = SubscriberSet(3, 0, 8, 7, "one", 3, SubscriberSettings("http://x/"))  # type: ignore[arg-type]
    facts = [queue, one, SegmentOpened(5, 0, (queue,), (one,), (), ()), SubscriberDeleted(9, 0, 8)]
    found = declared(facts, 1)
    spans = [(each.begins, each.ends, [member.number for member in each.members]) for each in found.audiences]
    assert spans == [(1, 3, []), (3, 9, [8]), (9, FOREVER, [])]
    assert found.audiences[1].members[0].gone == 9
    assert found.violations == []


def test_a_lying_snapshot_is_found_and_a_gap_puts_in_doubt() -> None:
    """Rule ``snapshot``; what a gap may have swallowed is not judged, until the next snapshot."""
    queue = QueueSet(1, 0, 7, "orders", QueueSettings())  # type: ignore[arg-type]
    empty = SegmentOpened(4, 0, (), (), (), ())
    lying = declared([queue, empty], 1)
    assert [(one.rule, one.sequence) for one in lying.violations] == [("snapshot", 4)]
    doubtful = declared([queue, Gap(3, 0, 2, 3, "lost"), empty], 1)
    assert doubtful.violations == []
    assert doubtful.doubtful == [(3, 4)]


def test_ends_of_messages_that_count_nobody(seed: int) -> None:
    """RULES 12, 17: worked out level by level, the records of end and completion are those of one walk in order."""
    dice = random.Random(seed)
    outside = {number: _end(dice) for number in range(1, 6)}
    edges, records, policies, cancelled = [], {}, {}, {}
    for node in range(10, 60):
        records[node], policies[node] = node, dice.choice((FAIL, HOLD, DELIVER))
        cancelled[node] = dice.choice((int(NEVER), int(NEVER), node + 40))
        above = dice.sample([*outside, *range(10, node)], dice.randrange(1, 4))
        edges += [(node, parent) for parent in above]
    dice.shuffle(edges)
    complete = np.array([outside.get(parent, (0, 0))[0] for _, parent in edges])
    ended = np.array([outside.get(parent, (0, 0))[1] for _, parent in edges])
    child, parent = (np.array(column) for column in zip(*edges, strict=True))
    columns = [np.array([table[node] for node in child]) for table in (records, policies, cancelled)]
    nodes, got_complete, got_ended = ends_of(child, *columns, parent, complete, ended)
    known = dict(outside)
    for node in sorted(records):
        known[node] = _walked(node, [known[above] for one, above in edges if one == node], policies, cancelled)
    assert nodes.tolist() == sorted(records)
    assert list(zip(got_complete.tolist(), got_ended.tolist(), strict=True)) == [
        known[node] for node in sorted(records)
    ]


def test_ends_are_worked_out_range_by_range(spark: SparkSession, seed: int) -> None:
    """RULES 17: where they are too many for one task, each range of messages goes on from the ends of those before it;
    what comes out is the same."""
    dice = random.Random(seed)
    never = int(NEVER)
    standing = [(number, number, *_end(dice), False) for number in range(1, 6)]
    edges = []
    for node in range(10, 40):
        standing.append((node, node, never, never, True))
        policy, cancelled = dice.choice((FAIL, HOLD, DELIVER)), dice.choice((never, never, node + 40))
        above = dice.sample([*range(1, 6), *range(10, node)], dice.randrange(1, 4))
        edges += [(node, node, policy, cancelled, parent, True) for parent in above]
    histories = "message bigint, record bigint, complete bigint, ended bigint, follows boolean"
    columns = "child bigint, record bigint, policy int, cancelled bigint, parent bigint, follows boolean"
    bad = spark.createDataFrame([], "message bigint, since bigint, mended bigint")
    frames = (spark.createDataFrame(standing, histories), spark.createDataFrame(edges, columns), bad)
    ways = [propagated_ends(*frames, rows_at_once=rows) for rows in (1_000, len(edges) // 3)]
    at_once, by_ranges = (sorted(map(tuple, way.collect())) for way in ways)
    assert len(at_once) == 30
    assert by_ranges == at_once


def _end(dice: random.Random) -> tuple[int, int]:
    """Of a parent that counts somebody: the record of completion, and of the end, which is not later."""
    ended = dice.choice((5, 30, 70, int(NEVER)))
    return dice.choice((ended, min(ended + 20, int(NEVER)), int(NEVER))), ended


def _walked(
    node: int, above: list[tuple[int, int]], policies: dict[int, int], cancelled: dict[int, int]
) -> tuple[int, int]:
    delivers = policies[node] == DELIVER
    complete = max([node, *(ended if delivers else done for done, ended in above)])
    failed = [max(node, ended) for done, ended in above if max(node, ended) < done]
    ended = min([complete, cancelled[node], *(failed if policies[node] == FAIL else [])])
    return complete, ended


def test_a_chain_of_thousands() -> None:
    """A chain is followed without recursion, whatever its length."""
    child = np.arange(2, 5_002)
    never = np.full(5_000, NEVER)
    outside = np.where(child == 2, 9_000, 0)
    nodes, complete, ended = ends_of(child, child, np.zeros(5_000, int), never, np.where(child == 2, 0, child - 1),
                                     outside, outside)  # fmt: skip
    assert len(nodes) == 5_000
    assert set(complete.tolist()) == set(ended.tolist()) == {9_000}


def test_one_pass_says_what_the_rare_facts_say() -> None:
    """Parts of a log that tasks met each for itself are one log: snapshots that say the same are told once by a task,
    replays begin with their first record, bitmaps fit each other; what is no fact is named with its record."""
    story = Story()
    story.snapshot()
    queue = story.queue()
    one = story.subscriber(queue)
    bad = [(1, Outcome.DEAD)]
    message = story.publish(queue)
    for replay in (1, 1, 2):
        story.rearm(replay, RearmedEntry(message, queue, (one,), ()))
    opened = [story.snapshot(bad), story.snapshot(bad)]
    rows = rows_of(story.facts).facts
    told = [kinds_of(scan([facts_batch(part)])) for part in (rows[:5], rows[5:])]
    said = put_together((row["sequence"], row["kind"], row["said"]) for part in told for row in part["fact"])
    assert said.began == {1: message + 1, 2: message + 3}
    assert [fact.sequence for fact in said.declarations] == [1, 2, 3, *opened]
    assert said.declarations[-1]._replace(sequence=0) == said.declarations[-2]._replace(sequence=0)
    kinds = [row["kind"] for row in told[1]["fact"] if len(row["said"]) >= 32 and row["kind"] != "counts"]
    assert kinds == ["segment_opened", "content", "segment_opened"]
    assert said.counts["bad"] == 2
    bits = [np.unpackbits(np.frombuffer(row["bits"], np.uint8)) for part in told for row in part["block"]]
    assert np.flatnonzero(bits[0] | bits[1]).tolist() == [fact.sequence for fact in story.facts]
    assert not (bits[0] & bits[1]).any()
    with pytest.raises(NotAFact, match=f"rearmed of sequence {message + 1}"):
        list(scan([facts_batch([{**rows[message], "detail": "{}"}])]))


def test_stretches_that_are_not_whole() -> None:
    """Rule ``sequence``: a stretch of records with one missing, double, or none before it is looked at closely."""
    whole = (SequenceBlock(1, 3, 3, 1, 3), SequenceBlock(2, 2, 2, 4, 5))
    assert broken_blocks(LogExtent(5, 1, 5, 0, whole)) == []
    for broken in (SequenceBlock(2, 2, 2, 5, 6), SequenceBlock(2, 3, 2, 4, 5), SequenceBlock(2, 2, 2, 4, 6)):
        assert broken_blocks(LogExtent(5, 1, 5, 0, (whole[0], broken))) == [broken]


def test_damage_is_named_by_file_and_offset(tmp_path: Path) -> None:
    """Rule ``checksum``: a byte that changed, in a sealed segment and in the one that is written to, is named with the
    file, the offset of its record and the sequence; whole segments pass, and blank room behind them is no damage."""
    story = Story()
    story.snapshot()
    queue = story.queue()
    story.subscriber(queue)
    first = story.publish(queue)
    story.seal()
    story.snapshot()
    second = story.publish(queue)
    story.publish(queue)
    sealed, active = write_log(tmp_path, story)
    tasks = (_task(sealed, active), _task(active, None))
    assert [check(task).wrong for task in tasks] == [[], []]
    for path, task, sequence in ((sealed, tasks[0], first), (active, tasks[1], second)):
        place = offsets(path)[sequence]
        flip(path, place + 95)
        (wrong,) = check(task).wrong
        assert (wrong.rule, wrong.sequence) == ("checksum", sequence)
        assert f"{path.name} at offset {place}" in wrong.what
    flip(sealed, 20)
    assert [one.sequence for one in check(tasks[0]).wrong] == [int(sealed.stem)]


def test_segments_that_must_be_there_are_missed(tmp_path: Path) -> None:
    """Rule ``checksum``: without a watermark a log that does not begin at its beginning, or ends with a seal, is told
    from a whole one, as by a start."""
    story = Story()
    story.snapshot()
    for _ in range(2):
        story.seal()
        story.snapshot()
    paths = write_log(tmp_path, story)
    mark = watermark.read(tmp_path)
    seen = [check(_task(path, following)) for path, following in zip(paths, [*paths[1:], None], strict=True)]
    assert missing(seen, mark) == missing(seen, None) == []
    first = ("checksum", seen[1].base), ("checksum", seen[1].last)
    for left, found in ((seen[1:], first[:1]), (seen[:2], first[1:]), (seen[1:2], first)):
        for known in (mark, None):
            assert len(missing(left, known)) == len(found)
        assert tuple((one.rule, one.sequence) for one in missing(left, None)) == found


def _task(path: Path, following: Path | None) -> SegmentToCheck:
    below = int(following.stem) if following else SEQUENCE_MAX
    durable_bytes = 0 if following else path.stat().st_size - 4_096
    return SegmentToCheck(LogDirectory(str(path.parent)), int(path.stem), below, durable_bytes)


def test_findings_read_as_sentences() -> None:
    """Every rule and every reason says what it means; a finding names record, message and subscriber."""
    assert all(len(meaning) > 20 for meaning in (*RULES.values(), *(REASONS[one] for one in NO_REASONS)))
    found = AuditFinding("gate", 9, 4, 2, "too early")
    assert sentence(found) == "gate: record 9 (message 4, subscriber 2): too early"
    assert sentence(found._replace(subscriber=ALL, what="x")) == "gate: record 9 (message 4, all subscribers): x"
    assert sentence(AuditFinding("sequence", 9, 0, 0, "y")) == "sequence: record 9: y"
