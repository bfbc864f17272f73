"""Rows that travel as one value: all arrive, each once, with all that is about the same thing."""

import os
import random
from collections import Counter

import numpy as np
import pyarrow as pa

from syncbrok.pipeline.shuffle_blocks import (
    BLOCK_SCHEMA,
    BUCKETS,
    batches_of,
    grouped_by_bucket,
    received_blocks,
    rows_of_kind,
    shuffle_blocks,
    tables_of,
)

ROWS = pa.schema([("key", pa.int64()), ("number", pa.int64())])
OTHERS = pa.schema([("key", pa.int64())])


def sent(chance: random.Random, rows: int) -> tuple[pa.Table, list[pa.RecordBatch]]:
    """Rows with keys all over, and the batches that they travel in, in the disorder that a shuffle makes."""
    keys = np.array([chance.randrange(1, 1 << chance.randrange(1, 50)) for _ in range(rows)], np.int64)
    table = pa.table([keys, np.arange(rows)], schema=ROWS)
    batches = [
        *batches_of(shuffle_blocks(table.slice(0, rows // 3), keys[: rows // 3], 0)),
        *batches_of(shuffle_blocks(table.slice(rows // 3), keys[rows // 3 :], 0)),
        *batches_of(shuffle_blocks(table.select(["key"]), keys, 7)),
    ]
    single = [batch.slice(at, 1) for batch in batches for at in range(batch.num_rows)]
    chance.shuffle(single)
    return table, single


def test_every_row_arrives_once_with_its_likes() -> None:
    """Rows of one key are in one bucket, whatever kind they are of and whoever sent them. A bucket is in one group, and
    groups are hardly larger than was asked for."""
    seed = int(os.environ.get("SYNCBROK_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed: SYNCBROK_TEST_SEED={seed}")
    table, batches = sent(random.Random(seed), 5_000)
    assert len(batches) <= 3 * BUCKETS
    groups = list(grouped_by_bucket(received_blocks(batches), 500))
    assert len(groups) > 1
    arrived = [rows_of_kind(group, 0, ROWS) for group in groups]
    assert sorted(pa.concat_tables(arrived)["number"].to_pylist()) == list(range(5_000))
    where = {key: at for at, one in enumerate(arrived) for key in one["key"].to_pylist()}
    for at, one in enumerate(arrived):
        assert {where[key] for key in one["key"].to_pylist()} == {at}
        assert Counter(rows_of_kind(groups[at], 7, OTHERS)["key"].to_pylist()) == Counter(one["key"].to_pylist())
    largest = max(Counter(one.bucket for group in groups for one in group for _ in range(one.rows)).values())
    assert all(sum(one.rows for one in group) < 500 + largest for group in groups)
    assert sum(one.rows for group in groups for one in group) == 2 * table.num_rows


def test_neighbours_stay_together_and_in_order() -> None:
    """What follows each other in a log makes few blocks, whose rows are as they were."""
    keys = np.arange(1 << 40, (1 << 40) + 100_000)
    made = shuffle_blocks(pa.table([keys, keys], schema=ROWS), keys, 0)
    assert made.num_rows == 25
    assert max(made["bucket"].to_pylist()) < BUCKETS
    for one in received_blocks(made.to_batches()):
        numbers = np.asarray(rows_of_kind([one], 0, ROWS)["number"])
        assert (np.diff(numbers) == 1).all()


def test_nothing_travels_as_nothing() -> None:
    """No rows make no blocks, and no blocks make no rows, but the columns are there."""
    assert shuffle_blocks(ROWS.empty_table(), np.empty(0, np.int64), 0).schema == BLOCK_SCHEMA
    assert list(batches_of(shuffle_blocks(ROWS.empty_table(), np.empty(0, np.int64), 0))) == []
    assert list(grouped_by_bucket(received_blocks([]), 10)) == []
    assert rows_of_kind([], 0, ROWS).equals(ROWS.empty_table())
    assert list(tables_of([pa.record_batch([[], []], schema=ROWS)])) == []


def test_batches_are_no_larger_than_a_buffer() -> None:
    """Large blocks travel a few at a time, small rows by the ten thousand."""
    large = pa.table({"table": pa.array([bytes(1 << 20)] * 9, pa.binary())})
    assert [batch.num_rows for batch in batches_of(large)] == [3, 3, 3]
    small = pa.table({"number": np.arange(25_000)})
    assert [batch.num_rows for batch in batches_of(small)] == [10_000, 10_000, 5_000]
