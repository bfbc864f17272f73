"""When messages were accepted, as memory has it (syncbrok/space/acceptance_times.py)."""

import random
from typing import NamedTuple

from syncbrok.space.acceptance_times import POINTS_MAX, AcceptanceTimes

BATCH = 10
SECOND = 1_000_000


class Part(NamedTuple):
    """A section of the log."""

    first: int
    last: int
    first_time_us: int
    last_time_us: int


def test_messages_of_this_process_have_the_time_of_their_batch() -> None:
    """INTERFACES 3, ``syncbrok_queue_oldest_age_seconds``: told of each message without a look at it."""
    times = AcceptanceTimes()
    assert times.of(5) == 0
    assert not times.knows(5)
    for batch in range(100):
        times.note(1 + batch * BATCH, SECOND + batch)
    assert [times.of(sequence) for sequence in (1, 10, 11, 991, 2_000)] == [
        SECOND, SECOND, SECOND + 1, SECOND + 99, SECOND + 99,
    ]  # fmt: skip
    assert times.knows(1)


def test_what_is_kept_is_bounded() -> None:
    """DESIGN 1, bounded: after a hundred times as many batches as there is room for, the newest are told as they were,
    and what is old with an error that is small beside its age; also where the broker was idle between two of them."""
    times, count, now_us, accepted = AcceptanceTimes(), 100 * POINTS_MAX, SECOND, []
    dice = random.Random(3)
    for batch in range(count):
        now_us += dice.choice((500, 1_000, 3_000)) if dice.random() > 0.0001 else dice.randrange(3_600 * SECOND)
        accepted.append(now_us)
        times.note(1 + batch * BATCH, now_us)
    assert all(len(points) <= 2 * POINTS_MAX for _, points, _ in times._levels)
    for batch in dice.sample(range(count), 5_000):
        error_us = accepted[batch] - times.of(1 + batch * BATCH)
        assert 0 <= error_us <= (now_us - accepted[batch]) / 100
        assert batch < count - POINTS_MAX // 2 or not error_us


def test_what_the_log_held_before_is_told_by_its_sections() -> None:
    """A backlog from before the start is not of today: its times lie where its sections lie."""
    times = AcceptanceTimes()
    times.begin([Part(1, 101, SECOND, 2 * SECOND), Part(102, 102, 5 * SECOND, 5 * SECOND), Part(103, 102, 0, 0)])
    times.note(103, 9 * SECOND)
    assert [times.of(one) for one in (1, 51, 101, 102, 103, 104)] == [
        SECOND, SECOND * 3 // 2, 2 * SECOND, 5 * SECOND, 9 * SECOND, 9 * SECOND,
    ]  # fmt: skip
    assert not times.knows(102)
    assert times.knows(103)
