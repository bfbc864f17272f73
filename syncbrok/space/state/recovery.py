"""From a journal to the state it tells of: the last checkpoint and what came after it, or everything."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.delivery.scheduler.snapshot import Part, encoded
from syncbrok.model import limits
from syncbrok.model.errors import LogCorrupt, LogFull, LogUnreadable
from syncbrok.model.facts import FactOrRun, Messages
from syncbrok.model.journal import Log
from syncbrok.space.state.state import State

_log = logging.getLogger(__name__)

_sized_together: Final = 4_096
_sized_bytes: Final = 4 * limits.MIB
_records_together: Final = 4_096
"""or one run more"""


def recover(journal: Log, make_scheduler: Callable[[], Scheduler]) -> tuple[State, int]:
    """The state, and how many facts were replayed. A checkpoint that cannot be read costs time and nothing else."""
    state = _from_checkpoint(journal, make_scheduler)
    if state is None:
        state = State(make_scheduler())
        state.scheduler.inherit(journal.inherited())
    replayed = 0
    for records, together in _together(journal.facts_or_runs(state.through)):
        state.apply(together)
        replayed += records
    for section in journal.sections():
        state.time_us = max(state.time_us, section.last_time_us)
    return state, replayed


def size_up(journal: Log, scheduler: Scheduler) -> None:
    """Tell the scheduler how large the contents are that it counts by bytes and does not know (RULES 35). Blocks."""
    while (some := scheduler.unsized(_sized_together)) is not None:
        scheduler.note_sizes(some, sizes_of(journal, some.messages))


def sizes_of(journal: Log, messages: Sequence[int]) -> list[int]:
    """How many bytes the contents of these have; 0 of what nobody gets any more. Blocks."""
    sizes: list[int] = []
    while len(sizes) < len(messages):
        found = journal.read_many(messages[len(sizes) :], _sized_bytes)
        sizes += [0 if one is None else len(one.content) for one in found]
    return sizes


def save_checkpoint(journal: Log, through: int, parts: Mapping[str, Part]) -> int:
    """Write what ``State.save`` gave at ``through``; how many bytes that were, 0 where it was not written. Blocks.
    Where there is no room for it, or the record it would end with cannot be read, the next start takes longer, and
    that is all. Raises ``LogFailed``."""
    whole = encoded(parts)
    try:
        journal.save_checkpoint(through, whole)
    except (OSError, LogFull, LogUnreadable, LogCorrupt) as problem:
        _log.warning("syncbrok.space.checkpoint_failed", extra={"through": through, "detail": str(problem)})
        return 0
    return sum(map(len, whole.values()))


def snapshot_at_start(journal: Log, state: State, now_us: int) -> None:
    """Give the journal the snapshot that it wants, also for a broker that was killed on a full disk: from the reserve,
    or, without one, by going on in the full section, which takes essential records until there is room. Raises
    ``LogFull`` where no section is left to go on in."""
    take = partial(state.snapshot, dropped_through=journal.first_sequence - 1)
    prepared = journal.prepare_snapshot(take, max(state.time_us, now_us))
    try:
        journal.append(prepared, essential=True)
    except LogFull as full:
        sections = journal.sections()
        if not sections or sections[-1].sealed:
            raise
        _log.warning("syncbrok.space.starts_on_a_full_disk", extra={"detail": full.detail})
    else:
        state.apply((prepared.snapshot,))


def _together(facts: Iterable[FactOrRun]) -> Iterator[tuple[int, list[FactOrRun]]]:
    """Thousands at a time, and how many records those are: applying them one by one would cost more, keeping all of
    them a lot of memory."""
    records, together = 0, []
    for fact in facts:
        together.append(fact)
        records += fact.size if isinstance(fact, Messages) else 1
        if records >= _records_together:
            yield records, together
            records, together = 0, []
    if together:
        yield records, together


def _from_checkpoint(journal: Log, make_scheduler: Callable[[], Scheduler]) -> State | None:
    saved = journal.load_checkpoint()
    if saved is None:
        return None
    through, parts = saved
    try:
        return State.load(make_scheduler(), through, parts)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as problem:
        _log.warning("syncbrok.space.checkpoint_unreadable", extra={"through": through, "detail": repr(problem)})
        return None
