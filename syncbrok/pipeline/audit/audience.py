"""Declarations and gaps as arrays, in which whole columns are looked up: who was counted, who was deleted when, which
records are in doubt. Pure.

A task is sent one ``Audiences``: declarations and gaps are few.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from syncbrok.pipeline.audit.declarations import AudienceMember, AuditDeclarations
from syncbrok.pipeline.audit.row_encoding import NEVER, Flags, Longs, places

NOBODY = -1
"""the audience of a message whose queue was not declared"""
_SHIFT = 32  # numbers of subscribers are below 2**32


class Audiences:
    """The audiences of one log, whose first record is ``first``. An audience is known by its place in the arrays; the
    last place is that of ``NOBODY``."""

    def __init__(self, known: AuditDeclarations, first: int) -> None:
        self.first = first
        self.subscribers = known.subscribers
        self.members: list[tuple[AudienceMember, ...]] = [*(one.members for one in known.audiences), ()]
        self.queue = _longs([*(one.queue for one in known.audiences), NOBODY])
        self.queue_gone = _longs([*(one.queue_gone or NEVER for one in known.audiences), NEVER])
        self.size = _longs([len(one) for one in self.members])
        self.newest = _longs([max((member.since for member in one), default=-1) for one in self.members])
        self.has_gone = np.array([any(member.gone for member in one) for one in self.members], bool)
        # Every member of every audience, by audience and number.
        everybody = sorted(
            (at << _SHIFT | one.number, one.gone) for at, all_ in enumerate(self.members) for one in all_
        )
        self._codes = _longs([code for code, _ in everybody])
        self._gones = _longs([gone or NEVER for _, gone in everybody])
        self.numbers = self._codes & (1 << _SHIFT) - 1
        self.begins = np.cumsum(self.size) - self.size
        """where the members of each audience begin in ``numbers``"""
        epochs: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for at, one in enumerate(known.audiences):
            epochs[one.name].append((one.begins, one.ends, at))
        self._epochs = {name: _longs(sorted(spans)).T for name, spans in epochs.items()}
        self._told_apart = [
            (one.number, one.queue, record, start, min(ends, one.gone or NEVER))
            for one in known.subscribers.values()
            for (record, start), ends in zip(one.starts, [NEVER, *(start for _, start in one.starts)], strict=False)
        ]
        """(subscriber, queue, record, first, ends): messages from ``first`` on, before ``ends``, come there because of
        what the record says"""
        self._gap_records = _longs([one.record for one in known.gaps])
        self._gap_lasts = np.maximum.accumulate(_longs([one.last for one in known.gaps]))
        self._doubtful = known.doubtful

    def of(self, queues: Sequence[str], which: Longs, records: Longs) -> Longs:
        """The audience of each message, as its place: the message is of the queue ``queues[which]`` and stands in a
        record of ``records``."""
        found = np.full(len(which), NOBODY, np.int64)
        for at, name in enumerate(queues):
            spans = self._epochs.get(name)
            mine = np.flatnonzero(which == at)
            if spans is None or not len(mine):
                continue
            begins, ends, audiences = spans
            span = np.searchsorted(begins, records[mine]) - 1
            fits = (span >= 0) & (records[mine] <= ends[span])
            found[mine[fits]] = audiences[span[fits]]
        return found

    def member(self, audiences: Longs, numbers: Longs) -> tuple[Flags, Longs]:
        """For each pair of audience and subscriber: true if the subscriber is of the audience, and the record that
        deleted it (``NEVER``: none)."""
        places_of = np.where(audiences == NOBODY, len(self.members) - 1, audiences)
        at, is_there = places(self._codes, places_of << _SHIFT | numbers)
        gone = self._gones[at] if len(self._gones) else np.full(len(at), NEVER)
        return is_there, np.where(is_there, gone, NEVER)

    def uncounted(self, queues: Longs, messages: Longs) -> tuple[Longs, Longs, Longs]:
        """The subscribers to which messages of the ``queues`` come because of where the subscriber starts, those that
        count it among them: as three columns the message's place, the subscriber, and the record that says so.
        ``messages`` ascend."""
        found = [
            (places_of, np.full(len(places_of), number, np.int64), np.full(len(places_of), record, np.int64))
            for number, queue, record, first, ends in self._told_apart
            for lower, upper in [np.searchsorted(messages, [first, ends]).tolist()]
            for places_of in [lower + np.flatnonzero(queues[lower:upper] == queue)]
            if len(places_of)
        ]
        if not found:
            none = np.zeros(0, np.int64)
            return none, none, none
        which, s, since = (np.concatenate(column) for column in zip(*found, strict=True))
        return which, s, since

    def doubt(self, messages: Longs, records: Longs | None = None) -> Longs:
        """For each message the record from which on nothing about it is sure (``NEVER``: all is): a gap behind it may
        have swallowed some of it. With ``records``, the messages' own, gaps before them count as well."""
        since = np.full(len(messages), NEVER)
        if len(self._gap_records):
            at = np.searchsorted(self._gap_lasts, messages)
            inside = at < len(self._gap_lasts)
            since[inside] = self._gap_records[at[inside]]
        if records is not None:
            for above, to in self._doubtful:
                since[(records > above) & (records <= to)] = 0
        return since

    def is_gone(self, message: int, record: int) -> bool:
        """True if ``message``, which is unknown at ``record``, was dropped by retention or lost in a gap."""
        return message < self.first or int(self.doubt(_longs([message]))[0]) < record

    def is_apart(self, number: int, record: int, after: int) -> bool:
        """True if subscriber ``number`` counted neither when an attempt began (``after``) nor when it was recorded."""
        known = self.subscribers.get(number)
        return known is not None and any(begins <= after and record <= ends for begins, ends in known.uncounted)

    def comes_uncounted(self, number: int, queue: int, message: int, record: int) -> bool:
        """True if by ``record`` the subscriber was known to get ``message`` of ``queue`` because of where the
        subscriber starts."""
        known = self.subscribers.get(number)
        if known is None or known.queue != queue or known.begins >= record:
            return False
        return any(at < record and start <= message for at, start in known.starts)

    def deleted(self, number: int) -> int:
        """The record that deleted the subscriber; ``NEVER`` for none."""
        known = self.subscribers.get(number)
        return known.gone or NEVER if known else NEVER


def _longs(values: Sequence[object]) -> Longs:
    return np.array(values, np.int64)
