"""What is kept for ever is kept small, and says what dictionaries of the same would (RULES 2, 20, 34)."""

import random
import time
import tracemalloc
from collections import Counter

import numpy as np
import pytest

from syncbrok.delivery.scheduler.bad_messages import Bad, BadMessages
from syncbrok.delivery.scheduler.dead_letters import DeadLetters
from syncbrok.delivery.scheduler.lifecycle import MessageState
from syncbrok.model.facts import Reason
from syncbrok.model.sequence_set import SequenceSet

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


@pytest.mark.parametrize("step", [1, 400, 5_000])
def test_an_entry_costs_little_wherever_it_stands(step: int) -> None:
    """RULES 2: one bad message with its dead letter takes less than 30 bytes, in a checkpoint as well; also those that
    are left of many."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        bad, letters = BadMessages(), DeadLetters()
        for number in range(40_000):
            bad[1 + number * step], letters[1 + number * step] = WAYS[0], Reason.STATUS
        assert tracemalloc.get_traced_memory()[0] - before < 30 * 40_000
        assert sum(map(len, (*bad.dump().values(), *letters.dump()))) < 30 * 40_000
        for number in range(40_000):
            if number % 10:
                letters.pop(1 + number * step)
                del bad[1 + number * step]
        assert tracemalloc.get_traced_memory()[0] - before < 40 * 4_000
    finally:
        tracemalloc.stop()
    assert list(letters) == [sequence for sequence, _ in bad.items()] == list(range(1, 40_000 * step, 10 * step))


def test_a_checkpoint_that_names_no_such_way_is_refused() -> None:
    """Then all of it is thrown away, and the log is read; so is one whose sequences do not rise."""
    bad = BadMessages()
    bad[7] = WAYS[0]
    parts = bad.dump()
    with pytest.raises(ValueError, match="not there"):
        BadMessages().load(**{**parts, "kinds": b"[]"})
    with pytest.raises(ValueError, match="do not rise"):
        BadMessages().load(**{**parts, "sequences": 2 * parts["sequences"], "numbers": 2 * parts["numbers"]})


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
        for most in (10, 3_000):
            assert letters.after(first, most) == sorted(one for one in expected if one > first)[:most]
            assert letters.before(first, most) == sorted((one for one in expected if one < first), reverse=True)[:most]
    assert DeadLetters().before(spread, 10) == []
    again, older = DeadLetters(), DeadLetters()
    again.load(*letters.dump())
    for reason in set(expected.values()):
        older.load_bitmaps(reason, SequenceSet(one for one, its in expected.items() if its is reason).dump())
    for found in (again, older):
        assert list(found.items()) == sorted(expected.items())
        assert dict(found.reasons()) == dict(letters.reasons()) == Counter(expected.values())


def test_a_set_tells_what_lies_below(seed: int) -> None:
    """A cancel takes children back before their parents: from the highest down."""
    dice = random.Random(seed)
    members = sorted(dice.sample(range(1, 50_000), 2_000))
    found = SequenceSet(members)
    for _ in range(100):
        place = dice.randrange(50_001)
        assert found.before(place, 7) == sorted((one for one in members if one < place), reverse=True)[:7]


def test_a_million_are_counted_at_once() -> None:
    """RULES 34: a dry run answers within a second: those of a stretch, of some reasons."""
    letters = DeadLetters()
    sequences = np.arange(1, 3_000_000, 3, dtype=np.uint64)
    letters.load(sequences.tobytes(), bytes([Reason.STATUS + 1, Reason.TIMEOUT + 1]) * (len(sequences) // 2))
    began_s = time.process_time()
    assert letters.count_between(1, 3_000_000) == 1_000_000
    assert letters.count_between(1, 1_500_001, (Reason.TIMEOUT,)) == 250_000
    assert letters.count_between(1, 3_000_000, (Reason.PARENT_FAILED,)) == 0
    assert time.process_time() - began_s < 0.5
