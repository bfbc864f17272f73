"""Look-ups and sums over columns of numbers give what loops give, with nothing in them as well."""

import os
import random

import numpy as np
import pyarrow as pa
import pytest

from syncbrok.pipeline.numpy_columns import (
    NEVER,
    NONE,
    group_starts,
    longs,
    places_in_order,
    places_of,
    reduced,
    spread,
    taken,
)


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("SYNCBROK_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed: SYNCBROK_TEST_SEED={seed}")
    return random.Random(seed)


@pytest.mark.parametrize("size", [0, 1, 40])
def test_places_are_where_a_list_has_them(size: int, chance: random.Random) -> None:
    """Each number is found where it stands, in order or not, and what is not there is nowhere and has no value."""
    known = chance.sample(range(60), size)
    wanted = [chance.randrange(-5, 65) for _ in range(50)]
    for column, look_up in ((sorted(known), places_in_order), (known, places_of)):
        places = look_up(np.array(column, np.int64), np.array(wanted, np.int64))
        assert places.tolist() == [column.index(one) if one in column else NONE for one in wanted]
        values = taken(np.array(column, np.int64) * 10, places)
        assert values.tolist() == [one * 10 if one in column else NEVER for one in wanted]


@pytest.mark.parametrize("size", [0, 1, 30])
def test_lists_are_spread_and_groups_put_together(size: int, chance: random.Random) -> None:
    """Every item knows its list and its position there; neighbours with the same keys are one group, with one sum."""
    counts = [chance.randrange(4) for _ in range(size)]
    whose, position = spread(np.array(counts, np.int64))
    pairs = [(number, at) for number, count in enumerate(counts) for at in range(count)]
    assert list(zip(whose.tolist(), position.tolist(), strict=True)) == pairs
    starts = group_starts(whose, position // 2)
    groups = [one for one, (number, at) in enumerate(pairs) if at % 2 == 0]
    assert starts.tolist() == groups
    ends = [*groups[1:], len(pairs)]
    sums = reduced(np.add, position, starts).tolist()
    assert sums == [
        sum(at for _, at in pairs[start:end]) for start, end in zip(groups, ends[: len(groups)], strict=True)
    ]


def test_nulls_become_what_is_asked_for() -> None:
    """A missing number is ``NEVER`` unless the caller wants another, in one piece or several."""
    column = pa.chunked_array([[1, None], [3]], pa.int32())
    assert longs(column).tolist() == [1, NEVER, 3]
    assert longs(column.combine_chunks(), 0).tolist() == [1, 0, 3]
