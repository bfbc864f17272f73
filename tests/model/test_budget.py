"""One resource shared by many (syncbrok/model/budget.py): nobody can take all of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.model.budget import Budget


def fill(budget: Budget, owner: object, amount: int = 1) -> int:
    """Take for ``owner`` until it is refused; how much it holds then."""
    while budget.try_take(owner, amount):
        pass
    return budget.held(owner)


def test_one_greedy_owner_leaves_half() -> None:
    """DESIGN 1, bounded: whoever takes all it can get stops where it holds what is free."""
    budget = Budget("attempts", 80)
    assert fill(budget, "hung") == 35, "half of what is no reserve"
    assert fill(budget, "second") == 18
    assert budget.room("third") == 9


@given(total=st.integers(256, 5_000), greedy=st.integers(1, 24), times=st.integers(1, 3))
def test_there_is_always_room_for_a_newcomer(total: int, greedy: int, times: int) -> None:
    """DESIGN 1, bounded: however many are greedy, and never give back, one that holds nothing may take."""
    budget = Budget("attempts", total)
    for _ in range(times):
        for owner in range(greedy):
            fill(budget, owner)
    assert budget.used < total
    assert budget.try_take("newcomer")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 40), st.booleans())))
def test_what_is_used_is_what_is_held(steps: list[tuple[str, int, bool]]) -> None:
    """DESIGN 1, bounded: the sum is never passed, and nothing is counted that nobody holds."""
    budget = Budget("bytes", 100)
    taken: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for owner, amount, back in steps:
        if back and taken[owner]:
            budget.give_back(owner, taken[owner].pop())
        elif budget.try_take(owner, amount):
            taken[owner].append(amount)
        assert budget.used == sum(map(sum, taken.values())) <= budget.total
        assert {owner: budget.held(owner) for owner in taken} == {owner: sum(held) for owner, held in taken.items()}
    assert budget.owners == sum(1 for held in taken.values() if held)


@given(total=st.integers(1, 400), used=st.integers(0, 400), own=st.integers(0, 400))
def test_room_is_what_single_takes_would_get(total: int, used: int, own: int) -> None:
    """DESIGN 1, bounded: asking for many at once gives no more, and no less, than asking one by one."""
    budget = Budget("attempts", total)
    for owner, amount in (("other", used), ("own", own)):
        if amount:
            budget.take(owner, amount)
    room = budget.room("own")
    assert fill(budget, "own") == own + room


def test_a_refusal_takes_nothing_and_giving_back_tells() -> None:
    """DESIGN 1, bounded: who is refused is told when there may be room again."""
    budget = Budget("bytes", 10)
    told: list[int] = []
    budget.when_freed(lambda: told.append(budget.free))
    assert budget.try_take("a", 10)
    assert not budget.try_take("b", 1)
    assert budget.used == 10
    budget.give_back("a", 10)
    assert told == [10]
    with pytest.raises(KeyError):
        budget.give_back("a", 1)


def test_what_cannot_be_refused_may_pass_the_total() -> None:
    """DESIGN 1, bounded: then nobody takes until as much has been given back."""
    budget = Budget("descriptors", 10)
    budget.take("listener", 12)
    assert not budget.try_take("b")
    assert budget.room("b") == 0
    budget.give_back("listener", 3)
    assert budget.try_take("b")
