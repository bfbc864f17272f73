"""What the scheduler knows after a start from a log whose beginning retention has dropped, without a checkpoint."""

import random

import pytest

from syncbrok.delivery.handler import AttemptResult
from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.log.format.records import Gap
from syncbrok.log.offline.order import check
from syncbrok.model.facts import DELETED_SUBSCRIBER, Carried, Outcome, Outcomes, RearmedEntry, Reason
from syncbrok.model.message import ParentFailure, RetryPolicy, Scope
from syncbrok.model.names import make_message_id, sequence_of
from tests.support.delivery.factlog import BROKEN, KEY, OK, FactLog, dead_letters, log_with, some_answers, to

LATER = RetryPolicy((60.0,), 0.0)


def drop(log: FactLog, opened: int) -> None:
    """What stands before that segment, and start."""
    log.drop_before(opened)
    log.restart()


def dead_at_one(*more: int) -> tuple[FactLog, int]:
    """A message that died at subscriber 1 and waits for subscriber 2, which is paused."""
    log = log_with(1, 2, *more)
    log.subscriber(2, 1, paused=True)
    message = log.publish(1)
    log.pump(lambda _: BROKEN)
    return log, message


def test_a_child_in_a_younger_segment_waits_for_a_carried_parent() -> None:
    """RULES 13: the record that carries the parent stands behind the child, which must not be taken for one whose
    parents are complete."""
    log = log_with(1, retry=LATER)
    parent = log.publish(1)
    log.pump(lambda _: BROKEN)
    opened = log.roll()
    child = log.publish(1, parent)
    drop(log, opened)
    assert log.pump() == []
    log.later(60)
    assert to(log.pump()) == [(parent, 1), (child, 1)]
    assert not check(log.facts)


@pytest.mark.parametrize("scope", list(Scope))
@pytest.mark.parametrize("policy", list(ParentFailure))
def test_a_child_that_stands_right_behind_what_salvage_lost_goes_out(policy: ParentFailure, scope: Scope) -> None:
    """RULES 2 and 28: a parent whose record is lost counts as complete; nobody waits for it for ever."""
    log = log_with(1)
    lost = log.add(lambda sequence, now: Gap(sequence, now, sequence, sequence, "lost"))
    log.ids[lost] = make_message_id(log.now_us // 1000, lost, KEY)
    child = log.publish(1, lost, policy=policy, scope=scope)
    assert to(log.pump()) == [(child, 1)]
    assert not check(log.facts)


@pytest.mark.parametrize("carried", [False, True])
def test_a_child_is_on_hold_for_a_parent_that_is_gone(carried: bool) -> None:
    """RULES 2 and 12: the newest snapshot says how the parent ended, wherever the child stands."""
    log = log_with(1)
    parent = log.publish(1)
    log.pump(lambda _: BROKEN)
    children = {True: log.publish(1, parent, policy=ParentFailure.HOLD)}
    opened = log.roll()
    children[False] = log.publish(1, parent, policy=ParentFailure.HOLD)
    drop(log, opened)
    assert log.scheduler.message_state(children[carried]) == "held"
    assert log.pump() == []


def test_a_child_of_scope_same_stays_where_its_carried_parent_died() -> None:
    """RULES 11: and the dead letter is still one, with its reason where its row is there."""
    log, parent = dead_at_one()
    child = log.publish(1, parent, scope=Scope.SAME)
    drop(log, log.roll())
    assert log.pump() == []
    assert dead_letters(log.scheduler, 1) == {parent: Reason.NONE}
    log.subscriber(2, 1)
    assert to(log.pump()) == [(parent, 2)]
    assert (log.scheduler.message_state(parent), log.scheduler.message_state(child)) == ("dead", "dead")


def test_a_row_of_a_carried_message_is_not_counted_again() -> None:
    """RULES 10: the row stands in a younger segment than its message, and the record that carries that knows of it."""
    log = log_with(1, 2, 3)
    log.subscriber(2, 1, paused=True)
    message = log.publish(1)
    opened = log.roll()
    log.pump(lambda one: BROKEN if one.subscriber == 3 else OK)
    drop(log, opened)
    assert log.scheduler.pending_deliveries(message) == (2,)
    assert dead_letters(log.scheduler, 3) == {message: Reason.STATUS}
    log.subscriber(2, 1)
    assert to(log.pump()) == [(message, 2)]
    assert log.scheduler.message_state(message) == "dead"
    assert not any(cursor.ended_out_of_order for cursor in log.scheduler.state.cursors.values()), (
        "or none has runs any more"
    )


def test_a_message_whose_own_record_was_lost_in_a_gap_goes_on_where_it_was() -> None:
    """DESIGN 4: what is known of it is what carries it, in the middle of the log (``syncbrok log salvage``); where it
    has ended is known to its children of scope same."""
    log = log_with(1, 2, 3, window=1)  # it is out alone, before its subscriber has looked at anything behind it
    for number in (2, 3):
        log.subscriber(number, 1, paused=True)
    message = log.publish(1)
    log.pump()
    log.drop_before(log.roll())
    log.gone = 0
    log.scheduler = Scheduler()
    for fact in log.facts:
        if not (isinstance(fact, Outcomes) or fact.sequence == message):
            log.scheduler.apply(fact)
    assert log.scheduler.pending_deliveries(message) == (2, 3)
    log.subscriber(2, 1)
    assert to(log.pump()) == [(message, 2)]
    child = log.publish(1, message, scope=Scope.SAME)
    assert sorted(to(log.pump())) == [(child, 1), (child, 2)]
    log.subscriber(3, 1)
    assert to(log.pump()) == [(message, 3), (child, 3)]
    assert not log.scheduler.unended(None, None, 1)


def test_what_died_at_a_subscriber_that_is_gone_ends_dead() -> None:
    """RULES 10: the first end is decided by everyone whom the message counted, however often it is carried."""
    log, parent = dead_at_one()
    child = log.publish(1, parent)
    log.unsubscribe(1)
    for _ in range(2):
        drop(log, log.roll())
    carried = [fact for fact in log.facts if isinstance(fact, Carried) and fact.message.sequence == parent]
    assert [fact.ended for fact in carried] == [((DELETED_SUBSCRIBER, Outcome.DEAD),)] * 2
    log.subscriber(2, 1)
    log.pump()
    assert (log.scheduler.message_state(parent), log.scheduler.message_state(child)) == ("dead", "dead")
    assert not check(log.facts)
    assert not check(log.facts[log.gone :])


def test_what_was_mended_is_complete_though_an_old_snapshot_says_dead() -> None:
    """RULES 21: completion never goes back; of what is gone only the newest snapshot speaks."""
    log = log_with(1, retry=LATER)
    message = log.publish(1)
    log.pump(lambda _: BROKEN)
    log.drop_before(log.roll())  # it is carried
    log.later(60)
    log.pump(lambda _: BROKEN)
    listed = log.roll()
    log.rearm(1, RearmedEntry(message, 1, (1,), (), (2,)))
    assert to(log.pump()) == [(message, 1)]
    assert log.scheduler.message_state(message) == "complete"
    drop(log, listed)
    assert log.scheduler.message_state(message) == "complete"
    child = log.publish(1, message)
    assert to(log.pump()) == [(child, 1)]


def test_a_replay_to_one_does_not_mend_what_died_elsewhere_before_the_log_begins() -> None:
    """RULES 12 and 21: of a message that is gone it is known that it ended badly, not where; what a replay did with it
    is part of that, and a message of the same replay that waits for it is not sent."""
    log = log_with(1, 2)
    parent = log.publish(1)
    held = log.publish(1, parent, policy=ParentFailure.HOLD)
    log.pump(lambda _: BROKEN)
    opened = log.roll()
    child = log.publish(1, parent)
    log.pump()
    log.rearm(1, RearmedEntry(parent, 1, (1,), (), (1,)))
    assert to(log.pump()) == [(parent, 1)]
    log.rearm(2, RearmedEntry(parent, 1, (1,), (), (2,)), RearmedEntry(child, 1, (1,), (parent,), (0,)))
    drop(log, opened)
    assert log.pump() == []
    states = {one: log.scheduler.message_state(one) for one in (parent, child, held)}
    assert states == {parent: "dead", child: "dead", held: "held"}


def test_what_died_at_one_and_was_mended_there_is_complete_after_a_start() -> None:
    """RULES 12 and 21: a child of scope same got to one subscriber, died of its parent at the other, and went there in
    a replay. Where the parent's record is gone the child is taken for one without parents, and has ended well."""
    log = log_with(1, 2, retry=LATER)
    parent = log.publish(1)
    opened = log.roll()
    child = log.publish(1, parent, scope=Scope.SAME)
    assert to(log.pump(lambda one: BROKEN if one.subscriber == 2 else OK)) == [(parent, 1), (parent, 2), (child, 1)]
    log.later(60)
    log.pump(lambda _: BROKEN)
    assert log.states() == {parent: "dead", child: "dead"}
    log.rearm(1, RearmedEntry(parent, 1, (2,), (), (2,)), RearmedEntry(child, 1, (2,), (parent,), (0,)))
    assert to(log.pump()) == [(parent, 2), (child, 2)]
    assert log.states() == {parent: "complete", child: "complete"}
    drop(log, opened)
    assert log.scheduler.message_state(child) == "complete"


def test_what_nobody_gets_and_was_cancelled_before_its_parent_ended_stays_cancelled() -> None:
    """RULES 17 and 13: recovery knows of the parent's end before it hears of the message, and must not take that for
    nothing being left to wait for."""
    log = log_with(1, retry=LATER)
    log.queue(2)
    parent = log.publish(1)
    opened = log.roll()
    child = log.publish(2, parent, policy=ParentFailure.DELIVER)
    log.end_all(child, Outcome.DROPPED, Reason.CANCELLED)
    log.end_all(parent, Outcome.DROPPED, Reason.CANCELLED)
    states = log.states()
    drop(log, opened)
    assert log.states() == states == {parent: "dropped", child: "dropped"}
    assert not check(log.facts)


def test_what_nobody_gets_and_was_cancelled_after_it_was_carried_stays_cancelled() -> None:
    """RULES 17 and 13: the same where its own record is gone. That it was carried says that it had not ended; that its
    parent has ended before says nothing, since the row of its own end may still come."""
    log = log_with(1, retry=LATER)
    log.queue(2)
    parent = log.publish(1)
    child = log.publish(2, parent)
    log.answer(*log.take())
    log.commit()  # the parent is complete, and the row that ends the child is not written yet
    opened = log.roll()
    log.drop_before(opened)
    log.end_all(child, Outcome.DROPPED, Reason.CANCELLED)
    states = log.states()
    assert states[child] == "dropped"
    log.restart()
    assert log.states() == states
    assert not check(log.facts)


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_early_and_nothing_forgotten(seed: int) -> None:
    """The same over random histories: each start knows how every message ended and which are on hold, and the facts,
    those that are gone among them, keep every promise."""
    chance = random.Random(seed)
    log = log_with(1, 2, retry=RetryPolicy((5.0,), 0.0), window=4)
    log.queue(2, Scope.SAME)
    log.subscriber(3, 2)
    segments: list[int] = []
    for step in range(150):
        _act(log, chance)
        if step == 75:
            log.unsubscribe(2)
            log.subscriber(4, 1)
        if chance.random() < 0.06:
            segments.append(log.roll())
        if segments and chance.random() < 0.04:
            opened = chance.choice(segments)
            log.drop_before(opened)
            segments = [one for one in segments if one > log.gone + 1]
            before = _told(log)
            log.restart()
            assert _told(log) == before
        log.later(chance.choice((0, 0, 1, 3)))
    for _ in range(8):
        log.pump()
        log.later(30)
    assert not check(log.facts)
    assert not check(log.facts[log.gone :])


def _told(log: FactLog) -> dict[int, str]:
    """How each message stands; what is on its way is not told apart."""
    ended = log.scheduler.ended
    return {one: state if ended(one) or state == "held" else "open" for one, state in log.states().items()}


def _act(log: FactLog, chance: random.Random) -> None:
    known = [message.sequence for message in log.messages()]
    match chance.choices(("publish", "pump", "cancel", "replay"), (12, 4, 1, 1))[0]:
        case "publish":
            parents = chance.sample(known[-12:], min(len(known), chance.choice((0, 0, 1, 1, 2))))
            how = {"policy": chance.choice(list(ParentFailure)), "scope": chance.choice(list(Scope))}
            log.publish(chance.choice((1, 1, 2)), *parents, key=chance.choice(("", "", "k")), **how)
        case "pump":
            log.pump(some_answers(chance, 0.25))
        case "cancel":
            waiting = [one for one in known if not log.scheduler.ended(one)]
            if waiting:
                log.end_all(chance.choice(waiting), Outcome.DROPPED, Reason.CANCELLED)
        case _:
            _replay(log, chance)


def _replay(log: FactLog, chance: random.Random) -> None:
    number = chance.choice(sorted(log.scheduler.state.cursors))
    dead = [one for one in dead_letters(log.scheduler, number) if log.scheduler.ended(one) and log.can_be_read(one)]
    queue = log.scheduler.state.cursors[number].subscriber.queue
    above = {one.sequence: list(map(sequence_of, one.parents)) for one in log.messages()}
    entries = []
    for one in sorted(dead):
        parents = tuple(parent for parent in above[one] if parent in dead or not log.scheduler.ended(parent))
        entries.append(RearmedEntry(one, queue, (number,), parents, (log.tries(one, number),)))
    if entries:
        log.rearm(len(log.facts), *entries)


def test_a_skipped_delivery_is_carried_as_one_and_forgotten_with_the_log() -> None:
    """RULES 9 and 31: of a message that retention takes along it is still known that a filter passed it by. Of what has
    ended and gone nothing is kept."""
    log = log_with(1, 2)
    log.subscriber(2, 1, paused=True)
    message = log.publish(1)
    for attempt in log.take():
        log.answer(attempt, AttemptResult(Reason.FILTERED))
    log.commit()
    assert log.scheduler.delivery_state(message, 1) == "skipped"
    assert log.scheduler.carry(message) == (((1, Outcome.SKIPPED),), ())
    opened = log.roll()
    drop(log, opened)
    assert log.scheduler.delivery_state(message, 1) == "skipped"
    assert not log.scheduler.forget_skipped(message, 100), "it has not ended"
    assert log.scheduler.delivery_state(message, 1) == "skipped"
    log.subscriber(2, 1)
    log.pump()
    assert log.scheduler.forget_skipped(message, 1)
    assert log.scheduler.delivery_state(message, 1) == "delivered", "nothing is known of it any more"


def test_what_retention_takes_of_a_replay_has_ended_there() -> None:
    """RULES 6, 21: it cannot be sent any more, a row says so, and what waits for it in the replay waits no longer; a
    start that has lost the replay's own record sends nothing of it either."""
    log = log_with(1, retry=RetryPolicy((), 0.0))
    first, second = log.publish(1, key="a"), log.publish(1, key="a")
    log.pump(lambda _: BROKEN)
    opened = log.roll()
    third = log.publish(1, second, key="a", policy=ParentFailure.DELIVER)
    log.pump(lambda _: BROKEN)
    log.subscriber(1, 1, paused=True)
    entries = [RearmedEntry(one, 1, (1,), (), (1,), key="a") for one in (first, second)]
    log.rearm(1, *entries, RearmedEntry(third, 1, (1,), (second,), (1,), ParentFailure.DELIVER, "a"))
    log.drop_before(opened)
    rows = [row for fact in log.facts[opened:] if isinstance(fact, Outcomes) for row in fact.rows]
    lost = [(row.message, row.outcome) for row in rows if row.reason is Reason.CONTENT_LOST]
    assert lost == [(first, Outcome.DEAD), (second, Outcome.DEAD)]
    log.restart()
    log.subscriber(1, 1)
    assert to(log.pump()) == [(third, 1)]
    assert sorted(dead_letters(log.scheduler, 1)) == [first, second]
    assert not check(log.facts)
