"""Order of keys in the scheduler (RULES 6): of the messages of one key to one subscriber no attempt of a later one
begins before every earlier one has ended there.

Broken by hand to see these fail: the neighbour alone looked at; ``go_on`` left out of ``_end_all``; ``messages`` of a
checkpoint without all but the newest; ``through`` kept where a message comes in before it.
"""

from collections.abc import Callable

import pytest

from syncbrok.log.format.records import Gap
from syncbrok.log.offline.order import check
from syncbrok.model import limits
from syncbrok.model.facts import Carried, Outcome, RearmedEntry, Reason
from syncbrok.model.message import ParentFailure, RetryPolicy
from syncbrok.model.names import make_message_id
from tests.support.delivery.factlog import BROKEN, KEY, OK, FactLog, got, log_with, to

A_RETRY = 2.0
Way = Callable[[FactLog], int]


def retrying(log: FactLog) -> int:
    """The first message of the key is tried again in a second."""
    first = log.publish(1, key="k")
    (attempt,) = log.take()
    log.answer(attempt, BROKEN)
    log.commit()
    return first


def delayed(log: FactLog) -> int:
    """The first message of the key is not due yet."""
    return log.publish(1, key="k", delay_s=1)


def paused(log: FactLog) -> int:
    """The first message of the key is at a subscriber that is paused."""
    log.subscriber(1, 1, paused=True)
    return log.publish(1, key="k")


def cancelled(log: FactLog) -> int:
    message = log.publish(1, key="k")
    log.end_all(message, Outcome.DROPPED, Reason.CANCELLED)
    return message


def expired(log: FactLog) -> int:
    message = log.publish(1, key="k", expires_s=0.01)
    log.later(0.02)
    log.take()
    log.rows += log.scheduler.take_pending_ends(log.now_us, 10)
    log.commit()
    return message


def of_a_dead_parent(log: FactLog) -> int:
    parent = log.publish(1, delay_s=100)
    message = log.publish(1, parent, key="k")
    log.end_all(parent, Outcome.DEAD, Reason.GONE)
    log.take()
    log.rows += log.scheduler.take_pending_ends(log.now_us, 10)
    log.commit()
    return message


def skipped(log: FactLog) -> int:
    message = log.publish(1, key="k")
    log.end_all(message, Outcome.SKIPPED, Reason.NONE)
    return message


def crash(log: FactLog) -> None:
    log.restart()


def crash_with_checkpoint(log: FactLog) -> None:
    log.restart(through=len(log.facts))


def nothing(_: FactLog) -> None:
    """Go on."""


@pytest.mark.parametrize("between", [nothing, crash, crash_with_checkpoint])
@pytest.mark.parametrize("early", [cancelled, expired, of_a_dead_parent, skipped])
@pytest.mark.parametrize("first", [retrying, delayed, paused])
def test_one_that_ends_early_lets_nobody_pass(first: Way, early: Way, between: Callable[[FactLog], None]) -> None:
    """RULES 6: A waits, B of the same key ends early, C does not overtake A; after a crash, with a checkpoint or
    without, neither. Whoever comes when all of it has ended waits for nobody."""
    log = log_with(1, retry=FactLog().retry)
    a = first(log)
    b = early(log)
    assert log.scheduler.ended(b)
    between(log)
    c = log.publish(1, key="k")
    assert log.pump() == []
    assert log.scheduler.blocked_by(c) == (a,)
    if first is paused:
        log.subscriber(1, 1)
    log.later(A_RETRY)
    assert to(log.pump()) == [(a, 1), (c, 1)]
    assert not log.scheduler.state.keys.numbered
    assert check(log.facts) == []


@pytest.mark.parametrize("between", [nothing, crash, crash_with_checkpoint])
def test_one_that_is_delayed_held_or_waits_keeps_those_behind_it_back(between: Callable[[FactLog], None]) -> None:
    """RULES 6, 7, 12: whatever a message of the key waits for, those after it wait for it."""
    log = log_with(1)
    dead = log.publish(1)
    log.end_all(dead, Outcome.DEAD, Reason.GONE)
    held = log.publish(1, dead, key="held", policy=ParentFailure.HOLD)
    later = log.publish(1, key="delayed", delay_s=5)
    parent = log.publish(1, delay_s=10)
    waits = log.publish(1, parent, key="waits")
    behind = [log.publish(1, key=key) for key in ("held", "delayed", "waits")]
    between(log)
    assert log.pump() == []
    log.later(5)
    assert to(log.pump()) == [(later, 1), (behind[1], 1)]
    log.later(5)
    assert to(log.pump()) == [(parent, 1), (waits, 1), (behind[2], 1)]
    log.end_all(held, Outcome.DROPPED, Reason.CANCELLED)
    assert to(log.pump()) == [(behind[0], 1)]
    assert check(log.facts) == []


def test_an_early_end_at_one_subscriber_lets_nobody_pass_there() -> None:
    """RULES 6, 14: of what waits for a subscriber disabled for too long a later message died first; the first one is
    still to be tried when the subscriber comes back, and what is new waits for it."""
    log = log_with(1, 2, retry=FactLog().retry)
    log.subscriber(2, 1, paused=True)
    a = retrying(log)
    b = log.publish(1, key="k")
    log.pump()
    log.subscriber(1, 1, disabled_us=log.now_us)
    log.later(limits.disabled_max_s)
    log.take()
    log.rows += log.scheduler.take_pending_ends(log.now_us, 1)
    log.commit()
    assert log.scheduler.dead_letter(b, 1) is Reason.SUBSCRIBER_DISABLED
    assert not log.scheduler.ended(b)
    log.subscriber(1, 1)
    c = log.publish(1, key="k")
    assert to(log.pump()) == [(a, 1), (c, 1)]
    log.subscriber(2, 1)
    assert to(log.pump()) == [(a, 2), (b, 2), (c, 2)]
    assert check(log.facts) == []


def test_a_deleted_subscriber_keeps_nobody_back() -> None:
    """RULES 6, 14: its deliveries end with it; elsewhere the chain goes on."""
    log = log_with(1, 2)
    log.subscriber(1, 1, paused=True)
    a, b = log.publish(1, key="k"), log.publish(1, key="k")
    assert to(log.pump()) == [(a, 2), (b, 2)]
    log.unsubscribe(1)
    assert log.pump() == []
    assert not log.scheduler.state.keys.numbered
    c = log.publish(1, key="k")
    assert to(log.pump()) == [(c, 2)]


def test_a_message_that_retention_carries_keeps_its_place() -> None:
    """RULES 6, DESIGN 4: its record is gone, and with it those that have ended; what came after it waits for it."""
    log = log_with(1)
    log.subscriber(1, 1, paused=True)
    a = log.publish(1, key="k")
    cancelled(log)
    c = log.publish(1, key="k")
    opened = log.roll()
    d = log.publish(1, key="k")
    log.drop_before(opened)
    log.restart()
    e = log.publish(1, key="k")
    log.subscriber(1, 1)
    assert to(log.pump()) == [(a, 1), (c, 1), (d, 1), (e, 1)]
    assert check(log.facts) == []
    assert check(log.facts[log.gone :]) == []


@pytest.mark.parametrize("how", ["none", "checkpoint"])
def test_a_carried_message_whose_own_record_is_lost_takes_its_place(how: str) -> None:
    """RULES 6: salvage has lost the record of one, and what carries it stands behind those that come after it; after a
    start from a checkpoint too."""
    log = log_with(1, 2)
    log.subscriber(2, 1, paused=True)
    lost = log.add(lambda sequence, now: Gap(sequence, now, sequence, sequence, "lost"))
    b, c = log.publish(1, key="k"), log.publish(1, key="k")
    assert to(log.pump()) == [(b, 1), (c, 1)]
    d, e = log.publish(1, key="k", delay_s=1), log.publish(1, key="k")
    log.ids[lost] = make_message_id(log.now_us // 1000, lost, KEY)
    message = log.messages()[0]._replace(sequence=lost, id=log.ids[lost])
    log.add(lambda sequence, now: Carried(sequence, now, message, (), ()))
    log.start_again(how)
    assert to(log.take()) == [(lost, 1)]
    log.later(1)
    assert log.take() == []
    log.answer(log.out[0])
    log.commit()
    assert to(log.pump()) == [(d, 1), (e, 1)]
    log.subscriber(2, 1)
    assert to(log.pump()) == [(lost, 2), (b, 2), (c, 2), (d, 2), (e, 2)]
    assert not log.scheduler.state.keys.numbered


def test_what_was_tried_too_early_before_an_upgrade_waits_now() -> None:
    """RULES 6: a row of before the rule is believed, and the next attempt keeps the order."""
    log = log_with(1)
    a = delayed(log)
    c = log.publish(1, key="k")
    row = log.publish(1)
    (attempt,) = log.take()
    early = log.answer(attempt, BROKEN)._replace(message=c, outcome=Outcome.FAILED, due_us=log.now_us + 1)
    log.rows = [early]
    log.commit()
    log.restart()
    log.later(0.5)
    assert to(log.pump()) == [(row, 1)]
    log.later(A_RETRY)
    assert to(log.pump()) == [(a, 1), (c, 1)]
    assert log.attempts[-1].number == 2


def test_a_slow_subscriber_does_not_make_the_others_count_again() -> None:
    """RULES 6: each message of a chain is passed by once for each subscriber, however long the slowest keeps it. The
    place of one is forgotten with many, and worked out anew."""
    log = log_with(1, 2, window=8)
    log.subscriber(2, 1, paused=True)
    messages = [log.publish(1, key="k") for _ in range(300)]
    assert to(log.pump()) == [(message, 1) for message in messages]
    (chain,) = log.scheduler.state.keys.numbered.values()
    assert chain.through is not None
    assert chain.through[1] == messages[-1] or chain.through[1] == messages[-2]
    chain.through = dict.fromkeys(range(10, limits.key_places_max + 10), 0)
    last = log.publish(1, key="k")
    assert to(log.pump()) == [(last, 1)]
    assert len(chain.through) == 1


def test_what_has_ended_behind_one_that_waits_is_not_kept() -> None:
    """RULES 6: a chain holds what has not ended, and some; not everything that came since its first message."""
    log = log_with(1)
    a = delayed(log)
    for _ in range(2_000):
        cancelled(log)
    (chain,) = log.scheduler.state.keys.numbered.values()
    assert len(chain.messages) < 200
    c = log.publish(1, key="k")
    log.later(2)
    assert to(log.pump()) == [(a, 1), (c, 1)]


def test_the_next_of_a_key_is_waited_for() -> None:
    """RULES 24: a row that lets the next of the key go is not committed lazily; that of the last one is."""
    log = log_with(1)
    log.publish(1, key="k")
    log.publish(1, key="k")
    log.answer(log.take()[0], OK)
    assert log.urgent
    log.commit()
    log.answer(log.take()[0], OK)
    assert not log.urgent


def test_who_starts_in_the_past_gets_each_key_in_order() -> None:
    """RULES 6, 14: who starts in the past is not counted by what came before, and gets that in the order of its keys,
    whatever has become of it elsewhere."""
    log = log_with(1)
    log.subscriber(1, 1, paused=True)
    a, b, other = log.publish(1, key="k"), log.publish(1, key="k"), log.publish(1, key="other")
    log.subscriber(2, 1, start=1)
    log.feed()
    taken = log.take()
    assert to(taken) == [(a, 2), (other, 2)]
    log.answer(taken[0], BROKEN)
    log.commit()
    assert to(log.take()) == [(b, 2)]
    assert not check(log.facts)


@pytest.mark.parametrize("restart", ["none", "log", "checkpoint"])
def test_what_is_new_waits_for_those_of_its_key_from_before(restart: str) -> None:
    """RULES 6, 14: a new message with a key waits until the backfill has passed it and all of its key from before have
    ended there; one without a key, or at the others, goes at once."""
    log = log_with(1)
    old = [log.publish(1, key="k") for _ in range(3)]
    log.pump()
    log.subscriber(2, 1, start=1)
    new, free, other = log.publish(1, key="k"), log.publish(1), log.publish(1, key="other")
    assert to(log.take()) == [(new, 1), (free, 1), (other, 1), (free, 2)]
    log.feed_once(2)
    assert to(log.take()) == [(old[0], 2)], "keys of what is new wait until all that came before is known"
    log.feed()
    assert to(log.take()) == [(other, 2)]
    log.start_again(restart)
    if restart == "none":
        for attempt in list(log.out):
            log.answer(attempt)
        log.commit()
    log.feed()
    log.pump()
    assert [one for one in got(log, 2) if one in (*old, new)] == [*old, new]
    assert log.scheduler.message_state(new) == "complete"
    assert not check(log.facts)


def test_a_backfill_goes_on_however_many_new_keys_wait_for_it() -> None:
    """RULES 14: what waits for the backfill is not what the backfill waits for."""
    log = log_with(1)
    old = log.publish(1, key="k")
    log.pump()
    log.subscriber(2, 1, start=1)
    new = [log.publish(1, key=str(number)) for number in range(limits.window_max + 1)]
    log.pump()
    log.feed()
    log.pump()
    assert set(got(log, 2)) == {old, *new}


def test_a_key_of_a_queue_without_subscribers_costs_nothing() -> None:
    """RULES 6, 17: what nobody gets keeps nobody back."""
    log = log_with()
    parent = log.publish(1, delay_s=5)
    log.publish(1, parent, key="k")
    assert not log.scheduler.state.keys.numbered
    log.subscriber(1, 1)
    message = log.publish(1, key="k")
    assert to(log.pump()) == [(message, 1)]


def family_of_a_key(log: FactLog, count: int = 3) -> list[int]:
    """Messages of one key, all of which have died at subscriber 1."""
    messages = [log.publish(1, key="k") for _ in range(count)]
    log.pump(lambda _: BROKEN)
    assert set(log.states().values()) == {"dead"}
    return messages


def armed(
    messages: list[int], *, subscribers: tuple[int, ...] = (1,), key: str = "k", tries: tuple[int, ...] = (0, 0)
) -> list[RearmedEntry]:
    tries = tries[: len(subscribers)]
    return [RearmedEntry(one, 1, subscribers, (), tries, ParentFailure.FAIL, key) for one in messages]


@pytest.mark.parametrize("restart", ["none", "log", "checkpoint"])
def test_a_replay_keeps_the_order_of_a_key(restart: str) -> None:
    """RULES 6, 21: of one key a replayed message waits for those before it that are being replayed, in whatever replay,
    though one fails and is tried again."""
    log = log_with(1, retry=RetryPolicy((1.0,), 0.0))
    first, second, third = [log.publish(1, key="k") for _ in range(3)]
    log.end_all(first, Outcome.DROPPED, Reason.CANCELLED)
    log.end_all(second, Outcome.DROPPED, Reason.CANCELLED)
    log.end_all(third, Outcome.DROPPED, Reason.CANCELLED)
    log.rearm(1, *armed([first, third]))
    log.rearm(2, *armed([second]))
    (attempt,) = log.take()
    assert attempt.message == first
    log.answer(attempt, BROKEN)
    log.commit()
    assert log.take() == []
    log.start_again(restart)
    assert log.take() == [], "it is not due"
    log.later(2)
    log.pump()
    assert got(log, 1) == [first, second, third]
    assert not check(log.facts)


def test_a_replayed_message_waits_for_what_has_not_ended_and_never_the_other_way() -> None:
    """RULES 6, 21: what is live and came before it goes first; what is live never waits for a replay."""
    log = log_with(1, 2)
    log.subscriber(2, 1, paused=True)
    live, replayed = log.publish(1, key="k"), log.publish(1, key="k")
    log.pump()
    log.end_all(replayed, Outcome.DROPPED, Reason.CANCELLED)
    log.rearm(1, *armed([replayed], subscribers=(1, 2), tries=(1, 0)))
    assert to(log.pump()) == [(replayed, 1)], "at the other the first has not ended"
    later = log.publish(1, key="k")
    log.subscriber(2, 1)
    assert to(log.take()) == [(later, 1), (live, 2)]
    for attempt in list(log.out):
        log.answer(attempt)
    log.commit()
    assert to(log.take()) == [(replayed, 2), (later, 2)], "what is live does not wait for the replay"
    assert not check(log.facts)


def test_one_whose_earlier_message_is_given_up_in_a_replay_goes_on() -> None:
    """RULES 6, 21, 22: a cancel ends it in the replay, and a subscriber that is deleted keeps nobody back."""
    log = log_with(1, 2)
    first, second, third = family = [log.publish(1, key="k") for _ in range(3)]
    for one in family:
        log.end_all(one, Outcome.DROPPED, Reason.CANCELLED)
    log.subscriber(1, 1, paused=True)
    log.rearm(1, *armed(family, subscribers=(1, 2)))
    assert to(log.take()) == [(first, 2)]
    log.answer(log.out[0])
    log.commit()
    log.end_all(second, Outcome.DROPPED, Reason.CANCELLED)
    assert to(log.pump()) == [(third, 2)]
    log.unsubscribe(1)
    log.pump()
    assert not log.scheduler.state.replays
    assert not any(cursor.replay_lines for cursor in log.scheduler.state.cursors.values())
    assert not check(log.facts)


def test_a_replay_of_an_older_version_keeps_no_order_of_keys() -> None:
    """RULES 6: its record names no key, and nobody judges it by one."""
    log = log_with(1)
    family = family_of_a_key(log)
    log.rearm(1, *armed(family, key="", tries=(1,)))
    assert [message for message, _ in to(log.take())] == family
    for attempt in list(log.out):
        log.answer(attempt)
    log.commit()
    assert not check(log.facts)
