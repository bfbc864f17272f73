"""The history as people read it."""

from collections.abc import Callable, Sequence
from typing import Final

from syncbrok.model.names import QueueName
from syncbrok.space.meters import LATENCY_BOUNDS_S
from syncbrok.space.queries.sources import Sources
from syncbrok.space.reports import MinuteReport
from syncbrok.space.state.history import MINUTE_US, percentile_ms, unpacked

_TOGETHER: Final = 60


async def minutes_since(
    sources: Sources, first: int, queue: str | None, may_see: Callable[[QueueName], bool] | None
) -> list[MinuteReport]:
    """The minutes from ``first`` on; they are unpacked in a reader's thread, an hour at a time."""
    packed = sources.meters.history.since(first)
    found: list[MinuteReport] = []
    for at in range(0, len(packed), _TOGETHER):
        found += await sources.run_blocking(_reports, packed[at : at + _TOGETHER], queue, may_see)
    return found


def _reports(
    packed: Sequence[tuple[int, bytes]], queue: str | None, may_see: Callable[[QueueName], bool] | None
) -> list[MinuteReport]:
    sees: Callable[[str], bool] | None = None if may_see is None else lambda name: may_see(QueueName(name))
    found: list[MinuteReport] = []
    for minute in unpacked(packed):
        figures = minute.of(queue, sees)
        if figures is not None:
            found.append(
                MinuteReport(
                    at_us=minute.number * MINUTE_US,
                    accepted=figures.accepted,
                    delivered=figures.delivered,
                    failed=figures.failed,
                    dead=figures.dead,
                    backlog=figures.backlog,
                    oldest_ms=figures.oldest_ms,
                    p50_ms=percentile_ms(figures.latencies, LATENCY_BOUNDS_S, 0.5),
                    p99_ms=percentile_ms(figures.latencies, LATENCY_BOUNDS_S, 0.99),
                )
            )
    return found
