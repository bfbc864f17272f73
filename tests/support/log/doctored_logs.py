"""Logs that break a promise, one for each rule and way: what an audit must find in them, and nothing else."""

from collections.abc import Callable
from typing import NamedTuple

from syncbrok.model.facts import DELETED_SUBSCRIBER, Fact, Outcome, RearmedEntry, Reason, Tried
from syncbrok.model.message import ParentFailure, Scope
from tests.support.log.judged import Pair
from tests.support.log.story import Story, message_id

_DIED_AT_ONE_GONE = (DELETED_SUBSCRIBER, Outcome.DEAD)


class Doctored(NamedTuple):
    """A story and what must be found in it: rule and record."""

    facts: list[Fact]
    findings: list[tuple[str, int]]


def _retained() -> Doctored:
    """What retention has left: carried messages keep their gates, a listed dead parent is failed (RULES 2), until it is
    delivered again. At one who is gone by then a carried parent may have ended before its child went there."""
    pair = Pair()
    left, nowhere = pair.story.subscriber(pair.queue), pair.story.queue("nowhere")
    slow = pair.story.publish(pair.queue)
    pair.story.attempt(slow, left)
    pair.story.snapshot(bad=[(2, Outcome.DEAD)])
    start = pair.story.last
    orphan, failed = pair.story.publish(pair.queue, 1), pair.story.publish(pair.queue, 2)
    through = pair.story.publish(pair.queue, pair.story.publish(nowhere, 2, policy=ParentFailure.HOLD))
    parent = pair.story.message(pair.parent, pair.queue)
    pair.story.carry(parent, [(pair.one, Outcome.DELIVERED)], [Tried(pair.two, 3, 0)])
    pair.story.carry(pair.story.message(pair.child, pair.queue, [pair.parent]))
    dead = pair.story.message(pair.parent - 1, pair.queue)
    pair.story.carry(dead, [_DIED_AT_ONE_GONE])
    pair.story.carry(dead, [_DIED_AT_ONE_GONE])
    pair.story.attempt(pair.parent - 1, pair.one)  # the only one whom it counts and who is there
    below = pair.story.publish(pair.queue, pair.parent - 1)
    pair.story.attempt(pair.story.publish(pair.queue, slow, scope=Scope.SAME), left)
    pair.story.unsubscribe(left)
    pair.story.carry(pair.story.message(slow, pair.queue))
    pair.story.attempt(slow, pair.one)
    pair.story.attempt(orphan, pair.one)
    early = [
        pair.story.attempt(pair.child, pair.one),
        pair.story.attempt(failed, pair.one),
        pair.story.attempt(below, pair.one),
    ]
    early.append(pair.story.attempt(through, pair.one))
    before = pair.story.last
    pair.story.attempt(2, pair.two)  # sent again; where it had failed nobody knows any more
    early.append(pair.story.attempt(failed, pair.two, Outcome.FAILED, after=before))
    pair.story.attempt(failed, pair.two, attempt=2)
    pair.story.attempt(through, pair.two)
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


def _replayed_to_one() -> Doctored:
    """RULES 21: a replay that is narrowed to one subscriber: the child waits there for the parent, at that one alone,
    though the parent stays a dead letter at the other; a later replay to the other is judged alike. One that sends the
    child to both is not as it was asked for."""
    pair = Pair()
    story = pair.story
    for number in (pair.one, pair.two):
        story.attempt(pair.parent, number, Outcome.DEAD)
    story.end(pair.child, Outcome.DEAD, Reason.PARENT_FAILED)
    early = []
    for replay, number in enumerate((pair.one, pair.two), 1):
        story.rearm(
            replay,
            RearmedEntry(pair.parent, pair.queue, (number,), (), (1,)),
            RearmedEntry(pair.child, pair.queue, (number,), (pair.parent,), (0,)),
            subscriber=number,
        )
        if number == pair.two:
            early.append(("gate", story.attempt(pair.child, number, Outcome.FAILED)))
        story.attempt(pair.parent, number, attempt=2)
        story.attempt(pair.child, number, attempt=1 + (number == pair.two))
    everywhere = RearmedEntry(pair.child, pair.queue, (pair.one, pair.two), (), (1, 2))
    early.append(("addressee", story.rearm(3, everywhere, subscriber=pair.two)))
    story.rearm(4, everywhere)
    return Doctored(story.facts, early)


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


def _ahead() -> Doctored:
    """RULES 13: what a row says of records that were not there yet when it was written shows nothing: neither hides it
    an attempt that began too early, nor puts it one in the wrong that did not."""
    pair = Pair()
    story = pair.story
    story.attempt(pair.parent, pair.one, after=story.last + 100)
    early = story.attempt(pair.child, pair.one, after=story.last + 100)
    low = story.attempt(pair.parent, pair.two)
    story.attempt(pair.child, pair.two, after=story.last + 100)
    first, second = (story.publish(pair.queue, key="k") for _ in range(2))
    behind = story.attempt(second, pair.one, after=story.last + 100)
    story.attempt(first, pair.one)
    return Doctored(story.facts, [("gate", early), ("inversion", low), ("key", behind)])


def _keys() -> Doctored:
    """RULES 6: the next of a key went out at a subscriber where the one before had not ended; one that had ended early
    let those behind it pass; an attempt began before an end whose record stands before its row. Before rules 2 only
    the neighbour counts, and where its record stands."""
    story = Story()
    queue = story.queue()
    one, two = story.subscriber(queue), story.subscriber(queue)
    first, second = story.publish(queue, key="k"), story.publish(queue, key="k")
    story.attempt(first, one, Outcome.DEAD)
    story.attempt(second, one)
    early = [story.attempt(second, two)]
    third, fourth = story.publish(queue, key="k"), story.publish(queue, key="k")
    story.end(third, Outcome.DROPPED, Reason.CANCELLED)
    early.append(story.attempt(fourth, two))
    began = story.last
    story.attempt(first, two)
    story.attempt(story.publish(queue, key="k"), two)
    fifth = story.publish(queue, key="k")
    early.append(story.attempt(fifth, two, after=began))
    story.snapshot(rules=1)
    old = [story.publish(queue, key="old") for _ in range(4)]
    story.end(old[1], Outcome.DROPPED, Reason.CANCELLED)
    story.attempt(old[2], one)
    story.attempt(old[3], one, after=old[3])
    early.append(story.attempt(old[3], two))
    story.snapshot()
    story.attempt(old[2], two, Outcome.DEAD)
    early.append(story.last)
    return Doctored(story.facts, [("key", record) for record in early])


def _keys_in_replays() -> Doctored:
    """RULES 6: a replayed message waits for those of its key before it, in whichever replay they are, and for one that
    never had ended; what is live waits for no replay, nor does a replay that an older version wrote."""
    story = Story()
    queue = story.queue()
    one, two = story.subscriber(queue), story.subscriber(queue)
    first, never, second, third = (story.publish(queue, key="k") for _ in range(4))
    for message in (first, second, third):
        story.end(message, Outcome.DEAD, Reason.STATUS)
    again = [RearmedEntry(message, queue, (one, two), (), (0, 0), key="k") for message in (first, second, third)]
    story.rearm(1, again[0])
    story.rearm(2, *again[1:])
    story.attempt(first, one)
    early = [story.attempt(second, one)]  # ``never`` has not ended there
    story.attempt(never, one)
    story.attempt(third, one)
    story.end(never, Outcome.DEAD, Reason.STATUS)
    early.append(story.attempt(second, two))  # ``first`` is in the other replay there
    began = story.last
    story.attempt(first, two, attempt=2)
    early.append(story.attempt(third, two, after=began))
    story.rearm(3, again[0])
    story.attempt(story.publish(queue, key="k"), two)
    story.rearm(4, again[1]._replace(key=""))
    story.attempt(second, two, attempt=3)
    return Doctored(story.facts, [("key", record) for record in early])


def _keys_uncounted() -> Doctored:
    """RULES 6: who starts in the past, and who does not count, gets a key in its order too. Before rules 3 nobody
    promised that."""
    story = Story()
    queue = story.queue()
    story.subscriber(queue)
    old = [story.publish(queue, key="k") for _ in range(3)]
    late, reader = story.subscriber(queue, start=old[0]), story.subscriber(queue, counts=False)
    story.attempt(old[0], late)
    early = [story.attempt(old[2], late)]
    new = [story.publish(queue, key="k") for _ in range(4)]
    story.attempt(old[1], late)
    story.attempt(new[0], late)
    story.attempt(new[0], reader, Outcome.FAILED)
    early.append(story.attempt(new[1], reader))
    story.attempt(new[0], reader, attempt=2)
    story.end(new[2], Outcome.DROPPED, Reason.CANCELLED)  # one row for all: nothing of it comes any more
    story.attempt(new[3], reader)
    last, later = story.publish(queue, key="other"), story.publish(queue, key="other")
    story.end(last, Outcome.DROPPED, Reason.RETENTION, reader)
    story.attempt(later, reader)
    story.snapshot(rules=2)
    story.publish(queue, key="k")
    story.attempt(story.publish(queue, key="k"), reader)
    return Doctored(story.facts, [("key", record) for record in early])


def _gate_uncounted() -> Doctored:
    """RULES 11: at one that does not count a child goes when its parents are complete and have ended there, either
    way; who only starts in the past waits until they have ended somehow."""
    story = Story()
    queue, elsewhere = story.queue(), story.queue("elsewhere")
    one, reader = story.subscriber(queue), story.subscriber(queue, counts=False)
    stranger = story.subscriber(elsewhere)
    parent, other = story.publish(queue), story.publish(elsewhere)
    child = story.publish(queue, parent, other)
    story.attempt(parent, one)
    story.attempt(other, stranger)
    early = [story.attempt(child, reader, Outcome.FAILED)]
    story.attempt(parent, reader, Outcome.DEAD)
    story.attempt(child, reader, attempt=2)
    dead = story.publish(queue)
    story.attempt(dead, one, Outcome.DEAD)
    story.attempt(dead, reader)
    below = story.publish(queue, dead, policy=ParentFailure.HOLD)
    early.append(story.attempt(below, reader, Outcome.FAILED))  # at none that counts it was complete
    late = story.subscriber(queue, start=dead)
    story.attempt(dead, late)
    story.attempt(below, late)
    passed = story.publish(queue)
    for number in (one, late):
        story.attempt(passed, number)
    story.end(passed, Outcome.DROPPED, Reason.CANCELLED)
    story.attempt(story.publish(queue, passed), reader)
    return Doctored(story.facts, [("gate", record) for record in early])


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
    """A message carried as ended where it was not would be lost silently; nor has it died at one that is gone, unless
    somebody is."""
    pair = Pair()
    pair.story.attempt(pair.parent, pair.two, Outcome.DEAD)
    parent = pair.story.message(pair.parent, pair.queue)
    wrong = [pair.story.carry(parent, [one]) for one in ((pair.one, Outcome.DELIVERED), _DIED_AT_ONE_GONE)]
    pair.story.unsubscribe(pair.two)
    pair.story.carry(parent, [_DIED_AT_ONE_GONE])
    return Doctored(pair.story.facts, [("carried", one) for one in wrong])


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
    pair.story.attempt(pair.parent, pair.one)
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


def _gone() -> Doctored:
    """A dead letter counts for how its message ends (RULES 10, 12), though the subscriber is deleted: what is on
    hold for it and goes out is early. Whoever is gone does not keep a replay from mending it."""
    pair = Pair(ParentFailure.HOLD)
    pair.story.attempt(pair.parent, pair.one, Outcome.DEAD)
    pair.story.unsubscribe(pair.one)
    pair.story.attempt(pair.parent, pair.two)
    early = pair.story.attempt(pair.child, pair.two, Outcome.FAILED)
    pair.story.rearm(1, RearmedEntry(pair.parent, pair.queue, (pair.two,), (), (1,), ParentFailure.FAIL))
    pair.story.attempt(pair.parent, pair.two, attempt=2)
    pair.story.attempt(pair.child, pair.two, attempt=2)
    return Doctored(pair.story.facts, [("gate", early)])


def _rows_for_gone() -> Doctored:
    """What a deleted subscriber had not got has ended with that; rows for it change nothing."""
    pair = Pair()
    pair.story.unsubscribe(pair.one)
    done = pair.story.attempt(pair.parent, pair.two)
    pair.story.attempt(pair.parent, pair.one)
    pair.story.attempt(pair.child, pair.two, after=done)
    return Doctored(pair.story.facts, [])


def _deleted_queue() -> Doctored:
    """What counted nobody ends with its queue, as dropped by an operator: its child may not go (RULES 12, 16)."""
    story = Story()
    queue, empty = story.queue("orders"), story.queue("empty")
    one = story.subscriber(queue)
    root = story.publish(queue)
    through = story.publish(empty, root, policy=ParentFailure.HOLD)
    child = story.publish(queue, through)
    lenient = story.publish(queue, through, policy=ParentFailure.DELIVER)
    story.attempt(root, one, Outcome.DEAD)
    story.delete_queue(empty)
    story.attempt(lenient, one)
    return Doctored(story.facts, [("gate", story.attempt(child, one))])


def _counted_from() -> Doctored:
    """RULES 3: who is counted from a later sequence on is no addressee before it."""
    story = Story()
    queue = story.queue()
    one = story.subscriber(queue)
    story.facts[-1] = story.facts[-1]._replace(since=story.last + 1)  # type: ignore[call-arg]
    early, late = story.publish(queue), story.publish(queue)
    wrong = story.attempt(early, one)
    story.attempt(late, one)
    return Doctored(story.facts, [("addressee", wrong)])


CASES: dict[str, Callable[[], Doctored]] = {
    "retained": _retained,  # first: only the beginning of a log may be missing
    "gate_all": lambda: _gate(Scope.ALL, ParentFailure.FAIL, Outcome.DELIVERED),
    "gate_same": lambda: _gate(Scope.SAME, ParentFailure.FAIL, Outcome.DELIVERED),
    "gate_fail": lambda: _gate(Scope.ALL, ParentFailure.FAIL, Outcome.DEAD),
    "gate_hold": lambda: _gate(Scope.ALL, ParentFailure.HOLD, Outcome.DEAD),
    "gate_deliver": lambda: _gate(Scope.ALL, ParentFailure.DELIVER, Outcome.DEAD),
    "through_nobody": _through_nobody,
    "replayed": _replayed,
    "replayed_to_one": _replayed_to_one,
    "ends": _ends,
    "addressees": _addressees,
    "ahead": _ahead,
    "keys": _keys,
    "keys_in_replays": _keys_in_replays,
    "keys_uncounted": _keys_uncounted,
    "gate_uncounted": _gate_uncounted,
    "parents": _parents,
    "carried": _carried,
    "sequences": _sequences,
    "snapshot": _snapshot,
    "gap": _gap,
    "gone": _gone,
    "rows_for_gone": _rows_for_gone,
    "deleted_queue": _deleted_queue,
    "counted_from": _counted_from,
    "sound": _sound,
}
