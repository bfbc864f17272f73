"""What ends for ten thousand at once does not stop the broker: dependents are looked at in slices, whatever they wait
for."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from syncbrok.delivery.scheduler.cursor import Cursor
from syncbrok.model import limits
from syncbrok.model.facts import Outcomes, RearmedEntry
from syncbrok.model.message import ParentFailure
from tests.support.delivery.factlog import BROKEN, NO_RETRIES, OK, FactLog

CHILDREN = 2 * limits.cascade_slice + 100


def family(policy: ParentFailure) -> tuple[FactLog, int, list[int]]:
    """A parent to one subscriber, and its many children to another."""
    log = FactLog(NO_RETRIES)
    log.queue(1)
    log.queue(2, window=10)
    log.subscriber(1, 1)
    log.subscriber(2, 2)
    parent = log.publish(1)
    return log, parent, [log.publish(2, parent, policy=policy) for _ in range(CHILDREN)]


def end(log: FactLog, well: bool) -> None:
    """The parent, which is to go out next, ends; the row is durable."""
    attempts = log.scheduler.take(log.now_us, log.durable, 1)
    rows, _ = log.scheduler.settle([(one, OK if well else BROKEN) for one in attempts], log.now_us, lambda: 0.0)
    log.add(lambda sequence, now: Outcomes(sequence, now, tuple(rows)))


def eligible(log: FactLog) -> int:
    """How many children may go to their subscriber, or went."""
    cursor: Cursor = log.scheduler.state.cursors[2]
    return len(cursor.eligible) + len(cursor.in_flight)


def steps(log: FactLog, count: Callable[[FactLog], int]) -> list[int]:
    """By how many ``count`` grows with each call of ``take``, until it is that of all children."""
    grown = [0, count(log)]
    while grown[-1] < CHILDREN and len(grown) < 20:
        log.scheduler.take(log.now_us, log.durable, 1)
        grown.append(count(log))
    return [later - earlier for earlier, later in pairwise(grown)]


def on_hold(log: FactLog) -> int:
    return sum(map(len, log.scheduler.state.edges.on_hold.values()))


def test_children_go_on_hold_and_are_let_go_in_slices() -> None:
    """RULES 12: and with the ten thousandth it takes no longer than with the first."""
    log, parent, _ = family(ParentFailure.HOLD)
    end(log, well=False)
    holding = steps(log, on_hold)
    assert sum(holding) == CHILDREN
    assert max(holding) <= limits.cascade_slice
    log.rearm(1, RearmedEntry(parent, 1, (1,), (), (1,)))
    end(log, well=True)
    going = steps(log, eligible)
    assert sum(going) == CHILDREN
    assert max(going) <= limits.cascade_slice
    assert not log.scheduler.state.edges.on_hold


@pytest.mark.parametrize("policy", [ParentFailure.FAIL, ParentFailure.HOLD, ParentFailure.DELIVER])
def test_a_replayed_parent_lets_go_its_children_in_slices(policy: ParentFailure) -> None:
    """RULES 21."""
    log, parent, children = family(policy)
    log.pump()
    log.rearm(
        1, RearmedEntry(parent, 1, (1,), (), (1,)), *(RearmedEntry(c, 2, (2,), (parent,), (1,)) for c in children)
    )
    end(log, well=True)
    going = steps(log, eligible)
    assert sum(going) == CHILDREN
    assert max(going) <= limits.cascade_slice


def test_what_waits_by_itself_at_a_subscriber_is_let_go_in_slices() -> None:
    """RULES 3: at one that does not count children wait until their parent has ended there."""
    log = FactLog(NO_RETRIES)
    log.queue(1, window=10)
    log.subscriber(1, 1)
    log.subscriber(2, 1, counts=False)
    parent = log.publish(1)
    for _ in range(CHILDREN):
        log.publish(1, parent)
    to_counted, to_other = sorted(log.take(), key=lambda attempt: attempt.subscriber)
    log.answer(to_counted)
    log.commit()
    steps(log, lambda log: len(log.scheduler.state.cursors[1].eligible))
    assert eligible(log) == 1
    log.answer(to_other)
    log.commit()
    going = steps(log, eligible)
    assert sum(going) == CHILDREN
    assert max(going) <= limits.cascade_slice
