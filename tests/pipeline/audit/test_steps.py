"""The steps of the audit without Spark, over many logs: its verdict is that of ``OrderChecker``, record by record.

``test_audit`` shows that Spark brings the same together."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from syncbrok.log.offline.order import OrderChecker
from syncbrok.model.facts import Fact, Outcome, RearmedEntry, Reason
from syncbrok.model.message import ParentFailure, Scope
from tests.support.log.doctored_logs import CASES
from tests.support.log.histories import disturbed, history, scribbled
from tests.support.log.judged import Pair
from tests.support.log.story import Story
from tests.support.pipeline.audit_frames import judged, one_log
from tests.support.pipeline.audit_steps import judged_in_steps

HISTORIES = 20
SCRIBBLES = 120
STEPS = 60
BY_TIME = {"retrying": {"retrying", "overdue"}, "delayed": {"delayed", "ready"}}
"""reasons that the plain judge gives, which has no clock -> those the audit may give"""


@pytest.mark.parametrize("case", CASES)
def test_what_is_doctored_is_found_in_steps(case: str) -> None:
    """By that rule and with that record, and nothing else; sequences are counted by Spark alone."""
    facts, findings = CASES[case]()
    expected = sorted({one for one in findings if one[0] != "sequence"})
    assert sorted({(rule, sequence) for rule, sequence, *_ in judged_in_steps(facts).found}) == expected


def test_many_histories_are_judged_as_by_the_plain_judge(seed: int) -> None:
    """Finding for finding, over sound histories and disturbed ones; and what waits, with the same reasons."""
    for number in range(HISTORIES):
        dice = random.Random(seed + number)
        told = history(dice, STEPS)
        _same(told, f"history {number}")
        _same(disturbed(dice, told, dice.choice((0.02, 0.1, 0.3))), f"history {number}, disturbed")


def test_what_no_broker_writes_is_judged_as_by_the_plain_judge(seed: int) -> None:
    """Nearly anything after anything: every rule broken in many ways, and all ways mixed."""
    for number in range(SCRIBBLES):
        _same(scribbled(random.Random(seed + number), STEPS), f"log {number}")


def test_what_is_out_of_the_ordinary_leaves_the_rest_alone(seed: int) -> None:
    """Doctored stories and histories in one log, in any order, with gaps, snapshots and carried messages between."""
    dice = random.Random(seed)
    first, *others = [case().facts for case in CASES.values()]
    others += [disturbed(dice, history(dice, STEPS), 0.1) for _ in range(10)]
    dice.shuffle(others)
    _same(one_log([first, *others]).facts, "all of them")


def _same(facts: Sequence[Fact], which: str) -> None:
    found, waiting = judged_in_steps(facts)
    expected = Counter(one for one in judged(facts) if one[0] != "sequence")
    assert Counter(found) == expected, which
    judge = OrderChecker()
    for fact in facts:
        judge.apply(fact)
    waits = {(one.message, one.subscriber): one.why for one in judge.waiting()}
    assert waiting.keys() == waits.keys(), which
    differing = {
        pair: (why, waiting[pair]) for pair, why in waits.items() if waiting[pair] not in BY_TIME.get(why, {why})
    }
    assert differing == {}, which


def test_one_that_went_where_its_parent_never_goes_before_the_parent_stood() -> None:
    """RULES 13: what an attempt from before the parent's own record was judged by, the later ones are; for both."""
    story = Story()
    queue, elsewhere = story.queue(), story.queue("elsewhere")
    one, stranger = story.subscriber(queue), story.subscriber(elsewhere)
    parent = story.publish(queue)
    child = story.publish(queue, parent, scope=Scope.SAME)
    story.attempt(child, stranger, Outcome.FAILED, after=parent - 1)
    story.attempt(child, stranger, attempt=2)
    story.attempt(parent, one)
    _same(story.facts, "a parent after its child")


@pytest.mark.parametrize(
    ("policy", "again", "why"),
    [
        (ParentFailure.FAIL, None, "parents"),
        (ParentFailure.FAIL, Outcome.DEAD, "owed"),
        (ParentFailure.HOLD, Outcome.DEAD, "held"),
        (ParentFailure.DELIVER, Outcome.DEAD, "ready"),
        (ParentFailure.FAIL, Outcome.DELIVERED, "ready"),
    ],
)
def test_what_a_replay_sends_again_waits_for_its_parents_there(
    policy: ParentFailure, again: Outcome | None, why: str
) -> None:
    """RULES 21: a child in a replay waits until its parent has ended in it, whatever that was before; what follows from
    that end is the child's policy."""
    pair = Pair(policy)
    story, both = pair.story, (pair.one, pair.two)
    for number in both:
        story.attempt(pair.parent, number)
    story.end(pair.child, Outcome.DEAD, Reason.STATUS)
    story.rearm(
        1,
        RearmedEntry(pair.parent, pair.queue, both, (), (1, 1)),
        RearmedEntry(pair.child, pair.queue, both, (pair.parent,), (0, 0)),
    )
    story.attempt(pair.parent, pair.one, attempt=2)
    if again is not None:
        story.attempt(pair.parent, pair.two, again, attempt=2)
    _same(story.facts, policy.name)
    waiting = judged_in_steps(story.facts).waiting
    assert {waiting[pair.child, number] for number in both} == {why}


def test_what_a_replay_sends_again_expires_no_more() -> None:
    """A message that had expired and is sent again is not overdue: it has ended once, and an operator wants it out."""
    pair = Pair()
    story = pair.story
    child = story.publish(pair.queue, pair.parent)
    story.facts[-1] = story.facts[-1]._replace(expires_us=story.facts[-1].time_us + 1)  # type: ignore[call-arg,union-attr]
    story.snapshot()
    waiting = judged_in_steps(story.facts).waiting
    assert {waiting[child, number] for number in (pair.one, pair.two)} == {"overdue"}
    story.end(child, Outcome.EXPIRED, Reason.EXPIRED)
    story.rearm(1, RearmedEntry(child, pair.queue, (pair.one, pair.two), (pair.parent,), (0, 0)))
    waiting = judged_in_steps(story.facts).waiting
    assert {waiting[child, number] for number in (pair.one, pair.two)} == {"parents"}
