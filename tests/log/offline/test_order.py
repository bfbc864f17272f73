"""The judge of the order: a log that keeps the rules passes, and each way to break one is found."""

import random
from collections.abc import Callable

import pytest

from syncbrok.log.offline.order import Violation, check
from syncbrok.model.facts import Outcome, Reason
from syncbrok.model.message import ParentFailure, Scope
from tests.support.log.doctored_logs import CASES
from tests.support.log.judged import Pair, rules, waiting
from tests.support.log.story import Story


def test_a_log_that_keeps_the_rules_passes() -> None:
    """RULES 13: a child attempted after its parent was complete and that was on disk is as it should be."""
    pair = Pair()
    pair.story.attempt(pair.parent, pair.one, Outcome.FAILED)
    pair.story.attempt(pair.parent, pair.two)
    pair.story.attempt(pair.parent, pair.one, attempt=2)
    pair.story.attempt(pair.child, pair.one)
    pair.story.attempt(pair.child, pair.two)
    assert check(pair.story.facts) == []
    assert waiting(pair.story) == []


def test_a_child_too_early_is_found() -> None:
    """RULES 13: an attempt begun before the parent's completion was on disk is a violation, though written after it."""
    pair = Pair()
    before = pair.story.attempt(pair.parent, pair.one)
    complete = pair.story.attempt(pair.parent, pair.two)
    early = pair.story.attempt(pair.child, pair.one, after=complete - 1)
    pair.story.attempt(pair.child, pair.two, after=complete)
    assert before == complete - 1
    found = check(pair.story.facts)
    assert [(one.rule, one.sequence, one.message, one.subscriber) for one in found] == [
        ("gate", early, pair.child, pair.one)
    ]


def test_one_subscriber_is_not_all() -> None:
    """RULES 11, scope all: a parent done at one of its two subscribers opens no gate; scope same opens that one's."""
    for scope, expected in ((Scope.ALL, ["gate"]), (Scope.SAME, [])):
        pair = Pair(scope=scope)
        pair.story.attempt(pair.parent, pair.one)
        pair.story.attempt(pair.child, pair.one)
        assert rules(pair.story) == expected, scope


def test_scope_same_waits_for_its_own_subscriber() -> None:
    """RULES 11, scope same: the parent done at another subscriber does not open the gate at this one."""
    pair = Pair(scope=Scope.SAME)
    pair.story.attempt(pair.parent, pair.one)
    pair.story.attempt(pair.child, pair.two)
    assert rules(pair.story) == ["gate"]


def test_scope_same_judges_a_parent_elsewhere_by_all() -> None:
    """RULES 11: with scope same, a parent in another queue counts only when it is done at all of its subscribers."""
    story = Story()
    first, second = story.queue("first"), story.queue("second")
    one, two, three = story.subscriber(first), story.subscriber(first), story.subscriber(second)
    parent = story.publish(first)
    child = story.publish(second, parent, scope=Scope.SAME)
    story.attempt(parent, one)
    story.attempt(child, three, Outcome.FAILED)
    story.attempt(parent, two)
    story.attempt(child, three, attempt=2)
    found = check(story.facts)
    assert {one.rule for one in found} == {"gate", "inversion"}
    assert len([one for one in found if one.rule == "gate"]) == 1


def test_a_parent_after_its_child_is_found() -> None:
    """RULES 13: no attempt of a parent begins after one of its child."""
    pair = Pair(policy=ParentFailure.DELIVER)
    pair.story.attempt(pair.parent, pair.one)
    pair.story.attempt(pair.child, pair.one)
    pair.story.attempt(pair.parent, pair.two)
    assert "inversion" in rules(pair.story)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(ParentFailure.FAIL, ["gate"]), (ParentFailure.HOLD, ["gate"]), (ParentFailure.DELIVER, [])],
)
def test_a_dead_parent(policy: ParentFailure, expected: list[str]) -> None:
    """RULES 12: only ``deliver`` lets a child go once its parent has ended badly."""
    pair = Pair(policy)
    pair.story.attempt(pair.parent, pair.one)
    pair.story.attempt(pair.parent, pair.two, Outcome.DEAD)
    pair.story.attempt(pair.child, pair.one)
    assert rules(pair.story) == expected


def test_dropped_by_an_operator_is_failed_by_unsubscription_is_not() -> None:
    """RULES 10, 12: a cancelled parent has failed; one whose last subscriber was deleted counts as acknowledged."""
    for cancel in (True, False):
        pair = Pair()
        pair.story.attempt(pair.parent, pair.one)
        if cancel:
            pair.story.end(pair.parent, Outcome.DROPPED, Reason.CANCELLED, pair.two)
        else:
            pair.story.unsubscribe(pair.two)
        pair.story.attempt(pair.child, pair.one)
        assert rules(pair.story) == (["gate"] if cancel else [])


def test_a_delivery_ends_once() -> None:
    """A second end of one (message, subscriber), or an attempt after the end that is not LATE, is found."""
    pair = Pair()
    pair.story.attempt(pair.parent, pair.one)
    pair.story.attempt(pair.parent, pair.one, Outcome.LATE, after=4)
    assert rules(pair.story) == []
    pair.story.attempt(pair.parent, pair.one, attempt=2)
    pair.story.attempt(pair.parent, pair.one, Outcome.FAILED, attempt=3)
    assert [rule for rule in rules(pair.story) if rule != "inversion"] == ["end", "end"]


def test_a_row_for_all_ends_what_is_open() -> None:
    """RULES 20: one row ends every delivery that has not ended, and only those."""
    pair = Pair()
    pair.story.attempt(pair.parent, pair.one)
    pair.story.end(pair.parent, Outcome.DEAD, Reason.SUBSCRIBER_DISABLED)
    pair.story.end(pair.child, Outcome.DEAD, Reason.PARENT_FAILED)
    assert waiting(pair.story) == []
    pair.story.attempt(pair.parent, pair.two)
    assert rules(pair.story) == ["end"]


def test_rows_name_those_the_message_is_for() -> None:
    """RULES 3, 14: an attempt of a message nobody accepted, at a stranger, or at a subscriber that came later."""
    pair = Pair()
    stranger = pair.story.subscriber(pair.story.queue("other"))
    late = pair.story.subscriber(pair.queue)
    backfill = pair.story.subscriber(pair.queue, start=pair.parent)
    pair.story.attempt(pair.parent, backfill)
    assert rules(pair.story) == []
    pair.story.attempt(pair.parent, stranger)
    pair.story.attempt(pair.parent, late)
    pair.story.attempt(999, pair.one)
    assert rules(pair.story) == ["addressee"] * 3


def test_a_test_message_counts_one_subscriber() -> None:
    """A message for one subscriber is complete when that one has it, and goes to no other."""
    story = Story()
    queue = story.queue()
    one, two = story.subscriber(queue), story.subscriber(queue)
    message = story.publish(queue, only=one)
    story.attempt(message, one)
    assert waiting(story) == []
    story.attempt(message, two)
    assert rules(story) == ["addressee"]


def test_catching_up_changes_nothing_for_others() -> None:
    """RULES 14: an uncounted delivery neither holds a child back nor goes out before the parents have ended, and the
    parent's catching up after the child was delivered is no inversion."""
    pair = Pair()
    pair.story.attempt(pair.parent, pair.one)
    pair.story.attempt(pair.parent, pair.two)
    late = pair.story.subscriber(pair.queue, start=0)
    pair.story.attempt(pair.child, pair.one)
    pair.story.attempt(pair.parent, late, Outcome.FAILED)
    pair.story.attempt(pair.child, late)
    pair.story.attempt(pair.parent, late, attempt=2)
    assert rules(pair.story) == []
    early = Pair()
    late = early.story.subscriber(early.queue, start=0)
    early.story.attempt(early.child, late)
    assert rules(early.story) == ["gate"]


def test_keys_order_within_a_subscriber() -> None:
    """RULES 6: the next of a key goes to a subscriber once the one before has ended there, well or badly."""
    story = Story()
    queue = story.queue()
    one, two = story.subscriber(queue), story.subscriber(queue)
    first, second = story.publish(queue, key="k"), story.publish(queue, key="k")
    other = story.publish(queue, key="other")
    story.attempt(first, one, Outcome.DEAD)
    story.attempt(second, one)
    story.attempt(other, two)
    assert rules(story) == []
    story.attempt(second, two)
    assert rules(story) == ["key"]


def test_a_message_nobody_counts_passes_the_gate_on() -> None:
    """RULES 17: without subscribers a message is complete once its own parents are; its child waits through it."""
    for finished in (False, True):
        story = Story()
        queue, empty = story.queue("orders"), story.queue("empty")
        one = story.subscriber(queue)
        grandparent = story.publish(queue)
        parent = story.publish(empty, grandparent)
        child = story.publish(queue, parent)
        if finished:
            story.attempt(grandparent, one)
        else:
            story.attempt(grandparent, one, Outcome.FAILED)
        story.attempt(child, one)
        assert rules(story) == ([] if finished else ["gate"])


def test_a_failed_parent_fails_through_a_message_nobody_counts() -> None:
    """RULES 12: the cascade goes down through a queue without subscribers too."""
    story = Story()
    queue, empty = story.queue("orders"), story.queue("empty")
    one = story.subscriber(queue)
    grandparent = story.publish(queue)
    child = story.publish(queue, story.publish(empty, grandparent))
    story.attempt(grandparent, one, Outcome.DEAD)
    assert [(one.message, one.why) for one in waiting(story)] == [(child - 1, "owed"), (child, "owed")]
    story.attempt(child, one)
    assert rules(story) == ["gate"]


def test_parents_come_first() -> None:
    """RULES 2: a parent that was not accepted before is found."""
    story = Story()
    queue = story.queue()
    story.publish(queue, story.last + 5)
    assert rules(story) == ["parents"]


def test_what_waits_has_a_reason() -> None:
    """Nothing is lost silently: each delivery that has not ended is named, with why."""
    story = Story()
    queue = story.queue()
    one = story.subscriber(queue)
    paused = story.subscriber(queue, paused=True)
    first = story.publish(queue, key="k")
    story.attempt(first, one, Outcome.FAILED)
    second, child, later = (
        story.publish(queue, key="k"),
        story.publish(queue, first),
        story.publish(queue, due_us=2_000_000_000_000_000),
    )
    fresh = story.publish(queue)
    reasons = {(one.message, one.subscriber): one.why for one in waiting(story)}
    assert {message: why for (message, number), why in reasons.items() if number == one} == {
        first: "retrying",
        second: "key",
        child: "parents",
        later: "delayed",
        fresh: "ready",
    }
    assert reasons[fresh, paused] == "paused"


def test_a_thousand_links() -> None:
    """A chain through queues without subscribers is followed without recursion."""
    story = Story()
    queue, empty = story.queue("orders"), story.queue("empty")
    one = story.subscriber(queue)
    root = last = story.publish(queue)
    for _ in range(3000):
        last = story.publish(empty, last)
    child = story.publish(queue, last)
    story.attempt(root, one)
    story.attempt(child, one)
    assert check(story.facts) == []


def test_what_a_row_says_of_records_to_come_shows_nothing() -> None:
    """RULES 13: an ``after`` at or behind the row's own record hides no attempt that began too early, and puts none in
    the wrong that did not."""
    facts, findings = CASES["ahead"]()
    assert [(one.rule, one.sequence) for one in check(facts)] == findings


def _publish_and_deliver(seed: int, disturb: Callable[[random.Random, int], int]) -> list[Violation]:
    """A small broker that keeps the rules, and ``disturb`` to change the ``after`` of its attempts."""
    dice = random.Random(seed)
    story = Story()
    queues = [story.queue(name) for name in ("a", "b", "c")]
    subscribers = {queue: [story.subscriber(queue) for _ in range(queue % 3)] for queue in queues}
    done: dict[int, int] = {}
    parents: dict[int, list[int]] = {}
    homes: dict[int, int] = {}
    for _ in range(60):
        known = list(parents)
        chosen = dice.sample(known, min(len(known), dice.randrange(3)))
        queue = dice.choice(queues)
        message = story.publish(queue, *chosen)
        parents[message], homes[message] = chosen, queue
        for ready in [one for one in parents if one not in done and all(parent in done for parent in parents[one])]:
            if dice.random() < 0.5 or not subscribers[homes[ready]]:
                after = max([ready, *[done[parent] for parent in parents[ready]]])
                for number in subscribers[homes[ready]]:
                    story.attempt(ready, number, after=disturb(dice, after))
                done[ready] = story.last if subscribers[homes[ready]] else after
    return check(story.facts)


def test_random_logs(seed: int) -> None:
    """RULES 13 over random graphs: kept, nothing is found; with attempts a single record too early, they are."""
    found: list[Violation] = []
    for number in range(seed, seed + 10):
        assert _publish_and_deliver(number, lambda _, after: after) == []
        found += _publish_and_deliver(number, lambda dice, after: after - (dice.random() < 0.5))
    assert {one.rule for one in found} == {"gate"}
