"""A replay written in slices, as the scheduler sees it: what is in the first has ended before the last is in the log
(RULES 21)."""

import itertools
import random

import pytest

from syncbrok.log.offline.order import check
from syncbrok.model.facts import Outcome, RearmedEntry, Reason
from syncbrok.model.message import ParentFailure, Scope
from syncbrok.model.names import sequence_of
from tests.support.delivery.factlog import BROKEN, OK, FactLog, dead_letters, log_with, some_answers, to

STARTS = ["", "from the log", "from a checkpoint"]


def start_again(log: FactLog, how: str) -> None:
    if how:
        log.restart(through=log.durable if "checkpoint" in how else None)


def slice_of(log: FactLog, message: int, *parents: int, at: tuple[int, ...] = (1,)) -> None:
    """A slice of replay 1, of this one message."""
    policy = next(fact.parent_failure for fact in log.messages() if fact.sequence == message)
    attempts = tuple(log.tries(message, number) for number in at)
    log.rearm(1, RearmedEntry(message, 1, at, parents, attempts, policy))


def two(policy: ParentFailure = ParentFailure.FAIL, *, well: bool = False) -> tuple[FactLog, int, int]:
    """A parent and its child, which both have ended."""
    log = log_with(1)
    parent = log.publish(1)
    child = log.publish(1, parent, policy=policy)
    log.pump() if well else log.pump(lambda _: BROKEN)
    if not log.scheduler.ended(child):
        log.end_all(child, Outcome.DROPPED, Reason.CANCELLED)
    return log, parent, child


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("well", [False, True])
def test_a_child_does_not_go_whose_parent_failed_in_an_earlier_slice(start: str, well: bool) -> None:
    """RULES 12 and 21: also where the parent had been complete, which it stays for everyone outside."""
    log, parent, child = two(well=well)
    slice_of(log, parent)
    assert to(log.pump(lambda _: BROKEN)) == [(parent, 1)]
    start_again(log, start)
    slice_of(log, child, parent)
    start_again(log, start)
    assert log.pump() == []
    assert dead_letters(log.scheduler, 1) == {parent: Reason.STATUS, child: Reason.PARENT_FAILED}
    assert set(log.states().values()) == {"complete" if well else "dead"}
    assert not log.scheduler.state.replays
    assert not log.scheduler.state.edges.in_replay
    assert not check(log.facts)


def test_a_parent_that_is_cancelled_between_two_slices_has_failed() -> None:
    """RULES 12, 21 and 22: of one that was complete before nothing else says so."""
    log, parent, child = two(well=True)
    slice_of(log, parent)
    log.end_all(parent, Outcome.DROPPED, Reason.CANCELLED)
    slice_of(log, child, parent)
    assert log.pump() == []
    assert dead_letters(log.scheduler, 1) == {child: Reason.PARENT_FAILED}


@pytest.mark.parametrize("start", STARTS)
def test_a_later_slice_is_on_hold_for_what_failed_in_an_earlier_one(start: str) -> None:
    """RULES 12: until another replay mends the parent."""
    log, parent, child = two(ParentFailure.HOLD)
    slice_of(log, parent)
    log.pump(lambda _: BROKEN)
    slice_of(log, child, parent)
    start_again(log, start)
    assert log.pump() == []
    assert log.scheduler.held_by(child) == (parent,)
    log.rearm(2, RearmedEntry(parent, 1, (1,), (), (2,)))
    assert to(log.pump()) == [(parent, 1), (child, 1)]
    assert set(log.states().values()) == {"complete"}
    assert not check(log.facts)


def test_a_later_slice_goes_whichever_way_where_its_policy_says_so() -> None:
    """RULES 12: ``deliver`` waits for the end only; and nobody is remembered as waiting then."""
    log, parent, child = two(ParentFailure.DELIVER)
    slice_of(log, parent)
    log.pump(lambda _: BROKEN)
    slice_of(log, child, parent)
    assert to(log.pump()) == [(child, 1)]
    assert not log.scheduler.state.edges.in_replay
    assert not check(log.facts)


@pytest.mark.parametrize("start", STARTS)
def test_a_later_slice_goes_where_its_parent_went_well_though_it_is_dead_elsewhere(start: str) -> None:
    """RULES 21: a replay to one subscriber holds the gates of that one, in one slice or in several."""
    log = log_with(1, 2)
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.pump(lambda _: BROKEN)
    slice_of(log, parent)
    assert to(log.pump()) == [(parent, 1)]
    assert log.scheduler.message_state(parent) == "dead"
    start_again(log, start)
    slice_of(log, child, parent)
    assert to(log.pump()) == [(child, 1)]
    assert not check(log.facts)


@pytest.mark.parametrize("policy", ParentFailure)
def test_a_parent_may_die_between_the_plan_and_the_log(policy: ParentFailure) -> None:
    """RULES 12 and 21: it had not ended when the plan was made, so that the child is to wait for it."""
    log = log_with(1)
    parent = log.publish(1)
    child = log.publish(1, parent, policy=policy)
    log.end_all(child, Outcome.DROPPED, Reason.CANCELLED)
    log.pump(lambda _: BROKEN)
    slice_of(log, child, parent)
    assert to(log.pump()) == ([(child, 1)] if policy is ParentFailure.DELIVER else [])
    assert (log.scheduler.message_state(child) == "held") == (policy is ParentFailure.HOLD)


def test_a_dead_child_goes_alone_where_an_operator_says_so() -> None:
    """RULES 21: its parent, dead and not chosen, is outside of the replay; also where an earlier replay of that has
    failed."""
    log, parent, child = two()
    slice_of(log, parent)
    log.pump(lambda _: BROKEN)
    log.rearm(2, RearmedEntry(child, 1, (1,), (), (0,)))
    assert to(log.pump()) == [(child, 1)]
    assert log.states() == {parent: "dead", child: "complete"}


def test_what_ended_in_one_replay_is_forgotten_with_the_next() -> None:
    """Or the memory of a broker would grow with every replay that fails."""
    log, parent, child = two()
    slice_of(log, parent)
    log.pump(lambda _: BROKEN)
    assert log.scheduler.state.ended_again == {parent: {1}}
    log.rearm(2, RearmedEntry(child, 1, (1,), (), (0,)))
    log.pump()
    assert log.scheduler.state.ended_again == {}


def test_slices_change_nothing(seed: int) -> None:
    """RULES 21: with the same answers the same goes out and stands in the end, in whatever slices a replay is written
    and worked, with a start from the log or a checkpoint between them or without."""
    for one in range(seed, seed + 20):
        whole, *cut = [in_slices(random.Random(one), slices, start) for slices in (1, 3) for start in STARTS]
        assert cut == [whole] * len(cut), one


def in_slices(chance: random.Random, slices: int, start: str) -> object:
    """What a random replay of random messages comes to."""
    log = log_with(1, 2)
    for _ in range(14):
        known = [message.sequence for message in log.messages()]
        above = chance.sample(known, min(len(known), chance.choice((0, 1, 1, 2))))
        log.publish(1, *above, policy=chance.choice(list(ParentFailure)), scope=chance.choice(list(Scope)))
    log.pump(some_answers(chance, 0.3))
    for message in log.scheduler.unended(None, None, 100):
        log.end_all(message, Outcome.DROPPED, Reason.CANCELLED)
    again = {message.sequence: tuple(sorted(chance.sample((1, 2), chance.choice((1, 2))))) for message in log.messages()
             if chance.random() < 0.8}  # fmt: skip
    failing = {(message, number) for message in again for number in (1, 2) if chance.random() < 0.3}
    entries = []
    for message in log.messages():
        if numbers := again.get(message.sequence):
            parents = tuple(parent for parent in map(sequence_of, message.parents) if parent in again)
            tried = tuple(log.tries(message.sequence, number) for number in numbers)
            entries.append(RearmedEntry(message.sequence, 1, numbers, parents, tried, message.parent_failure))
    cuts = sorted(chance.sample(range(1, len(entries)), 2)) if slices > 1 else []
    made = []
    for first, end in itertools.pairwise((0, *cuts, len(entries))):
        log.rearm(1, *entries[first:end])
        start_again(log, start)
        made += log.pump(lambda one: BROKEN if (one.message, one.subscriber) in failing else OK)
        start_again(log, start)
    assert not check(log.facts)
    held = {message: (entry.left, entry.held) for message, entry in log.scheduler.state.replays.items()}
    return sorted(to(made)), log.states(), held, [dead_letters(log.scheduler, number) for number in (1, 2)]
