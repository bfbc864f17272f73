"""The two tables by which states change."""

import ast
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from syncbrok.delivery import lifecycle
from syncbrok.delivery.chunk import CHUNK_SHIFT, Chunk
from syncbrok.delivery.ledger import Ledger
from syncbrok.delivery.lifecycle import (
    DELIVERY,
    DELIVERY_IMPOSSIBLE,
    MESSAGE,
    MESSAGE_IMPOSSIBLE,
    ForbiddenTransition,
)
from syncbrok.delivery.lifecycle import MessageEvent as V
from syncbrok.delivery.lifecycle import MessageState as M


def test_every_delivery_state_and_event_has_one_row_or_is_named_impossible() -> None:
    """RULES 9: nothing can happen to a delivery that nobody has thought of."""
    for pair in product(lifecycle.DeliveryState, lifecycle.DeliveryEvent):
        assert (pair in DELIVERY) != (pair in DELIVERY_IMPOSSIBLE), pair


def test_every_message_state_and_event_has_one_row_or_is_named_impossible() -> None:
    """RULES 9: nothing can happen to a message that nobody has thought of."""
    for pair in product(lifecycle.MessageState, lifecycle.MessageEvent):
        assert (pair in MESSAGE) != (pair in MESSAGE_IMPOSSIBLE), pair


@pytest.mark.parametrize("pair", sorted(DELIVERY_IMPOSSIBLE), ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_an_impossible_change_of_a_delivery_is_refused(
    pair: tuple[lifecycle.DeliveryState, lifecycle.DeliveryEvent],
) -> None:
    """RULES 9: a defect that would end a delivery twice stops there and does not reach the log."""
    with pytest.raises(KeyError):
        lifecycle.delivery_after(*pair)


MESSAGE_PAIRS = list(product(M, V))
FIRST = 5 << CHUNK_SHIFT
"""sequence of the message that the tests look at"""


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


def rows(state: M, count: int) -> Chunk:
    """So many messages in that state, one delivery left of each, at the first places of a chunk."""
    chunk = Chunk()
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
    if M.NONE < state < M.COMPLETE:  # all that a thin chunk keeps
        thin = rows(state, 3)
        thin.make_thin()
        happens(pair, lambda: thin.change(0, event), lambda: thin.state[0])
        happens(pair, lambda: thin.change_run(1, 3, event), lambda: thin.state[2])


@pytest.mark.parametrize("thin", [False, True], ids=["dense", "thin"])
@pytest.mark.parametrize("pair", MESSAGE_PAIRS, ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_the_ledger_goes_by_the_table_alone(pair: tuple[M, V], thin: bool) -> None:
    """RULES 9, 12, 21: as above, for messages that begin, for those that have ended badly, and for those whose row is
    gone with their neighbours'. Only a replay changes what has ended, and only what has ended badly."""
    state, event = pair
    ledger = Ledger()
    if thin:
        ledger.newest = FIRST + 1  # so its row is that of one carried from a segment that is gone
    if state is M.NONE:
        begun = lambda: ledger.state(FIRST) if ledger.knows(FIRST) else M.NONE  # noqa: E731
        happens(pair, lambda: ledger.accept(FIRST, 1, 0, 1, event, ()), begun)
        assert ledger.open == (begun() is not M.NONE)
        return
    first, *others = way_to(state)
    ledger.accept(FIRST, 1, 0, 1, first, ())
    for following in others:
        ledger.change(FIRST, following)
    assert ledger.open == (state < M.COMPLETE)
    happens(pair, lambda: ledger.change(FIRST, event), lambda: ledger.state(FIRST))
    after = MESSAGE.get(pair, state)
    assert (FIRST in ledger.bad) == (after in (M.DEAD, M.EXPIRED, M.DROPPED))
    assert ledger.open == (after < M.COMPLETE)


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
    for path in sorted((Path(lifecycle.__file__).parent).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in [part for one in targets for part in (one.elts if isinstance(one, ast.Tuple) else [one])]:
                column = target.value if isinstance(target, ast.Subscript) else target
                name = column.attr if isinstance(column, ast.Attribute) else getattr(column, "id", "")
                if name == "_states" or (name in ("state", "states") and column is not target):
                    found.append(path.stem)
    assert set(found) == {"chunk"}


def test_completion_never_goes_back() -> None:
    """RULES 21: for everyone outside a replay, complete stays complete."""
    assert not [pair for pair in MESSAGE if pair[0] is lifecycle.MessageState.COMPLETE]


def test_the_diagram_in_the_docstring_is_the_table() -> None:
    """Who reads the file's first page reads what the code does."""
    drawn = set()
    for line in (lifecycle.__doc__ or "").splitlines():
        if "--" not in line or "-->" not in line:
            continue
        before, event, after = line.strip().replace("-->", "--").split("--")
        for state, result in product(before.split("|"), after.split("|")):
            drawn.add((state.strip(), event.strip(), result.strip()))
    ending = {"parent_failed", "expired", "dropped", "filtered", "abandoned"}
    for (state, event), after in DELIVERY.items():
        name = event.name.lower()
        if name in ending:
            assert ("BLOCKED", "ended", after.name) in drawn
        else:
            assert (state.name, name, after.name) in drawn
