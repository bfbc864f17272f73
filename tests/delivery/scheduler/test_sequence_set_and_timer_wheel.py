"""The bitmap set and the timer wheel: small parts that everything stands on."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from syncbrok.delivery.scheduler.timer_wheel import TimerWheel
from syncbrok.model.sequence_set import SequenceSet

numbers = st.integers(0, 3) | st.integers(4_090, 4_100) | st.integers(0, 2**42)
steps = st.lists(st.tuples(st.sampled_from(["add", "discard", "pop"]), numbers))


@given(steps)
def test_a_sequence_set_is_a_sorted_set(steps: list[tuple[str, int]]) -> None:
    """What waits is handed out once, oldest first (RULES 15): the bitmap agrees with a plain set at every step."""
    bitmap, plain = SequenceSet(), set[int]()
    for step, number in steps:
        if step == "add":
            bitmap.add(number)
            plain.add(number)
        elif step == "discard":
            assert bitmap.discard(number) == (number in plain)
            plain.discard(number)
        elif plain:
            assert bitmap.first() == min(plain)
            assert bitmap.pop_first() == min(plain)
            plain.remove(min(plain))
        assert len(bitmap) == len(plain)
        assert (number in bitmap) == (number in plain)
    assert list(bitmap) == sorted(plain)
    assert list(SequenceSet.load(bitmap.dump())) == sorted(plain)


near = numbers | st.integers(5_000, 5_200)


@given(st.sets(near), st.lists(st.integers(0, 100), max_size=20))
def test_many_are_taken_as_one_by_one(waiting: set[int], counts: list[int]) -> None:
    """Taking many at once loses none, doubles none and keeps the order; it gives some wherever there are any."""
    bitmap, plain = SequenceSet(waiting), sorted(waiting)
    for count in counts:
        assert bitmap.lowest(count) == plain[:count]
        taken = bitmap.pop_some(count)
        assert taken == plain[: len(taken)]
        assert len(taken) <= count
        assert taken or not count or not plain
        del plain[: len(taken)]
        assert (len(bitmap), list(bitmap)) == (len(plain), plain)


@given(st.sets(near), st.sets(near), st.lists(near))
def test_what_moves_is_in_one_set_only(here: set[int], there: set[int], asked: list[int]) -> None:
    """A message whose gate opens is parked no more and ready once, whoever else is asked about at the same time."""
    parked, ready = SequenceSet(), SequenceSet(there)
    parked.update(here)
    moving = here & set(asked)
    assert parked.move(asked, ready) == len(moving)
    assert (list(parked), len(parked)) == (sorted(here - moving), len(here - moving))
    assert (list(ready), len(ready)) == (sorted(there | moving), len(there | moving))
    while ready:
        assert ready.pop_first() == min(there | moving)
        there, moving = there - {min(there | moving)}, moving - {min(there | moving)}


@given(st.sets(near), st.sets(near))
def test_sets_are_added_and_taken_out_whole(one: set[int], other: set[int]) -> None:
    """What is erased leaves every set that it was in, whatever else is in there."""
    both, rest = SequenceSet(one), SequenceSet(one)
    both.add_all(SequenceSet(other))
    rest.subtract(SequenceSet(other))
    assert (list(both), len(both)) == (sorted(one | other), len(one | other))
    assert (list(rest), len(rest)) == (sorted(one - other), len(one - other))
    assert [rest.pop_first() for _ in range(len(rest))] == sorted(one - other)


dues = st.one_of(st.integers(0, 10_000_000), st.integers(0, 300_000_000))


@given(st.lists(st.tuples(dues, st.integers(1, 5), numbers)), st.lists(dues, min_size=1, max_size=4), st.booleans())
def test_the_wheel_gives_nothing_early_and_keeps_nothing_late(
    entries: list[tuple[int, int, int]], times: list[int], loaded: bool
) -> None:
    """RULES 7: a delay is a lower bound; the wheel is coarse only towards later, by one bucket, also where entries come
    while others are handed out, and some are swept out of it."""
    timers = TimerWheel()
    waiting: list[tuple[int, int, int]] = []
    for nth, now in enumerate(sorted(times)):
        for due, kind, value in entries[nth :: len(times)]:
            timers.add(due, kind, value)
            waiting.append((due, kind, value))
        if loaded:
            timers = TimerWheel.load(timers.dump()())
        timers.sweep(lambda kind, _: kind > 1, 10)
        first_us = timers.next_due_us()
        over = [one for one in waiting if ((one[0] >> 16) + 1) << 16 <= now]
        assert not over or (first_us is not None and first_us <= now) or all(kind == 1 for _, kind, _ in over)
        given_out = sorted(timers.pop_due(now))
        assert [pair for pair in given_out if pair[0] > 1] == sorted((k, v) for _, k, v in over if k > 1)
        assert not Counter(given_out) - Counter((kind, value) for _, kind, value in over)
        after_us = timers.next_due_us()
        assert after_us is None or after_us > now, "or the scheduler would spin"
        waiting = [one for one in waiting if one not in over]


def test_the_wheel_keeps_what_holds_and_little_more() -> None:
    """RULES 9: a message that has ended does not expire. However long they would have had, and though few share a
    bucket, expiries of those that ended leave memory and checkpoints as others come; those of the others stay."""
    timers = TimerWheel()
    for value in range(100_000):
        timers.add(1_700_000_000_000_000 + value * 5_000_000, 1, value)
        timers.sweep_some(lambda _, value: value % 100 == 0)
    assert len(timers) < 10_000
    assert len(timers.dump()()) == 24 * len(timers)
    assert {value for _, value in timers.pop_due(1_800_000_000_000_000)} >= set(range(0, 100_000, 100))
