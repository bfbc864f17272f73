"""Refuses a queue that no log has: a name that is mistyped would read nothing, and say nothing. No Spark."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from syncbrok.log.format.records import Record, SegmentOpened
from syncbrok.model.errors import BadSetting
from syncbrok.model.facts import QueueSet
from syncbrok.pipeline.decode.open_segment import declared_in, snapshot_of
from syncbrok.pipeline.log_snapshot import LogSnapshot

if TYPE_CHECKING:
    from syncbrok.pipeline.tables.table_snapshot import TableSnapshot

_SHOWN_MAX: Final = 10


def check_queues(
    logs: Sequence[LogSnapshot], wanted: frozenset[str] | None, tables: "Sequence[TableSnapshot]" = ()
) -> None:
    """Raises ``BadSetting`` naming the queues in ``wanted`` (None: all) that none of the logs and tables has ever
    declared, as far as they are left, and some that there are."""
    if not wanted:
        return
    known: set[str] = set()
    for name in chain(chain.from_iterable(one.queues() for one in tables), _names(logs)):
        known.add(name)
        if wanted <= known:
            return
    more = f", and {len(known) - _SHOWN_MAX} more" if len(known) > _SHOWN_MAX else ""
    there = f"there are {', '.join(sorted(known)[:_SHOWN_MAX])}{more}" if known else "it has none"
    missing = ", ".join(sorted(wanted - known))
    where = ", ".join([*(str(one.place) for one in logs), *(str(one.place) for one in tables)])
    raise BadSetting(f"queue names {missing}, which {where} has not; {there}", option="queue")


def _names(logs: Sequence[LogSnapshot]) -> Iterator[str]:
    """Yield the names of queues, those first that cost little: the snapshot at the beginning of each segment has all of
    its time. Only a queue that came later and went before the next, or stands in the last, is declared inside one."""
    segments = [(one, log.uuid) for log in logs for one in reversed(log.segments)]
    for one, _ in segments:
        yield from _declared(snapshot_of(one))
    for one, uuid in segments:
        for fact in declared_in(one, uuid, verify=False):
            yield from _declared(fact)


def _declared(fact: Record) -> Iterator[str]:
    match fact:
        case SegmentOpened():
            for queue in fact.queues:
                yield from _declared(queue)
        case QueueSet():
            yield fact.name
        case _:
            pass
