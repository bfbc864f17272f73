"""The wall clock decides what is due and how old things are, whatever times the records have (RULES 25).

Each story is the same: for a moment the clock is ten days ahead, one record is written, and it is set right again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from syncbrok.log.journal import FileJournal
from syncbrok.model import limits
from syncbrok.model.journal import JournalOptions
from syncbrok.model.message import Message, ParentFailure
from syncbrok.space.clock import watch_clock
from syncbrok.space.meters import Meters
from tests.support.log.journals import append_snapshot
from tests.support.polling import eventually
from tests.support.space.spaces import (
    ACKNOWLEDGED,
    GONE,
    REFUSED,
    Clock,
    Consumer,
    Running,
    forget_checkpoints,
    running_space,
)

DAY_S = 86_400.0
AHEAD_S = 10 * DAY_S


@asynccontextmanager
async def once_ahead(directory: Path, clock: Clock, consumer: Consumer, **options: Any) -> AsyncIterator[Running]:
    """A Space with a queue, whose newest record was written while the clock was ahead."""
    async with running_space(directory, consumer, clock_us=clock, **options) as running:
        await running.queue("q", subscribers=["a"])
        await running.publish("q", b"before", idempotency_key="first")
        clock.forward(AHEAD_S)
        await running.publish("q", b"while the clock is ahead")
        clock.forward(-AHEAD_S)
        yield running


@pytest.mark.parametrize("start", ["none", "with the checkpoint", "from the log alone"])
async def test_a_delay_is_over_when_the_clock_says_so(tmp_path: Path, start: str):
    """RULES 7 and 25: a delay counts from the wall clock at acceptance, and the clock alone says that it is over; also
    after a restart, with and without a checkpoint."""
    clock, consumer = Clock(), Consumer()
    async with once_ahead(tmp_path, clock, consumer) as running:
        delayed = await running.publish("q", b"delayed", delay_us=5_000_000)
        due_us = (await running.view.message(delayed)).due_us
        assert abs(due_us - clock.offset_us - 5_000_000) < 1_000_000
        if start == "none":
            clock.forward(6)
            await running.publish("q", b"wakes the courier, whose own timer waits for the loop's clock")
            await running.ended(delayed)
            return
        assert b"delayed" not in consumer.contents
    if start == "from the log alone":
        forget_checkpoints(tmp_path)
    async with running_space(tmp_path, consumer, clock_us=clock) as running:
        assert await running.states(delayed) == ["scheduled"]
        clock.forward(6)
        await running.publish("q", b"wakes")
        await running.ended(delayed)


async def test_a_key_is_remembered_for_its_window_by_the_clock(tmp_path: Path):
    """RULES 4 and 25: a record written ten days ahead does not make keys of a moment ago ten days old."""
    clock = Clock()
    async with once_ahead(tmp_path, clock, Consumer()) as running:
        again = await running.publish_all("q", Message(b"before", idempotency_key="first"))
        assert again.new == (False,)
        clock.forward(limits.idempotency_window_default_s + 60)
        again = await running.publish_all("q", Message(b"before", idempotency_key="first"))
        assert again.new == (True,), "and it is forgotten when the window is over"


@pytest.mark.parametrize("start", ["none", "with the checkpoint", "from the log alone"])
async def test_a_key_of_today_is_not_kept_for_a_day_to_come(tmp_path: Path, start: str):
    """RULES 4 and 25: the window of a message that was accepted behind a record from ten days ahead begins when the
    clock says that it was accepted, not at the time that its record must have; also after a restart."""
    clock = Clock()
    async with once_ahead(tmp_path, clock, Consumer()) as running:
        assert (await running.publish_all("q", Message(b"behind", idempotency_key="second"))).new == (True,)
        assert (await running.publish_all("q", Message(b"behind", idempotency_key="second"))).new == (False,)
        if start == "none":
            clock.forward(limits.idempotency_window_default_s - 60)
            assert (await running.publish_all("q", Message(b"behind", idempotency_key="second"))).new == (False,)
            clock.forward(120)
            assert (await running.publish_all("q", Message(b"behind", idempotency_key="second"))).new == (True,)
            return
    if start == "from the log alone":
        forget_checkpoints(tmp_path)
    clock.forward(limits.idempotency_window_default_s - 60)
    async with running_space(tmp_path, Consumer(), clock_us=clock) as running:
        assert (await running.publish_all("q", Message(b"behind", idempotency_key="second"))).new == (False,)
        clock.forward(120)
        assert (await running.publish_all("q", Message(b"behind", idempotency_key="second"))).new == (True,)


@pytest.mark.parametrize("checkpoint", [True, False])
async def test_retention_goes_by_the_clock(tmp_path: Path, checkpoint: bool):
    """RULES 25: a segment's age counts from the wall time of its sealing, which the next one's first record says, so a
    record of a day to come does not stop retention; also after a restart."""
    clock = Clock()
    options = {"clock_us": clock, "retention_s": DAY_S}
    async with once_ahead(tmp_path, clock, Consumer(), retention_s=DAY_S) as running:
        await running.publish("q", b"the last of the first segment")
        clock.forward(DAY_S / 7)
        assert await running.space._maintenance.drop_expired() == 0, "it rolls, since little is written"
        assert len(running.space._journal.sections()) == 2
    if not checkpoint:
        forget_checkpoints(tmp_path)
    async with running_space(tmp_path, Consumer(), **options) as running:
        clock.forward(DAY_S * 0.99)
        assert await running.space._maintenance.drop_expired() == 0
        clock.forward(DAY_S * 0.02)
        assert await running.space._maintenance.drop_expired() == 1


def test_a_segment_says_when_it_was_opened(tmp_path: Path):
    """INTERFACES, log format: ``sealed_us`` is the wall time; a segment of an older version counts from its records."""
    now_us = 1_700_000_000_000_000
    clocks_us = [now_us]
    journal = FileJournal.open(tmp_path, JournalOptions(), lambda: clocks_us[-1])
    for sealed_us in (now_us, now_us + 5, 0):
        clocks_us.append(sealed_us)
        append_snapshot(journal, time_us=now_us + int(AHEAD_S * 1e6))
    first, second, third = journal.sections()
    assert journal.opened_us(first) == now_us
    assert [journal.sealed_us(one) for one in (first, second)] == [now_us + 5, third.first_time_us]
    journal.close()


@pytest.mark.parametrize("checkpoint", [True, False])
async def test_a_hold_begins_when_the_clock_says(tmp_path: Path, checkpoint: bool):
    """RULES 12 and 25: a message is held for the retention from now, not from the newest record's time."""
    clock = Clock()
    consumer = Consumer(lambda d: REFUSED if d.message.content == b"dies" else ACKNOWLEDGED)
    async with once_ahead(tmp_path, clock, consumer, retention_s=DAY_S) as running:
        dies = await running.publish("q", b"dies")
        held = await running.publish("q", b"held", dies, parent_failure=ParentFailure.HOLD)
        await running.ended(dies)
        assert await running.states(held) == ["held"]
    if not checkpoint:
        forget_checkpoints(tmp_path)
    async with running_space(tmp_path, consumer, clock_us=clock, retention_s=DAY_S) as running:
        clock.forward(1.01 * DAY_S)
        await running.publish("q", b"wakes")
        await running.ended(held)


async def test_a_subscriber_is_disabled_from_now(tmp_path: Path):
    """RULES 14 and 25: what waits for a disabled subscriber dies ``disabled_max`` after its 410 by the clock."""
    clock = Clock()
    consumer = Consumer(lambda d: GONE if d.message.content == b"gone" else ACKNOWLEDGED)
    async with once_ahead(tmp_path, clock, consumer, retention_s=90 * DAY_S) as running:
        await running.publish("q", b"gone")
        await eventually(lambda: running.view.subscriber("q", "a").state == "disabled", "the 410 disables it")
        disabled_us = running.view.subscriber("q", "a").settings.disabled_us
        assert abs(disabled_us - clock.offset_us) < 1_000_000


async def test_a_step_of_the_clock_is_told(caplog: pytest.LogCaptureFixture):
    """RULES 25: whoever sets the clock is told so in the log and by a metric, and what sleeps is woken."""
    clock, meters, woken, looks = Clock(), Meters(), [], []

    def monotonic_s() -> float:
        looks.append(1)
        return 5.0

    watching = asyncio.create_task(watch_clock(clock, meters, lambda: woken.append(1), monotonic_s, 0.01))
    with caplog.at_level(logging.WARNING, "syncbrok.space.clock"):
        await eventually(lambda: looks, "it watches")
        clock.forward(1.0)  # a slew, or a loop that was busy
        before = len(looks)
        await eventually(lambda: len(looks) > before + 1, "it has looked again")
        assert not meters.clock_steps
        for steps, seconds in enumerate((3_600.0, -7_200.0), 1):
            clock.forward(seconds)
            await eventually(lambda: meters.clock_steps == steps, "the step is seen")  # noqa: B023
            assert abs(meters.clock_step_s - seconds) < 0.1
    assert len(woken) == 2
    assert [record.message for record in caplog.records] == ["syncbrok.space.clock_stepped"] * 2
    watching.cancel()


async def test_a_clock_behind_the_log_is_told_at_the_start(tmp_path: Path):
    """RULES 25: the clock was set back while the broker was down."""
    clock = Clock()
    async with once_ahead(tmp_path, clock, Consumer()):
        pass
    async with running_space(tmp_path, clock_us=clock) as running:
        report = running.view.statistics()
        assert report.clock_steps == 1
        assert abs(report.clock_step_s + AHEAD_S) < 10
