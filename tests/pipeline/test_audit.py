"""The audit against doctored logs, one for each rule, and against ``log.order``, which proves it record by record.

A Spark job costs seconds however little it reads: the stories of all these tests stand one behind the other in one log,
which is audited once.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from syncbrok.cli.main import group
from syncbrok.log.order import OrderChecker
from syncbrok.model.facts import Fact, Outcome, RearmedEntry, Reason, Tried
from syncbrok.model.message import ParentFailure, Scope
from syncbrok.pipeline.audit.job import prove
from syncbrok.pipeline.audit.rules import RULES
from tests.support.audit_frames import frames, judged, one_log
from tests.support.histories import disturbed, history
from tests.support.judged import Pair
from tests.support.pipeline_log import RealLog
from tests.support.segment_files import flip, offsets, write_log
from tests.support.story import Story, message_id

pytestmark = pytest.mark.slow

HISTORIES = 12
STEPS = 45


class Doctored(NamedTuple):
    """A story and what must be found in it: rule and record."""

    facts: list[Fact]
    findings: list[tuple[str, int]]


def _retained() -> Doctored:
    """What retention has left: carried messages keep their gates, a listed dead parent is failed (RULES 2)."""
    pair = Pair()
    pair.story.snapshot(bad=[(2, Outcome.DEAD)])
    start = pair.story.last
    orphan, failed = pair.story.publish(pair.queue, 1), pair.story.publish(pair.queue, 2)
    parent = pair.story.message(pair.parent, pair.queue)
    pair.story.carry(parent, [(pair.one, Outcome.DELIVERED)], [Tried(pair.two, 3, 0)])
    pair.story.carry(pair.story.message(pair.child, pair.queue, [pair.parent]))
    pair.story.attempt(orphan, pair.one)
    early = [pair.story.attempt(pair.child, pair.one), pair.story.attempt(failed, pair.one)]
    low = pair.story.attempt(pair.parent, pair.two, attempt=3)
    return Doctored(
        pair.story.facts[start - 1 :], [*(("gate", one) for one in early), ("attempts", low), ("inversion", low)]
    )


def _gate(scope: Scope, policy: ParentFailure, outcome: Outcome) -> Doctored:
    """Attempts before the parent was done, in each way that scope and policy tell apart; one attempt is as it should
    be."""
    pair = Pair(policy, scope)
    pair.story.attempt(pair.parent, pair.one)
    other = pair.story.attempt(pair.child, pair.two, Outcome.FAILED)
    ended = pair.story.attempt(pair.parent, pair.two, outcome)
    early = pair.story.attempt(pair.child, pair.one, Outcome.FAILED, after=ended - 2)
    late = pair.story.attempt(pair.child, pair.one, attempt=2)
    allowed = scope is Scope.SAME or outcome is Outcome.DELIVERED or policy is ParentFailure.DELIVER
    wrong = [other, *([early] if scope is Scope.ALL else []), *([] if allowed else [late])]
    found = [("gate", one) for one in wrong]
    # The parent's last attempt began after what the child was sent before it.
    return Doctored(pair.story.facts, [*found, ("inversion", ended)])


def _through_nobody() -> Doctored:
    """RULES 17: a message nobody counts passes the gate on, through a chain of them."""
    story = Story()
    queue, empty = story.queue("orders"), story.queue("empty")
    one = story.subscriber(queue)
    root = last = story.publish(queue)
    for _ in range(20):
        last = story.publish(empty, last)
    child = story.publish(queue, last)
    early = story.attempt(child, one, Outcome.FAILED)
    story.attempt(root, one)
    story.attempt(child, one, attempt=2)
    return Doctored(story.facts, [("gate", early)])


def _replayed() -> Doctored:
    """RULES 21: inside a replay the child waits for the parent again; numbers go on."""
    pair = Pair()
    both = (pair.one, pair.two)
    for message in (pair.parent, pair.child):
        for number in both:
            pair.story.attempt(message, number)
    pair.story.rearm(
        1,
        RearmedEntry(pair.parent, pair.queue, both, (), (1, 1)),
        RearmedEntry(pair.child, pair.queue, both, (pair.parent,), (1, 1)),
    )
    pair.story.attempt(pair.parent, pair.one, attempt=2)
    early = pair.story.attempt(pair.child, pair.one, attempt=2)
    pair.story.attempt(pair.parent, pair.two, attempt=2)
    again = pair.story.attempt(pair.child, pair.two)
    return Doctored(pair.story.facts, [("gate", early), ("attempts", again)])


def _ends() -> Doctored:
    """A second end, an attempt after the end, and one that is late, which is allowed."""
    pair = Pair()
    pair.story.attempt(pair.parent, pair.one)
    pair.story.attempt(pair.parent, pair.one, Outcome.LATE, after=4)
    second = pair.story.attempt(pair.parent, pair.one, attempt=2)
    pair.story.end(pair.parent, Outcome.DEAD, Reason.SUBSCRIBER_DISABLED)
    third = pair.story.attempt(pair.parent, pair.two)
    return Doctored(pair.story.facts, [("end", second), ("end", third)])


def _addressees() -> Doctored:
    """Rows for a stranger, for one who came later, about a message nobody accepted; catching up is allowed."""
    pair = Pair()
    stranger = pair.story.subscriber(pair.story.queue("other"))
    late = pair.story.subscriber(pair.queue)
    pair.story.attempt(pair.parent, pair.story.subscriber(pair.queue, start=pair.parent))
    wrong = [pair.story.attempt(pair.parent, stranger), pair.story.attempt(pair.parent, late)]
    unknown = pair.story.attempt(pair.queue, pair.one)  # the record of that sequence is no message
    return Doctored(pair.story.facts, [("addressee", one) for one in (*wrong, unknown)])


def _keys() -> Doctored:
    """RULES 6: the next of a key went out at a subscriber where the one before had not ended."""
    story = Story()
    queue = story.queue()
    one, two = story.subscriber(queue), story.subscriber(queue)
    first, second = story.publish(queue, key="k"), story.publish(queue, key="k")
    story.attempt(first, one, Outcome.DEAD)
    story.attempt(second, one)
    return Doctored(story.facts, [("key", story.attempt(second, two))])


def _parents() -> Doctored:
    """A parent that was accepted later, and an id that names another place."""
    story = Story()
    queue = story.queue()
    early = story.publish(queue, story.last + 2)
    story.publish(queue)
    named = story.publish(queue)
    story.facts[-1] = story.facts[-1]._replace(id=message_id(named + 7))  # type: ignore[call-arg]
    return Doctored(story.facts, [("parents", early), ("parents", named)])


def _carried() -> Doctored:
    """A message carried as ended where it was not would be lost silently."""
    pair = Pair()
    return Doctored(
        pair.story.facts,
        [("carried", pair.story.carry(pair.story.message(pair.parent, pair.queue), [(pair.one, Outcome.DELIVERED)]))],
    )


def _sequences() -> Doctored:
    """Records that nobody names as lost."""
    story = Story()
    queue = story.queue()
    story.skip(3)
    return Doctored(story.facts, [("sequence", story.publish(queue))])


def _snapshot() -> Doctored:
    """A snapshot that has lost a subscriber."""
    story = Story()
    story.subscriber(story.queue())
    story.subscribers.clear()
    return Doctored(story.facts, [("snapshot", story.snapshot())])


def _gap() -> Doctored:
    """What salvage names as lost excuses what it may have swallowed; what comes after the next snapshot is judged."""
    pair = Pair()
    pair.story.gap(pair.story.last + 1, pair.story.last + 4)
    pair.story.attempt(pair.child, pair.one)
    pair.story.snapshot()
    parent = pair.story.publish(pair.queue)
    child = pair.story.publish(pair.queue, parent)
    return Doctored(pair.story.facts, [("gate", pair.story.attempt(child, pair.one))])


def _sound() -> Doctored:
    """Everything as it should be: retries, a paused subscriber, a deleted one."""
    pair = Pair()
    pair.story.attempt(pair.parent, pair.one, Outcome.FAILED)
    pair.story.attempt(pair.parent, pair.one, attempt=2)
    pair.story.unsubscribe(pair.two)
    pair.story.attempt(pair.child, pair.one)
    return Doctored(pair.story.facts, [])


CASES: dict[str, Callable[[], Doctored]] = {
    "retained": _retained,  # first: only the beginning of a log may be missing
    "gate_all": lambda: _gate(Scope.ALL, ParentFailure.FAIL, Outcome.DELIVERED),
    "gate_same": lambda: _gate(Scope.SAME, ParentFailure.FAIL, Outcome.DELIVERED),
    "gate_fail": lambda: _gate(Scope.ALL, ParentFailure.FAIL, Outcome.DEAD),
    "gate_hold": lambda: _gate(Scope.ALL, ParentFailure.HOLD, Outcome.DEAD),
    "gate_deliver": lambda: _gate(Scope.ALL, ParentFailure.DELIVER, Outcome.DEAD),
    "through_nobody": _through_nobody,
    "replayed": _replayed,
    "ends": _ends,
    "addressees": _addressees,
    "keys": _keys,
    "parents": _parents,
    "carried": _carried,
    "sequences": _sequences,
    "snapshot": _snapshot,
    "gap": _gap,
    "sound": _sound,
}


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
    """Over random histories, sound and disturbed: finding for finding what ``log.order`` finds, record by record."""
    assert Counter(audited.found) == Counter(judged(audited.facts))
    assert audited.counts["messages"] > 200


def test_what_waits_is_what_the_plain_judge_says(audited: Audited) -> None:
    """The same deliveries have not ended, for the same reasons; only the clock is looked at here as well."""
    judge = OrderChecker()
    for fact in audited.facts:
        judge.apply(fact)
    expected = {(one.message, one.subscriber): one.why for one in judge.waiting()}
    assert audited.waiting.keys() == expected.keys()
    by_time = {"retrying": {"retrying", "overdue", "ready"}, "delayed": {"delayed", "ready"}}
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
