"""Stretches of neighbours in the table: one look finds what walking along the rows finds."""

import random
from array import array

import numpy as np

from syncbrok.delivery.scheduler import chunk_scans
from syncbrok.delivery.scheduler.lifecycle import MessageEvent, MessageState
from syncbrok.delivery.scheduler.message_chunk import CHUNK, CHUNK_MASK, CHUNK_SHIFT, MessageChunk
from syncbrok.delivery.scheduler.message_table import (
    ENDING,
    ONE_BY_ONE,
    ONLY,
    PER_SUBSCRIBER,
    POLICY_SHIFT,
    SAME,
    MessageTable,
)
from syncbrok.model.sequence_set import SequenceSet

FIRST = 3 << CHUNK_SHIFT
"""a parent; its children come after it"""
FLAGS = (0, 1 << POLICY_SHIFT, SAME, SAME | PER_SUBSCRIBER, PER_SUBSCRIBER, ONLY, ENDING)


def family(dice: random.Random, size: int, odd: float) -> MessageTable:
    """A parent and its children, of which the share ``odd`` is not like the others, or not even one of them."""
    table = MessageTable()
    table.accept(FIRST, 1, 0, 1, MessageEvent.RELEASED, ())
    table.accept(FIRST + 1, 1, 0, 1, MessageEvent.RELEASED, ())
    for sequence in range(FIRST + 2, FIRST + 2 + size):
        queue, flags, left, edges = 1, 0, 1, (FIRST,)
        event = MessageEvent.BLOCKED
        if dice.random() < odd:
            queue, flags, left = dice.choice((1, 2)), dice.choice(FLAGS), dice.choice((0, 1, 3))
            edges = dice.choice(((FIRST,), (FIRST + 1,), (FIRST, FIRST + 1), (FIRST + 1, FIRST), ()))
            event = dice.choice((MessageEvent.BLOCKED, MessageEvent.BLOCKED, MessageEvent.RELEASED))
        table.accept(sequence, queue, flags, left, event, edges)
    return table


def walked(chunk: MessageChunk, child: int, parent: int, most: int) -> int:
    """What ``lone_children`` is to say, child by child."""
    assert chunk.edge_start is not None
    assert chunk.edge_count is not None
    queue, count = chunk.queue[child & CHUNK_MASK], 0
    while count < most:
        i = child & CHUNK_MASK
        at = chunk.edge_start[i]
        if chunk.state[i] != MessageState.WAITING or chunk.flags[i] & ONE_BY_ONE or chunk.queue[i] != queue:
            break
        if chunk.edge_count[i] != 1 or not chunk.left[i] or chunk.edges[at] != parent:
            break
        count += 1
        child += 1
        if chunk.links[at] != child or child >> CHUNK_SHIFT != FIRST >> CHUNK_SHIFT:
            break
    return count


def test_children_are_found_as_if_walked_along() -> None:
    """RULES 7: whoever is released in one look is who would have been released one by one, and nobody else."""
    print("seed 7")
    dice = random.Random(7)
    longest = 0
    for _ in range(300):
        size, odd = dice.choice((5, 200, 5_000)), dice.choice((0.0, 0.0, 0.002, 0.1))
        table = family(dice, size, odd)
        chunk = table.chunk(FIRST)
        assert chunk is not None
        for _ in range(4):
            child = FIRST + 2 + dice.randrange(min(size, 4_000))
            most = dice.choice((1, 10, 4_096))
            expected = walked(chunk, child, FIRST, most)
            if expected:  # whoever asks has looked at the first one
                assert chunk_scans.lone_children(chunk, child, FIRST, most) == expected
                longest = max(longest, expected)
    assert longest > 1_000


def test_waiting_neighbours_are_those_that_wait() -> None:
    """RULES 7: what is parked in one look is what waits, up to the first that does not or has a flag of its own."""
    print("seed 11")
    dice = random.Random(11)
    longest = 0
    for _ in range(300):
        table = family(dice, dice.choice((5, 200, 5_000)), dice.choice((0.0, 0.002, 0.1)))
        first = FIRST + 2 + dice.randrange(3)
        sequences = range(first, min(first + 2_000, table.newest + 1), dice.choice((1, 1, 3)))
        number = FIRST >> CHUNK_SHIFT
        chunk = table.chunks[number]
        expected = []
        for sequence in sequences:
            i = sequence & CHUNK_MASK
            is_here = sequence >> CHUNK_SHIFT == number
            if not is_here or chunk.state[i] != MessageState.WAITING or chunk.flags[i] & ONE_BY_ONE:
                break
            expected.append(sequence)
        found = chunk_scans.waiting_neighbours(chunk, number, np.array(sequences, np.uint64))
        assert list(sequences[:found]) == expected
        longest = max(longest, len(expected))
    assert longest > 500


def test_a_thin_chunk_has_no_stretch() -> None:
    """What is left of a chunk that few stragglers hold is looked at one by one."""
    table = family(random.Random(1), 100, 0.0)
    chunk = table.chunks[FIRST >> CHUNK_SHIFT]
    chunk.make_thin()
    following = np.arange(FIRST + 2, FIRST + 50, dtype=np.uint64)
    assert chunk_scans.waiting_neighbours(chunk, FIRST >> CHUNK_SHIFT, following) == 0


def test_neighbours_move_as_single_ones_do() -> None:
    """A set takes in and moves a range as it does one after the other."""
    print("seed 5")
    dice = random.Random(5)
    for size in (1, 100, 4_096, 9_000):
        first = dice.randrange(1 << 40)
        stretch = range(first, first + size)
        all_at_once, one_by_one, other = SequenceSet(), SequenceSet(), SequenceSet()
        all_at_once.update(stretch)
        for sequence in stretch:
            one_by_one.add(sequence)
        one_by_one.discard(first + size // 2)
        all_at_once.discard(first + size // 2)
        assert list(all_at_once) == list(one_by_one)
        moved = [sequence for sequence in stretch[size // 4 :] if sequence != first + size // 2]
        assert all_at_once.move(stretch[size // 4 :], other) == len(moved)
        assert list(other) == moved
        assert list(all_at_once) == [*stretch[: size // 4]]
        taken: list[int] = []
        while other:
            taken += other.pop_some(dice.choice((1, 64, 500)))
        assert taken == moved


def test_the_first_of_a_queue_is_found_as_by_walking(seed: int) -> None:
    """INTERFACES 3, ``oldest_waiting``: the first message of a queue that has not ended, among those of others and
    those that have; of a chunk of which few are left too."""
    dice, table, last = random.Random(seed), MessageTable(), 4 * CHUNK
    for sequence in range(1, last):
        table.accept(sequence, dice.choice((1, 1, 2)), 0, 1, MessageEvent.RELEASED, ())
    ended = dice.sample(range(1, last), last - 100)
    for sequence in (*ended, *range(CHUNK, 2 * CHUNK)):
        if table.state(sequence) is MessageState.PENDING:
            table.change(sequence, MessageEvent.ENDED_WELL)
    for start in (0, *dice.sample(range(last), 200), last, 9 * last):
        for queue in (1, 2, 3):
            walked = next(table.waiting(queue, start, None), 0)
            assert chunk_scans.first_unended(table, queue, start) == (walked, 0)


def test_a_look_for_the_first_of_a_queue_is_bounded() -> None:
    """DESIGN 1, bounded: behind millions of messages of another queue it is found by several looks, of which each goes
    on where the one before it ended."""
    table, count = MessageTable(), (chunk_scans.CHUNKS_MAX + 9) * CHUNK
    table.accept_run(1, array("I", (1,)) * count, array("H", (1,)) * count)
    table.accept(count + 1, 2, 0, 1, MessageEvent.RELEASED, ())
    found, following = chunk_scans.first_unended(table, 2, 0)
    assert found == 0
    assert 0 < following <= count
    assert chunk_scans.first_unended(table, 2, following) == (count + 1, 0)
