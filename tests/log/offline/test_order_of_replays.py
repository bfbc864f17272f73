"""The judge of the order, where messages come again: replays, retention, salvage."""

from syncbrok.log.offline.order import check
from syncbrok.model.facts import Outcome, RearmedEntry, Reason, Tried
from syncbrok.model.message import ParentFailure
from tests.support.log.judged import Pair, rules, waiting
from tests.support.log.story import Story


def test_attempt_numbers_go_up() -> None:
    """RULES 21: a number used twice is found, also after a replay."""
    pair = Pair()
    pair.story.attempt(pair.parent, pair.one, Outcome.FAILED)
    pair.story.attempt(pair.parent, pair.one, Outcome.DEAD, attempt=2)
    pair.story.rearm(1, RearmedEntry(pair.parent, pair.queue, (pair.one,), ()))
    pair.story.attempt(pair.parent, pair.one, Outcome.FAILED, attempt=3)
    assert rules(pair.story) == []
    pair.story.attempt(pair.parent, pair.one, attempt=3)
    assert rules(pair.story) == ["attempts"]


def test_replays_hold_their_own_gates() -> None:
    """RULES 21: inside a replay the child waits for the parent again; order is not compared with what was before."""
    pair = Pair()
    for number in (pair.one, pair.two):
        pair.story.attempt(pair.parent, number, Outcome.DEAD)
    pair.story.end(pair.child, Outcome.DEAD, Reason.PARENT_FAILED)
    both = (pair.one, pair.two)
    began = pair.story.rearm(
        7,
        RearmedEntry(pair.parent, pair.queue, both, ()),
        RearmedEntry(pair.child, pair.queue, both, (pair.parent,)),
    )
    pair.story.attempt(pair.parent, pair.one, attempt=2)
    early = pair.story.attempt(pair.child, pair.one)
    pair.story.attempt(pair.parent, pair.two, attempt=2)
    pair.story.attempt(pair.child, pair.two)
    assert [(one.rule, one.sequence) for one in check(pair.story.facts)] == [("gate", early)]
    assert began < early


def test_a_replay_waits_for_parents_that_were_complete() -> None:
    """RULES 21: with descendants a complete parent is sent again too, and its child waits for that second end."""
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
    pair.story.attempt(pair.child, pair.one, attempt=2)
    assert rules(pair.story) == ["gate"]


def test_a_mended_parent_opens_held_children() -> None:
    """RULES 12: a held child goes once a replay has made its parent complete, not before."""
    for mended in (Outcome.DELIVERED, Outcome.DEAD):
        pair = Pair(ParentFailure.HOLD)
        pair.story.attempt(pair.parent, pair.one)
        pair.story.attempt(pair.parent, pair.two, Outcome.DEAD)
        assert {one.why for one in waiting(pair.story)} == {"held"}
        pair.story.rearm(1, RearmedEntry(pair.parent, pair.queue, (pair.two,), ()))
        pair.story.attempt(pair.parent, pair.two, mended, attempt=2)
        pair.story.attempt(pair.child, pair.one)
        assert rules(pair.story) == ([] if mended is Outcome.DELIVERED else ["gate"])


def test_completion_never_goes_back() -> None:
    """RULES 21: sending a complete parent again holds back no child outside the replay."""
    pair = Pair()
    pair.story.attempt(pair.parent, pair.one)
    pair.story.attempt(pair.parent, pair.two)
    pair.story.rearm(1, RearmedEntry(pair.parent, pair.queue, (pair.one,), ()))
    pair.story.attempt(pair.child, pair.one)
    pair.story.attempt(pair.parent, pair.one, Outcome.DEAD, attempt=2)
    pair.story.attempt(pair.child, pair.two)
    assert rules(pair.story) == []


def test_retention_leaves_whole_stories() -> None:
    """RULES 2: what was dropped counts as complete, unless it is listed as bad; a carried message keeps its gate."""
    pair = Pair()
    pair.story.snapshot(bad=[(2, Outcome.DEAD)])
    start = pair.story.last
    orphan = pair.story.publish(pair.queue, 1)
    failed = pair.story.publish(pair.queue, 2)
    pair.story.carry(pair.story.message(pair.parent, pair.queue), [(pair.one, Outcome.DELIVERED)], [Tried(5, 3, 0)])
    pair.story.carry(pair.story.message(pair.child, pair.queue, [pair.parent]))
    pair.story.attempt(orphan, pair.one)
    kept = Story()
    kept.facts = pair.story.facts[start - 1 :]
    assert rules(kept) == []
    early = [*kept.facts]
    pair.story.attempt(pair.child, pair.one)
    pair.story.attempt(failed, pair.one)
    assert [one.rule for one in check([*early, *pair.story.facts[-2:]])] == ["gate", "gate"]


def test_a_carried_message_counts_those_it_counted() -> None:
    """RULES 3: a subscriber that came after a message holds back nothing, also where the message is carried."""
    story = Story(100)
    story.queue()
    one, late = story.subscriber(1), story.subscriber(1)
    story.subscribers[one] = story.subscribers[one]._replace(since=1)
    story.snapshot()
    parent = story.message(10, 1)
    story.carry(parent)
    child = story.publish(1, 10)
    story.attempt(10, one)
    story.attempt(child, one)
    kept = Story()
    kept.facts = story.facts[3:]
    assert rules(kept) == []
    assert [(left.message, left.subscriber) for left in waiting(kept)] == [(child, late)]


def test_carried_says_what_the_facts_say() -> None:
    """A message carried as ended where it was not would lose a delivery silently."""
    pair = Pair()
    pair.story.carry(pair.story.message(pair.parent, pair.queue), [(pair.one, Outcome.DELIVERED)])
    assert rules(pair.story) == ["carried"]


def test_sequences_and_snapshots() -> None:
    """Sequences have no holes that no Gap names, and a segment's snapshot says what the facts before it say."""
    story = Story()
    queue = story.queue()
    story.snapshot()
    assert rules(story) == []
    story.skip(3)
    story.publish(queue)
    assert rules(story) == ["sequence"]
    lying = Story()
    lying.queue()
    lying.subscriber(1)
    lying.subscribers.clear()
    lying.snapshot()
    assert rules(lying) == ["snapshot"]


def test_a_gap_is_not_judged() -> None:
    """What salvage names as lost may have been the completion of any parent before it: nobody is accused of that."""
    pair = Pair()
    pair.story.gap(pair.story.last + 1, pair.story.last + 4)
    pair.story.attempt(pair.child, pair.one)
    pair.story.attempt(pair.child, pair.one)
    assert rules(pair.story) == []
    pair.story.snapshot()
    parent = pair.story.publish(pair.queue)
    child = pair.story.publish(pair.queue, parent)
    pair.story.attempt(child, pair.one)
    assert rules(pair.story) == ["gate"]
