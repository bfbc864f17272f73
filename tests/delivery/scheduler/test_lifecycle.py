"""The table by which the states of messages change, and the states of deliveries, which follow."""

import ast
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from syncbrok.delivery.handler import AttemptResult
from syncbrok.delivery.scheduler import lifecycle
from syncbrok.delivery.scheduler.lifecycle import MESSAGE, MESSAGE_IMPOSSIBLE, ForbiddenTransition
from syncbrok.delivery.scheduler.lifecycle import DeliveryState as D
from syncbrok.delivery.scheduler.lifecycle import MessageEvent as V
from syncbrok.delivery.scheduler.lifecycle import MessageState as M
from syncbrok.delivery.scheduler.message_chunk import CHUNK_SHIFT, MessageChunk
from syncbrok.delivery.scheduler.message_table import MessageTable
from syncbrok.model import limits
from syncbrok.model.facts import Outcome, Reason
from syncbrok.model.message import ParentFailure, RetryPolicy, Scope
from tests.support.delivery.factlog import BROKEN, OK, FactLog, log_with

MESSAGE_PAIRS = list(product(M, V))
FIRST = 5 << CHUNK_SHIFT
"""sequence of the message that the tests look at"""


def test_every_message_state_and_event_has_one_row_or_is_named_impossible() -> None:
    """RULES 9: nothing can happen to a message that nobody has thought of."""
    for pair in MESSAGE_PAIRS:
        assert (pair in MESSAGE) != (pair in MESSAGE_IMPOSSIBLE), pair


def way_to(state: M) -> list[V]:
    """Events that bring a message there, from nothing on; the fewest."""
    ways: dict[M, list[V]] = {M.NONE: []}
    reached = [M.NONE]
    for before in reached:
        for (start, event), after in MESSAGE.items():
            if start is before and after not in ways:
                ways[after] = [*ways[before], event]
                reached.append(after)
    return ways[state]


def happens(pair: tuple[M, V], change: Callable[[], object], state: Callable[[], int]) -> None:
    """The event leads where the table says; where it says nothing it is refused, and changes nothing."""
    assert state() == pair[0]
    if pair in MESSAGE:
        change()
        assert state() == MESSAGE[pair]
    else:
        with pytest.raises(
            ForbiddenTransition, match=f"{pair[1].name} cannot happen to a message that is {pair[0].name}"
        ):
            change()
        assert state() == pair[0]


def rows(state: M, count: int) -> MessageChunk:
    """So many messages in that state, one delivery left of each, at the first places of a chunk."""
    chunk = MessageChunk()
    for i in range(count):
        chunk.left[i] = 1
        for event in way_to(state):
            chunk.change(i, event)
    return chunk


@pytest.mark.parametrize("pair", MESSAGE_PAIRS, ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_a_message_goes_by_the_table_alone(pair: tuple[M, V]) -> None:
    """RULES 9, 12: the end of a message is decided once; whoever would end it again is stopped where states are
    written: for one message, for neighbours, for the last of many deliveries."""
    state, event = pair
    one, run, last = rows(state, 1), rows(state, 3), rows(state, 3)
    happens(pair, lambda: one.change(0, event), lambda: one.state[0])
    happens(pair, lambda: run.change_run(0, 3, event), lambda: run.state[0])
    assert len({run.state[i] for i in range(3)}) == 1
    happens(pair, lambda: last.count_down([2], event), lambda: last.state[2])
    assert (last.state[0], last.state[1]) == (state, state)
    many = rows(state, 40)
    happens(pair, lambda: many.count_down(list(range(5, 35)), event), lambda: many.state[20])
    assert {many.state[i] for i in range(5)} | {many.state[i] for i in range(35, 40)} == {state}
    assert len({many.state[i] for i in range(5, 35)}) == 1
    if M.NONE < state < M.COMPLETE:  # all that a thin chunk keeps
        thin = rows(state, 3)
        thin.make_thin()
        happens(pair, lambda: thin.change(0, event), lambda: thin.state[0])
        happens(pair, lambda: thin.change_run(1, 3, event), lambda: thin.state[2])


@pytest.mark.parametrize("thin", [False, True], ids=["dense", "thin"])
@pytest.mark.parametrize("pair", MESSAGE_PAIRS, ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_the_message_table_goes_by_the_transitions_alone(pair: tuple[M, V], thin: bool) -> None:
    """RULES 9, 12, 21: as above, for messages that begin, for those that have ended badly, and for those whose row is
    gone with their neighbours'. Only a replay changes what has ended, and only what has ended badly."""
    state, event = pair
    table = MessageTable()
    if thin:
        table.newest = FIRST + 1  # so its row is that of one carried from a segment that is gone
    if state is M.NONE:
        begun = lambda: table.state(FIRST) if table.knows(FIRST) else M.NONE  # noqa: E731
        happens(pair, lambda: table.accept(FIRST, 1, 0, 1, event, ()), begun)
        assert table.open == (begun() is not M.NONE)
        return
    first, *others = way_to(state)
    table.accept(FIRST, 1, 0, 1, first, ())
    for following in others:
        table.change(FIRST, following)
    assert table.open == (state < M.COMPLETE)
    happens(pair, lambda: table.change(FIRST, event), lambda: table.state(FIRST))
    after = MESSAGE.get(pair, state)
    assert (FIRST in table.bad) == (after in (M.DEAD, M.EXPIRED, M.DROPPED))
    assert table.open == (after < M.COMPLETE)


def test_nobody_is_changed_where_one_of_many_may_not() -> None:
    """RULES 12: a defect in the middle of a thousand neighbours leaves all as they are."""
    chunk = rows(M.WAITING, 3)
    chunk.change(1, V.ENDED_DROPPED)
    with pytest.raises(ForbiddenTransition, match="RELEASED cannot happen to a message that is DROPPED"):
        chunk.change_run(0, 3, V.RELEASED)
    assert [chunk.state[i] for i in range(3)] == [M.WAITING, M.DROPPED, M.WAITING]


def test_only_a_chunk_writes_states() -> None:
    """RULES 9: there is one place where a state changes. (What a checkpoint holds is taken over by ``restore``.)"""
    found = []
    for path in sorted(Path(lifecycle.__file__).parents[1].rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in [part for one in targets for part in (one.elts if isinstance(one, ast.Tuple) else [one])]:
                column = target.value if isinstance(target, ast.Subscript) else target
                name = column.attr if isinstance(column, ast.Attribute) else getattr(column, "id", "")
                if name == "_states" or (name in ("state", "states") and column is not target):
                    found.append(path.stem)
    assert set(found) == {"message_chunk"}


def test_completion_never_goes_back() -> None:
    """RULES 21: for everyone outside a replay, complete stays complete."""
    assert not [pair for pair in MESSAGE if pair[0] is M.COMPLETE]


def test_neighbours_are_counted_down_as_single_ones_are() -> None:
    """RULES 10: whatever stands beside each other, of each message one less is left, and it ends with the last."""
    print("seed 3")
    dice = random.Random(3)
    for _ in range(200):
        together, single = rows(M.PENDING, 60), rows(M.PENDING, 60)
        for i in range(60):
            together.queue[i] = single.queue[i] = i
            together.left[i] = single.left[i] = dice.choice((1, 1, 1, 2)) if dice.random() < 0.05 else 1
        first = dice.randrange(30)
        places = list(range(first, first + dice.randrange(1, 30)))
        if dice.random() < 0.3:
            dice.shuffle(places)
        assert together.count_down(places, V.ENDED_WELL) == [
            queue for i in places for queue in single.count_down([i], V.ENDED_WELL)
        ]
        assert [*together.state] == [*single.state]
        assert [*together.left] == [*single.left]


def test_what_is_on_hold_may_die() -> None:
    """RULES 10, 12: with scope ``same`` an attempt may have failed before another subscriber's failure puts the message
    on hold; when all the others are gone, it is dead."""
    log = log_with(1, 2, scope=Scope.SAME)
    parent = log.publish(1)
    child = log.publish(1, parent, policy=ParentFailure.HOLD, scope=Scope.SAME)
    first, second = log.take()
    log.answer(first)
    log.commit()
    (out,) = log.take()
    log.answer(second, BROKEN)
    log.answer(out, BROKEN)
    log.commit()
    assert log.scheduler.message_state(child) == "held"
    log.unsubscribe(2)
    log.take()
    assert log.scheduler.message_state(child) == "dead"


def test_a_start_may_skip_what_still_waits() -> None:
    """RULES 17: the end of a message that counts nobody may be applied before the end of its parent has been carried
    to it, which for many children is done in slices."""
    log = log_with(1)
    log.queue(2)
    parent = log.publish(1)
    children = [log.publish(2, parent) for _ in range(limits.cascade_slice)]
    log.pump()
    log.restart()
    assert {log.scheduler.message_state(child) for child in children} == {"complete"}
    assert log.pump() == []


def test_no_event_leads_to_nothing_and_none_stays() -> None:
    """RULES 9: 0 can stand for what is forbidden, and every event that is allowed changes something."""
    assert not [pair for pair, after in MESSAGE.items() if after in (M.NONE, pair[0])]


def test_a_delivery_ends_once() -> None:
    """RULES 10: more ends than deliveries that were counted are a defect, which stops where they are counted down."""
    table = MessageTable()
    table.accept(FIRST, 1, 0, 1, V.RELEASED, ())
    table.accept(FIRST + 1, 1, 0, 1, V.RELEASED, ())
    assert table.count_down(FIRST >> CHUNK_SHIFT, [0]) == [1]
    with pytest.raises(AssertionError, match="more deliveries"):
        table.count_down(FIRST >> CHUNK_SHIFT, [0])
    with pytest.raises(AssertionError, match="more deliveries"):
        table.one_less(FIRST)
    assert table.state(FIRST) is M.COMPLETE


def test_every_state_of_a_delivery_is_answered() -> None:
    """RULES 9: a delivery's state follows from where its cursor holds it and from what is known of its end; each that
    has a name is reached, and nothing else is answered."""
    log = log_with(1, retry=RetryPolicy((5.0,), 0.0))
    delivered, dead, expired, dropped, retrying, out, skipped = (
        log.publish(1, expires_s=9 * (i == 2)) for i in range(7)
    )
    child = log.publish(1, out)
    reached = [delivery_state(log, delivered)]
    attempts = {attempt.message: attempt for attempt in log.take()}
    reached += [delivery_state(log, out), delivery_state(log, child)]
    log.answer(attempts[delivered])
    log.answer(attempts[dead], AttemptResult(Reason.GONE, 410))
    log.answer(attempts[retrying], BROKEN)
    log.answer(attempts[skipped], AttemptResult(Reason.FILTERED))
    log.commit()
    log.end_all(dropped, Outcome.DROPPED, Reason.CANCELLED)
    reached += [delivery_state(log, one) for one in (delivered, dead, dropped, retrying, skipped)]
    log.scheduler.give_back([attempts[expired]])
    log.subscriber(1, 1, paused=True)
    reached.append(delivery_state(log, child))
    log.later(9)
    log.take()
    log.rows += log.scheduler.take_pending_ends(log.now_us, 100)
    log.commit()
    reached.append(delivery_state(log, expired))
    assert reached == [
        "pending", "in_flight", "blocked", "delivered", "dead", "dropped", "retrying", "skipped", "paused", "expired"
    ]  # fmt: skip
    assert {state.name.lower() for state in D} == set(reached)


def test_no_end_is_told_before_it_is_durable() -> None:
    """RULES 9, 24: between its answer and the fsync of its row a delivery is in flight still, however it was answered:
    one that dies of it was told to be delivered."""
    log = log_with(1)
    messages = {answer: log.publish(1) for answer in (OK, BROKEN, AttemptResult(Reason.GONE, 410))}
    attempts = {attempt.message: attempt for attempt in log.take()}
    for answer, message in messages.items():
        log.answer(attempts[message], answer)
    assert [delivery_state(log, message) for message in messages.values()] == ["in_flight"] * 3
    log.commit()
    assert [delivery_state(log, message) for message in messages.values()] == ["delivered", "dead", "dead"]


def delivery_state(log: FactLog, message: int) -> str:
    return log.scheduler.delivery_state(message, 1)
