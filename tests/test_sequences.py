"""The bitmap set and the timer wheel: small parts that everything stands on."""

from hypothesis import given
from hypothesis import strategies as st

from syncbrok.delivery.sequences import SequenceSet
from syncbrok.delivery.wheel import Wheel

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


@given(st.lists(st.tuples(st.integers(0, 10_000_000), st.integers(1, 5), numbers)), st.integers(0, 11_000_000))
def test_the_wheel_gives_nothing_early_and_keeps_nothing_late(entries: list[tuple[int, int, int]], now: int) -> None:
    """RULES 7: a delay is a lower bound; the wheel is coarse only towards later, by one bucket."""
    wheel = Wheel()
    for due, kind, value in entries:
        wheel.add(due, kind, value)
    wheel = Wheel.load(wheel.dump())
    given_out = sorted(wheel.pop_due(now))
    assert given_out == sorted((kind, value) for due, kind, value in entries if ((due >> 16) + 1) << 16 <= now)
    assert all(due <= now for due, _, _ in entries if ((due >> 16) + 1) << 16 <= now)
    assert len(wheel) == len(entries) - len(given_out)
