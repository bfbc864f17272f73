"""The two tables by which states change."""

from itertools import product

import pytest

from syncbrok.delivery import lifecycle
from syncbrok.delivery.lifecycle import DELIVERY, DELIVERY_IMPOSSIBLE, MESSAGE, MESSAGE_IMPOSSIBLE


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


@pytest.mark.parametrize("pair", sorted(MESSAGE_IMPOSSIBLE), ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_an_impossible_change_of_a_message_is_refused(
    pair: tuple[lifecycle.MessageState, lifecycle.MessageEvent],
) -> None:
    """RULES 12: the end of a message is decided once."""
    with pytest.raises(KeyError):
        lifecycle.message_after(*pair)


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
