"""Pointer doubling finds what a walk finds."""

import random

import numpy as np
import pytest

from syncbrok.pipeline.lineage.pointer_doubling import above, descendants, greatest_of_each, upwards
from syncbrok.pipeline.numpy_columns import NONE, places_of


def random_forest(chance: random.Random, size: int) -> np.ndarray:
    """Parents by place; chains, stars and bushes, in a random order of places."""
    kind = chance.choice(("chain", "star", "bush"))
    parents = []
    for at in range(size):
        if at == 0 or chance.random() < 0.1:
            parents.append(NONE)
        else:
            parents.append({"chain": at - 1, "star": 0, "bush": chance.randrange(at)}[kind])
    order = list(range(size))
    chance.shuffle(order)
    moved = np.full(size, NONE, np.int64)
    for at, parent in enumerate(parents):
        moved[order[at]] = NONE if parent == NONE else order[parent]
    return moved


@pytest.mark.parametrize("seed", range(60))
def test_doubling_agrees_with_a_walk(seed: int) -> None:
    """Tops, distances, descendants and the ways up are those a plain walk finds, whatever the shape of the forest."""
    chance = random.Random(seed)
    parents = random_forest(chance, chance.randrange(1, 80))
    weights = np.array([chance.randrange(5) for _ in parents])
    starts = np.array([chance.randrange(len(parents)) for _ in range(3)])
    way, below, marked = above(parents, weights), descendants(parents), upwards(parents, starts)
    counted, on_the_way = np.zeros(len(parents), int), set()
    for start in range(len(parents)):
        at, steps = start, 0
        while True:
            on_the_way |= {at} if start in starts else set()
            if parents[at] == NONE:
                break
            steps += weights[at]
            at = parents[at]
            counted[at] += 1
        assert (way.top[start], way.steps[start]) == (at, steps)
    assert below.tolist() == counted.tolist()
    assert set(np.flatnonzero(marked)) == on_the_way


def test_a_chain_of_a_million_takes_twenty_rounds_not_a_million() -> None:
    """No level by level: the deepest chain costs a few passes (a loop over its levels would not end in this test)."""
    parents = np.arange(1_000_000) - 1
    way = above(parents)
    assert way.top[-1] == 0
    assert way.steps[-1] == 999_999
    assert descendants(parents)[0] == 999_999


def test_places_and_greatest() -> None:
    """Look-ups in columns without order; what is not there has no place."""
    sequences = np.array([7, 3, 9])
    assert places_of(sequences, np.array([3, 4, 9, 7, 100])).tolist() == [1, NONE, 2, 0, NONE]
    assert places_of(np.array([], np.int64), np.array([3])).tolist() == [NONE]
    groups, times, numbers = np.array([5, 2, 5, 2]), np.array([1, 8, 1, 7]), np.array([10, 11, 12, 13])
    assert greatest_of_each(groups, times, numbers).tolist() == [1, 2]
