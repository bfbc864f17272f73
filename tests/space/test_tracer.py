"""INTERFACES 1, ``traces``: what waits for a collector is bounded, and what is lost is counted."""

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from syncbrok.delivery.trace_context import SpanPlace
from syncbrok.model.facts import Outcome, Outcomes, Reason, Row
from syncbrok.space.meters import Meters
from syncbrok.space.standstills import Standstills
from syncbrok.space.trace_spans import Seen, TraceSpan
from syncbrok.space.tracer import Sent, Tracer
from tests.support.polling import eventually

PLACE = SpanPlace(bytes(15) + b"1", bytes(7) + b"1")


class OneForEach:
    """Makes a span of each row."""

    broken = False

    def build(self, seen: Iterable[Seen]) -> list[TraceSpan]:
        if self.broken:
            raise ZeroDivisionError
        return [
            TraceSpan(PLACE, b"", str(row.message), "internal", 0, 0, {}) for one in seen for row in one.rows
        ]  # fmt: skip


class Collector:
    """Answers when it is let."""

    def __init__(self, sent: Sent = Sent.YES) -> None:
        self.names: list[str] = []
        self.may = asyncio.Event()
        self.asked = 0
        self._sent = sent

    def encode(self, spans: Sequence[TraceSpan]) -> bytes:
        return ",".join(span.name for span in spans).encode()

    async def send(self, batch: bytes) -> tuple[Sent, str]:
        self.asked += 1
        await self.may.wait()
        self.names += batch.decode().split(",")
        return self._sent, "because"

    async def close(self) -> None:
        pass


def rows(first: int, count: int) -> Outcomes:
    made = tuple(
        Row(first + one, 1, 1, Outcome.DELIVERED, Reason.NONE, 200, 0, 0, 0, 0) for one in range(count)
    )  # fmt: skip
    return Outcomes(1, 0, made)


def tracer(collector: Collector, meters: Meters, waiting_max: int = 100) -> Tracer:
    more = (asyncio.to_thread, lambda: 0, meters, Standstills(), waiting_max)
    return Tracer(OneForEach(), collector, *more)  # type: ignore[arg-type]


async def test_a_full_line_loses_what_is_new_and_counts_it() -> None:
    """While the collector says nothing 100 wait beside those under way, and no more; then all that waited is sent, in
    order."""
    collector, meters = Collector(), Meters()
    tracing = tracer(collector, meters)
    running = asyncio.create_task(tracing.run())
    tracing.observe([rows(0, 10)])
    await eventually(lambda: collector.asked == 1, "the first batch under way")
    for first in range(10, 200, 10):
        tracing.observe([rows(first, 10)])
    assert meters.spans_lost == 90
    collector.may.set()
    await tracing.finish()
    await running
    assert collector.names == [str(one) for one in range(110)]
    assert (meters.spans_sent, meters.spans_lost) == (110, 90)


async def test_the_end_does_not_wait_for_a_collector_that_hangs() -> None:
    """``finish`` returns within its bound, and what was not sent is counted."""
    collector, meters = Collector(), Meters()
    tracing = tracer(collector, meters)
    running = asyncio.create_task(tracing.run())
    tracing.observe([rows(0, 10)])
    await eventually(lambda: collector.asked == 1, "the first batch under way")
    tracing.observe([rows(10, 5)])
    await tracing.finish()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (meters.spans_sent, meters.spans_lost) == (0, 15)


@pytest.mark.parametrize("sent", [Sent.REFUSED, Sent.AGAIN])
async def test_at_the_end_a_batch_is_tried_once(sent: Sent) -> None:
    """A collector that takes nothing does not hold the end, whatever it says."""
    collector, meters = Collector(sent), Meters()
    collector.may.set()
    tracing = tracer(collector, meters)
    tracing.observe([rows(0, 10)])
    running = asyncio.create_task(tracing.run())
    await tracing.finish()
    await running
    assert (collector.asked, meters.spans_lost) == (1, 10)


async def test_a_mistake_costs_its_spans_alone() -> None:
    """What cannot be made into spans is counted, and the task goes on."""
    collector, meters = Collector(), Meters()
    collector.may.set()
    tracing = tracer(collector, meters)
    running = asyncio.create_task(tracing.run())
    OneForEach.broken = True
    tracing.observe([rows(0, 10)])
    await eventually(lambda: meters.spans_lost == 10, "the first are lost")
    OneForEach.broken = False
    tracing.observe([rows(10, 10)])
    await tracing.finish()
    await running
    assert meters.spans_sent == 10
