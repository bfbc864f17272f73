"""The audit against doctored logs, one for each rule, and against ``OrderChecker``, which proves it record by record.

A Spark job costs a second however little it reads: the stories of all these tests stand one behind the other in one
log, which is audited once. ``test_steps`` judges many more of them without Spark.
"""

import json
import random
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from syncbrok.cli.main import group
from syncbrok.log.offline.order import OrderChecker
from syncbrok.model.facts import Fact
from syncbrok.pipeline.audit.job import prove
from syncbrok.pipeline.audit.rules import RULES
from tests.support.log.doctored_logs import CASES
from tests.support.log.histories import disturbed, history
from tests.support.log.segment_files import flip, offsets, write_log
from tests.support.log.story import Story
from tests.support.pipeline.audit_frames import frames, judged, one_log
from tests.support.pipeline.broker_log import RealLog

HISTORIES = 12
STEPS = 45


class Audited(NamedTuple):
    facts: list[Fact]
    shifts: dict[str, int]
    found: list[tuple[str, int, int, int]]
    waiting: dict[tuple[int, int], str]
    counts: dict[str, int]


@pytest.fixture(scope="module")
def audited(spark: SparkSession) -> Audited:
    """All stories, and random histories as they were and disturbed, audited as one log."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed: {seed}")
    stories = [case().facts for case in CASES.values()]
    for number in range(HISTORIES):
        dice = random.Random(seed + number)
        told = history(dice, STEPS)
        stories += [told, disturbed(dice, told, dice.choice((0.02, 0.1, 0.3)))]
    facts, shifts = one_log(stories)
    proof = prove(*frames(spark, facts))
    found = sorted((row.rule, row.sequence, row.message, row.subscriber) for row in proof.violations.collect())
    waits = {(row.message, row.subscriber): row.why for row in proof.waiting.collect()}
    return Audited(facts, dict(zip(CASES, shifts, strict=False)), found, waits, proof.counts)


@pytest.mark.parametrize("case", CASES)
def test_what_is_doctored_is_found(audited: Audited, case: str) -> None:
    """The log fails where it was doctored, by that rule and with that record, and nowhere else in its story."""
    story = CASES[case]()
    by = audited.shifts[case]
    first, last = story.facts[0].sequence + by, story.facts[-1].sequence + by
    found = sorted({(rule, sequence - by) for rule, sequence, *_ in audited.found if first <= sequence <= last})
    assert found == sorted(story.findings)


def test_each_rule_is_shown_to_fail() -> None:
    """No rule is there that no doctored log breaks; checksums and what waits are broken on files, below."""
    shown = {rule for case in CASES.values() for rule, _ in case().findings}
    assert shown == set(RULES) - {"checksum", "waiting"}


def test_the_verdict_is_that_of_the_plain_judge(audited: Audited) -> None:
    """Over random histories, sound and disturbed: finding for finding what ``OrderChecker`` finds, record by record."""
    assert Counter(audited.found) == Counter(judged(audited.facts))
    assert audited.counts["messages"] > 200


def test_what_waits_is_what_the_plain_judge_says(audited: Audited) -> None:
    """The same deliveries have not ended, for the same reasons; only the clock is looked at here as well."""
    judge = OrderChecker()
    for fact in audited.facts:
        judge.apply(fact)
    expected = {(one.message, one.subscriber): one.why for one in judge.waiting()}
    assert audited.waiting.keys() == expected.keys()
    by_time = {"retrying": {"retrying", "overdue"}, "delayed": {"delayed", "ready"}}
    differing = {
        pair: (why, audited.waiting[pair])
        for pair, why in expected.items()
        if audited.waiting[pair] not in by_time.get(why, {why})
    }
    assert differing == {}


# -- the command, on files --------------------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["pipeline", "audit", *arguments])


def test_a_real_log_passes(spark: SparkSession, real_log: RealLog) -> None:
    """A log that a broker wrote under load, with failures, replays and kill -9, keeps every promise; everything it
    acknowledged has ended or has a reason to wait, though the log is at rest."""
    ran = run("--storage", str(real_log.storage), "--settled", "--json")
    told = json.loads(ran.stdout)
    assert (ran.exit_code, told["shown"]) == (0, []), ran.output
    assert set(told["judged"]) == set(RULES)
    assert told["checked"]["messages"] == len(real_log.answers.messages)


def test_a_broken_log_ends_with_1(spark: SparkSession, tmp_path: Path) -> None:
    """Exit code 1 and the offending sequences, on paper and as Parquet; what waits without a reason is among them where
    the log is at rest, or once it is old."""
    story = Story()
    story.snapshot()
    queue = story.queue()
    one = story.subscriber(queue)
    parent = story.publish(queue)
    child = story.publish(queue, parent)
    early = story.attempt(child, one)
    story.seal()
    story.snapshot()
    storage, out = tmp_path / "storage", tmp_path / "out"
    paths = write_log(storage, story)
    ran = run("--storage", str(storage), "--out", str(out), "--max-pending", "2s")
    assert ran.exit_code == 1, ran.output
    assert f"gate: record {early} (message {child}, subscriber {one})" in ran.output
    assert f"waiting: record {parent} (message {parent}, subscriber {one}): has not ended for" in ran.output
    rows = spark.read.parquet(str(out / "violations")).collect()
    assert sorted((row.rule, row.sequence) for row in rows) == [("gate", early), ("waiting", parent)]
    flip(paths[0], offsets(paths[0])[child] + 95)
    ran = run("--storage", str(storage), "--json")
    told = json.loads(ran.stdout)
    assert ran.exit_code == 1
    assert [(one["rule"], one["sequence"]) for one in told["shown"]] == [("checksum", child)]
