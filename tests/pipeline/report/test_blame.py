"""Blame: every moment that somebody waited is charged once, to whoever took it."""

import os
import random
from typing import Any

import numpy as np

from syncbrok.pipeline.report.blame import charge

Waiter = dict[str, Any]


def charged(waiters: list[Waiter]) -> dict[int | None, float]:
    """By culprit what ``charge`` says was waited for it."""
    names = ("waiter", "parent", "gate_us", "ready_us", "parent_ready_us", "culprit", "weight")
    columns = {name: np.array([one[name] for one in waiters]) for name in names}
    found: dict[int | None, float] = {}
    for row in charge(**columns).to_pylist():
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


def test_every_moment_is_charged_once() -> None:
    """Over random forests: the charges add up to the waits, and are those of a walk up from each waiter."""
    seed = int(os.environ.get("SYNCBROK_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"SYNCBROK_TEST_SEED={seed}")
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


def forest(chance: random.Random, size: int) -> list[Waiter]:
    """Waiters in random order, each below an earlier one or below a message that waited for nobody."""
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
            | {"weight": chance.choice((1.0, 0.5))}
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
