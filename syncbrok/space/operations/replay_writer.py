"""How a replay gets into the log (RULES 21): in units, between which the broker goes on."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from syncbrok.model import limits
from syncbrok.model.errors import Draining, LogFull
from syncbrok.model.facts import Rearmed, RearmedEntry
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.state.registry import Registry

_ENTRIES_TOGETHER: Final = 1_000
"""in one record"""
_DELIVERIES_TOGETHER: Final = 32 * limits.ends_slice
"""in one unit: it is drafted in one piece"""


async def write(
    number: int,
    entries: Sequence[RearmedEntry],
    registry: Registry,
    append: Callable[[Callable[[CommitBatch], None]], Awaitable[Any]],
    together: int = limits.commit_records_max,
    *,
    subscriber: int = 0,
) -> None:
    """Put them into the log in units of so many, or fewer where each goes to many, each of which a crash leaves whole
    or undone. ``subscriber`` (0: none) is the only one the replay is for. Raises what ``append`` raises, and where that
    kept a part, says so."""
    gone: set[int] = set()
    for at, unit in _pieces(entries, together, _DELIVERIES_TOGETHER):
        try:
            await append(partial(_rearm, number, subscriber, unit, registry, gone))
        except (LogFull, Draining) as problem:
            if not at:
                raise
            why = "no room on the disk for the log" if isinstance(problem, LogFull) else "the broker is stopping"
            raise type(problem)(
                f"{why}; of this replay {at} of {len(entries)} messages were kept and go again, the rest was not",
                mend="replay the rest later: once more, when what goes again has ended",
                replay=number,
                kept=at,
            ) from problem


def _rearm(
    number: int,
    subscriber: int,
    entries: Sequence[RearmedEntry],
    registry: Registry,
    gone: set[int],
    batch: CommitBatch,
) -> None:
    left = list(_those_left(entries, registry, gone))
    facts = [
        Rearmed(batch.sequence + at, batch.time_us, number, tuple(some), subscriber)
        for at, (_, some) in enumerate(_pieces(left, _ENTRIES_TOGETHER, limits.ends_slice))
    ]
    if facts:
        batch.add(*facts)


def _pieces(
    entries: Sequence[RearmedEntry], entries_max: int, deliveries_max: int
) -> Iterator[tuple[int, Sequence[RearmedEntry]]]:
    """The entries in pieces, each with the place where it begins. One that goes to more subscribers than
    ``deliveries_max`` is a piece of its own."""
    begin = deliveries = 0
    for at, entry in enumerate(entries):
        deliveries += len(entry.subscribers)
        if at - begin == entries_max or (deliveries > deliveries_max and at > begin):
            yield begin, entries[begin:at]
            begin, deliveries = at, len(entry.subscribers)
    if begin < len(entries):
        yield begin, entries[begin:]


def _those_left(entries: Sequence[RearmedEntry], registry: Registry, gone: set[int]) -> Iterator[RearmedEntry]:
    """The entries as a plan would have them that is made now: subscribers and queues may have been deleted since. A
    message with nobody left to go to is ``gone``, and holds no child back."""
    there = {queue: {one.number for one in registry.subscribers(queue)} for queue in {one.queue for one in entries}}
    for entry in entries:
        present = there[entry.queue]
        if not present.issuperset(entry.subscribers):
            tried = [pair for pair in zip(entry.subscribers, entry.attempts, strict=True) if pair[0] in present]
            if not tried:
                gone.add(entry.message)
                continue
            entry = entry._replace(
                subscribers=tuple(one for one, _ in tried), attempts=tuple(attempts for _, attempts in tried)
            )
        if not gone.isdisjoint(entry.parents):
            entry = entry._replace(parents=tuple(parent for parent in entry.parents if parent not in gone))
        yield entry
