"""The bytes of what waits in a queue that bounds them (RULES 35): whatever ends, thins, is dumped and comes back."""

import random
from typing import Any

import orjson
import pytest

from syncbrok.delivery.scheduler.content_sizes import ContentSizes
from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.model.facts import Attributes, Messages, QueueSet, SubscriberSet
from syncbrok.model.message import BacklogBound, ParentFailure, QueueSettings, Scope, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId


@pytest.mark.parametrize("seed", range(6))
def test_the_sum_is_that_of_what_is_in_it(seed: int) -> None:
    """RULES 35: whatever comes as a run, alone, twice, or late, and ends in any order, over many columns: the sum is
    that of what has not ended, and a dump holds all of it. What has ended everywhere costs nothing."""
    dice, sizes, expected = random.Random(seed), ContentSizes(), dict[int, int]()
    newest = 0
    for _ in range(400):
        what = dice.random()
        if what < 0.4:
            newest += dice.randrange(1, 900)
            run = [dice.choice((0, dice.randrange(1 << 20))) for _ in range(dice.choice((1, 3, 700, 5_000)))]
            sizes.add_run(newest, run)
            expected.update(zip(range(newest, newest + len(run)), run, strict=True))
            newest += len(run)
        elif what < 0.5:
            old = dice.randrange(1, newest + 2)
            size = expected.setdefault(old, dice.randrange(1_000))
            sizes.add(old, size + dice.choice((0, 7)) * (old in sizes))
            newest = max(newest, old)
        elif expected:
            chosen = dice.sample(sorted(expected), min(len(expected), dice.choice((1, 50, 4_000))))
            for one in chosen:
                sizes.take(one)
                sizes.take(one)
                del expected[one]
        assert sizes.total == sum(expected.values())
    again = ContentSizes()
    for number, part in sizes.dump().items():
        again.load(number, part)
    assert again.total == sizes.total
    assert all(one in again for one in expected)
    for one in expected:
        again.take(one)
    assert (again.total, again.dump()) == (0, {})


def declared() -> tuple[QueueSet, SubscriberSet]:
    settings = QueueSettings(max_backlog=BacklogBound(None, 1 << 40))
    return (
        QueueSet(1, 1, 1, QueueName("q"), settings),
        SubscriberSet(2, 1, 1, 1, SubscriberId("a"), 2, SubscriberSettings("test:a", paused=True)),
    )


def holding(contents: list[bytes]) -> Scheduler:
    scheduler = Scheduler()
    for fact in declared():
        scheduler.apply(fact)
    alike = ((len(contents), Attributes(1, Scope.ALL, ParentFailure.FAIL, "")),)
    scheduler.apply(Messages(3, 1, bytes(16 * len(contents)), alike, contents))
    return scheduler


def restored(parts: dict[str, bytes]) -> Scheduler:
    scheduler = Scheduler()
    scheduler.restore(parts, declared())
    return scheduler


def test_a_checkpoint_of_an_older_version_leaves_them_to_be_looked_up() -> None:
    """RULES 35: a checkpoint tells all sizes; one that an older version wrote tells none, and each message that waits
    is asked for, once, whatever comes and ends meanwhile."""
    contents = [b"x" * (n % 50) for n in range(9_000)]
    scheduler = holding(contents)
    total = sum(map(len, contents))
    assert scheduler.standing(1).bytes == total
    parts = scheduler.checkpoint()
    fresh = restored(parts)
    assert (fresh.standing(1).bytes, fresh.unsized(10)) == (total, None)
    state: dict[str, Any] = orjson.loads(parts["state"])
    del state["queues"]["1"]["unknown_sizes"]
    old = {name: part for name, part in parts.items() if not name.startswith("sizes/")}
    old["state"] = orjson.dumps(state)
    fresh = restored(old)
    asked: list[int] = []
    while (some := fresh.unsized(1_000)) is not None:
        asked += some.messages
        fresh.note_sizes(some, [len(contents[one - 3]) for one in some.messages])
    assert asked == list(range(3, 9_003))
    assert fresh.standing(1).bytes == total
