"""Blame: every moment that somebody waited is charged once, to whoever took it."""

import random
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from syncbrok.pipeline.report.blame import CLAIMS, WaitSteps, blame, charge, own_claims
from syncbrok.pipeline.report.blame_rounds import blame_over_trees
from syncbrok.pipeline.report.counts import BLAME, received
from syncbrok.pipeline.report.parent_waits import LAST_PARENTS
from syncbrok.pipeline.report.period import Period

Waiter = dict[str, Any]


def steps_of(waiters: list[Waiter], above: dict[int, int | None] | None = None) -> WaitSteps:
    """``above``: the gates of parents that are elsewhere, by the waiter."""
    rows = [{"root": 1, "parent_root": 1} | one | {"above_us": (above or {}).get(one["waiter"])} for one in waiters]
    return WaitSteps.of(pa.Table.from_pylist(rows, pa.schema([*LAST_PARENTS, ("above_us", pa.int64())])))


def charged(waiters: list[Waiter]) -> dict[int | None, float]:
    """By culprit what ``charge`` says was waited for it."""
    steps = steps_of(waiters)
    charges, further = charge(steps, own_claims(steps))
    assert not len(further)
    return summed(charges)


def summed(charges: pa.Table) -> dict[int | None, float]:
    found: dict[int | None, float] = {}
    for row in charges.to_pylist():
        found[row["culprit"]] = found.get(row["culprit"], 0) + row["waited_us"]
    return found


def waiter(name: int, parent: int, ready: int, gate: int, culprit: int, parent_ready: int = 0) -> Waiter:
    times = {"gate_us": gate, "ready_us": ready, "parent_ready_us": parent_ready}
    return {"waiter": name, "parent": parent, "culprit": culprit, "weight": 1.0, **times}


def test_a_slow_root_is_charged_for_everyone_below_it() -> None:
    """Root 1 took from 0 to 100 at subscriber 7, its child 2 then 5 more at subscriber 8. Message 3 below both waited
    for 7 until 100 and for 8 the last 5; message 2 for 7 alone. Who came when all was done waited for nobody."""
    chain = [waiter(2, 1, 10, 100, 7), waiter(3, 2, 20, 105, 8, parent_ready=10), waiter(4, 3, 200, 110, 9, 20)]
    assert charged(chain) == {7: 90 + 80, 8: 5}


def test_a_parents_own_delay_is_nobodys_fault() -> None:
    """The parent's parents were done at 40, but it was not to go before 100: of the child's wait from 10 to 130 the
    subscriber took 30, nobody 60, and what it waited before that is the grandparent's."""
    waiters = [waiter(2, 1, 100, 40, 7), waiter(3, 2, 10, 130, 8, parent_ready=100)]
    assert charged(waiters) == {8: 30, None: 60, 7: 30}


def test_every_moment_is_charged_once(seed: int) -> None:
    """Over random forests: the charges add up to the waits, and are those of a walk up from each waiter."""
    chance = random.Random(seed)
    for size in (1, 2, 30, 400):
        waiters = forest(chance, size)
        expected = walked(waiters)
        found = charged(waiters)
        assert found.keys() == expected.keys()
        for culprit, waited in expected.items():
            assert abs(found[culprit] - waited) < 1e-6 * max(waited, 1)
        whole = sum(one["weight"] * max(one["gate_us"] - one["ready_us"], 0) for one in waiters)
        assert abs(sum(found.values()) - whole) < 1e-6 * max(whole, 1)


def test_a_way_through_several_trees_is_charged_as_through_one(seed: int) -> None:
    """Cut into trees at random, and charged tree by tree in rounds until no claim goes on: the same charges."""
    chance = random.Random(seed)
    for size in (2, 30, 400):
        waiters = forest(chance, size, trees=4)
        known = {one["waiter"]: one for one in waiters}
        above = {one["waiter"]: known[one["parent"]]["gate_us"] for one in waiters if one["parent"] in known}
        trees = defaultdict(list)
        for one in waiters:
            trees[one["root"]].append(one)
        claims: dict[int, list[dict[str, Any]]] = {}
        charges, is_first = [], True
        while is_first or claims:
            going_on = defaultdict(list)
            for root, some in trees.items():
                steps = steps_of(some, above)
                came = own_claims(steps) if is_first else pa.Table.from_pylist(claims.get(root, []), CLAIMS)
                here, further = charge(steps, came)
                charges.append(here)
                for one in further.to_pylist():
                    going_on[one["root"]].append(one)
            claims, is_first = going_on, False
        found, expected = summed(pa.concat_tables(charges)), walked(waiters)
        assert found == pytest.approx(expected, rel=1e-6)


def test_spark_charges_ways_through_several_trees(spark: SparkSession, seed: int) -> None:
    """What one task makes of all waiters, rounds over tasks of whole trees make as well: times, waiters and maxima by
    culprit and hour."""
    waiters = forest(random.Random(seed), 60, trees=3)
    period = Period(datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 2, tzinfo=UTC))
    steps = steps_of(waiters)
    together = blame(charge(steps, own_claims(steps))[0], period).to_pylist()
    frame = spark.createDataFrame(pa.Table.from_pylist(waiters, LAST_PARENTS))
    over_trees = received(BLAME, blame_over_trees(frame, period)).to_pylist()
    whole, parts = ({row.pop("subscriber"): row for row in rows} for rows in (together, over_trees))
    assert whole
    assert parts == {culprit: pytest.approx(row, rel=1e-6) for culprit, row in whole.items()}


def forest(chance: random.Random, size: int, trees: int = 1) -> list[Waiter]:
    """Waiters in random order, each below an earlier one or below a message that waited for nobody; each in one of
    ``trees`` trees."""
    made: list[Waiter] = []
    for name in range(1, size + 1):
        above = chance.choice(made[-20:]) if made and chance.random() < 0.85 else None
        accepted = name * 3 if above is None else max(name * 3, above["ready_us"] - 30)
        parent_ready = above["ready_us"] if above else accepted - chance.randrange(9)
        begins = max(parent_ready, above["gate_us"] if above else 0)
        ready = accepted + chance.choice((0, 0, 0, 50))
        made.append(
            waiter(
                name,
                above["waiter"] if above else 0,
                ready,
                begins + chance.randrange(40),
                chance.randrange(4),
                parent_ready,
            )
            | {"weight": chance.choice((1.0, 0.5)), "root": 1 + (chance.randrange(trees) if trees > 1 else 0)}
            | {"parent_root": above["root"] if above else 1}
        )
    chance.shuffle(made)
    return made


def walked(waiters: list[Waiter]) -> dict[int | None, float]:
    """The same by going up from each one."""
    known = {one["waiter"]: one for one in waiters}
    found: dict[int | None, float] = {}
    for one in waiters:
        until, step = one["gate_us"], one
        while until > one["ready_us"]:
            above = known.get(step["parent"])
            begins = max(step["parent_ready_us"], above["gate_us"] if above else step["parent_ready_us"])
            before = max(above["gate_us"], one["ready_us"]) if above else one["ready_us"]
            own = until - max(min(begins, until), one["ready_us"])
            idle = max(min(begins, until), one["ready_us"]) - before
            for culprit, waited in ((step["culprit"], own), (None, idle)):
                if waited > 0:
                    found[culprit] = found.get(culprit, 0) + waited * one["weight"]
            if above is None:
                break
            until, step = above["gate_us"], above
    return found
