"""The history of a Space: what its keeper counts, and what a start finds of it (INTERFACES 3, ``GET /v1/history``)."""

from pathlib import Path

import pytest

from syncbrok.model.errors import UnknownQueue
from syncbrok.space.history_keeper import FILE, HistoryKeeper
from syncbrok.space.reports import MinuteReport
from tests.support.polling import eventually
from tests.support.space.spaces import Clock, Consumer, Running, running_space

MINUTE_US = 60_000_000


async def told(running: Running, queue: str | None = None, **asked: object) -> list[MinuteReport]:
    return await running.space.view.history(queue, 24, **asked)  # type: ignore[arg-type]


async def delivered(running: Running, queue: str, count: int) -> None:
    before = running.space.view.queue(queue).delivered
    for at in range(count):
        await running.publish(queue, b"%d" % at)
    await eventually(lambda: running.space.view.queue(queue).delivered == before + count, "all are delivered")


def keeper_of(running: Running) -> HistoryKeeper:
    return running.space._history


async def test_a_minute_says_what_happened_in_it(tmp_path: Path) -> None:
    """INTERFACES 3: counts of the minute alone, for the broker and for each queue; what waits as it ends and since
    when; how long deliveries took. An idle queue has no figures."""
    clock = Clock()
    async with running_space(tmp_path, Consumer(), clock_us=clock) as running:
        await running.queue("orders", subscribers=["s"])
        await running.queue("idle")
        await running.queue("stuck")
        await running.subscribe("stuck", "s", paused=True)
        keeper = keeper_of(running)
        await eventually(lambda: keeper._before is not None, "it has begun")
        await delivered(running, "orders", 3)
        await running.publish("stuck", b"x")
        clock.forward(10)
        await keeper.keep()
        clock.forward(60)
        await delivered(running, "orders", 2)
        await keeper.keep()
        one, two = await told(running, "orders")
        assert (one.accepted, one.delivered, one.failed, one.dead, one.backlog) == (3, 3, 0, 0, 0)
        assert (two.accepted, two.delivered) == (2, 2)
        assert two.at_us - one.at_us == MINUTE_US
        assert one.p50_ms is not None
        waits = await told(running, "stuck")
        assert [(minute.accepted, minute.backlog, minute.oldest_ms // 1_000) for minute in waits] == [
            (1, 1, 10),
            (0, 1, 70),
        ]
        assert waits[0].p99_ms is None
        assert [(minute.accepted, minute.backlog) for minute in await told(running)] == [(4, 1), (2, 1)]
        assert await told(running, "idle") == []
        assert [one.accepted for one in await told(running, may_see=lambda name: name == "stuck")] == [1, 0]
        with pytest.raises(UnknownQueue):
            await told(running, "nowhere")


async def test_it_is_there_after_a_restart(tmp_path: Path) -> None:
    """INTERFACES 3: kept over restarts, the minute of the end too; what recovery counts again is in no minute. A file
    that is damaged, or that cannot be read, is no reason not to start."""
    clock = Clock()
    for life in range(2):
        async with running_space(tmp_path, Consumer(), clock_us=clock) as running:
            if not life:
                await running.queue("orders", subscribers=["s"])
            await eventually(lambda: keeper_of(running)._before is not None, "it has begun")
            await delivered(running, "orders", 4)
            assert [one.delivered for one in await told(running, "orders")] == [4] * life
        clock.forward(300)
    async with running_space(tmp_path, clock_us=clock) as running:
        assert [one.delivered for one in await told(running, "orders")] == [4, 4]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:-3])
    async with running_space(tmp_path, clock_us=clock) as running:
        assert [one.delivered for one in await told(running, "orders")] == [4]
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    async with running_space(tmp_path, clock_us=clock) as running:
        assert await told(running) == []
