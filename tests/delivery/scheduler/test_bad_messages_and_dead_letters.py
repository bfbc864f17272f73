"""What is kept for ever is kept small, and says what dictionaries of the same would (RULES 2, 20, 34)."""

import random

import pytest

from syncbrok.delivery.scheduler.bad_messages import Bad, BadMessages
from syncbrok.delivery.scheduler.dead_letters import DeadLetters
from syncbrok.delivery.scheduler.lifecycle import MessageState
from syncbrok.delivery.scheduler.sequence_set import SequenceSet
from syncbrok.model.facts import Reason

WAYS = [
    Bad(MessageState.DEAD, Reason.STATUS, 1),
    Bad(MessageState.EXPIRED, Reason.EXPIRED, 1, (2, 3)),
    Bad(MessageState.DROPPED, Reason.CANCELLED, 2),
    Bad(MessageState.DEAD, Reason.NONE, 0),
]


@pytest.mark.parametrize("spread", [3_000, 20_000, 10_000_000])
def test_bad_messages_are_a_dictionary(seed: int, spread: int) -> None:
    """Dense, in blocks with few, and scattered; also after a checkpoint."""
    dice, bad, expected = random.Random(seed), BadMessages(), dict[int, Bad]()
    for _ in range(4_000):
        one = dice.randrange(1, spread)
        if dice.random() < 0.7:
            bad[one] = expected[one] = dice.choice(WAYS)
        elif one in expected:
            del bad[one], expected[one]
        assert bad.get(one) == expected.get(one)
        assert (one in bad) == (one in expected)
    again = BadMessages()
    again.load(**bad.dump())
    for found in (bad, again):
        assert len(found) == len(expected)
        assert list(found.items()) == sorted(expected.items())
    with pytest.raises(KeyError):
        del bad[spread]
    with pytest.raises(KeyError):
        bad[spread]


def test_a_checkpoint_that_names_no_such_way_is_refused() -> None:
    """Then all of it is thrown away, and the log is read."""
    bad = BadMessages()
    bad[7] = WAYS[0]
    parts = bad.dump()
    with pytest.raises(ValueError, match="not there"):
        BadMessages().load(**{**parts, "kinds": b"[]"})


@pytest.mark.parametrize("spread", [3_000, 10_000_000])
def test_dead_letters_are_a_dictionary_in_order(seed: int, spread: int) -> None:
    """Looked up, taken out, counted between two sequences, and read in pages."""
    dice, letters, expected = random.Random(seed), DeadLetters(), dict[int, Reason]()
    for _ in range(3_000):
        one = dice.randrange(1, spread)
        if dice.random() < 0.7:
            letters[one] = expected[one] = dice.choice((Reason.STATUS, Reason.TIMEOUT, Reason.PARENT_FAILED))
        else:
            assert letters.pop(one) == expected.pop(one, None)
        assert letters.get(one) == expected.get(one)
    assert len(letters) == len(expected)
    assert list(letters.items()) == sorted(expected.items())
    for _ in range(50):
        first, end = sorted((dice.randrange(spread), dice.randrange(spread)))
        between = [reason for one, reason in expected.items() if first <= one < end]
        assert letters.count_between(first, end) == len(between)
        assert letters.count_between(first, end, (Reason.TIMEOUT,)) == between.count(Reason.TIMEOUT)
        assert letters.after(first, 10) == sorted(one for one in expected if one > first)[:10]
    again = DeadLetters()
    for reason, data in letters.dump().items():
        again.load(reason, data)
    assert list(again.items()) == sorted(expected.items())


def test_a_set_tells_what_lies_below(seed: int) -> None:
    """A cancel takes children back before their parents: from the highest down."""
    dice = random.Random(seed)
    members = sorted(dice.sample(range(1, 50_000), 2_000))
    found = SequenceSet(members)
    for _ in range(100):
        place = dice.randrange(50_001)
        assert found.before(place, 7) == sorted((one for one in members if one < place), reverse=True)[:7]
