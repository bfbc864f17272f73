"""The chain of waits that made a message late: up from it, at each message through the parent that ended last.

As the pipeline's job ``lineage`` finds it of a whole log (``critical_paths``), for one message and at once. The time
from where it begins to the message's end is all on it, none of it twice. Only what stands on the way up is read, a few
generations with each look at the log; what is passed by is not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from syncbrok.model import limits
from syncbrok.model.facts import StoredMessage
from syncbrok.model.journal import MessageIndex, TimedRow
from syncbrok.model.names import sequence_of
from syncbrok.model.units import shown_endpoint
from syncbrok.space.pause import Pause
from syncbrok.space.queries.message_ends import MessageEnds, message_ends
from syncbrok.space.queries.sources import Sources
from syncbrok.space.queries.wait_explanation import ENDED
from syncbrok.space.reports import CriticalPathReport, PathStep
from syncbrok.space.state.registry import Departed

_TOGETHER: Final = 64
"""messages of a look at the log"""
_OPEN: Final = 1 << 62
"""later than any time"""


class _Found(NamedTuple):
    """A message without its content, with its rows."""

    message: StoredMessage
    rows: list[TimedRow]


class _Place(NamedTuple):
    """A message on the way, when the parent it waited for ended (0: none), and its own ends."""

    found: _Found
    parents_us: int
    ends: MessageEnds


class CriticalPath:
    """Finds paths. Keeps nothing between two of them."""

    def __init__(self, sources: Sources, messages_max: int = limits.tree_nodes_max) -> None:
        """``messages_max``: read at most so many for one path, and those of one more look at the log."""
        self._sources = sources
        self._messages_max = messages_max

    async def find(self, start: StoredMessage, now_us: int, pause: Pause) -> CriticalPathReport:
        """The path of a message; of one that has not ended as it stands at ``now_us``: it waits through the parent that
        has not ended. ``truncated``: its beginning lies further back."""
        known: dict[int, _Found | None] = {}
        await self._read([start.sequence], known)
        places: list[_Place] = []
        ahead = known[start.sequence]
        truncated = False
        ends = None if ahead is None else self._ends(ahead)
        while ahead is not None and ends is not None:
            parents = list(dict.fromkeys(map(sequence_of, ahead.message.parents)))
            if any(parent not in known for parent in parents):
                if len(known) >= self._messages_max:
                    truncated = True
                    parents = []
                await self._read([parent for parent in parents if parent not in known], known)
            chosen = self._critical_parent(parents, known, ends)
            places.append(_Place(ahead, 0 if chosen is None else chosen[1].done_us or now_us, ends))
            ahead, ends = chosen if chosen is not None else (None, None)
            await pause()
        return self._report(places, now_us, truncated=truncated)

    async def _read(self, sequences: list[int], known: dict[int, _Found | None]) -> None:
        if sequences:
            known.update(await self._sources.run_blocking(_upwards, self._sources.journal, sequences, known.keys()))

    def _ends(self, found: _Found) -> MessageEnds:
        registry, message = self._sources.registry, found.message
        counted: dict[int, Departed | None] = dict.fromkeys(
            registry.counted(message.queue, message.sequence, message.only)
        )
        counted |= {
            number: one
            for number, one in registry.departed(message.queue, message.sequence)
            if one.counts and message.only in (0, number)
        }
        state = self._sources.schedule.message_state(message.sequence)
        return message_ends(message.time_us, counted, found.rows, has_ended=state in ENDED)

    def _critical_parent(
        self, parents: Iterable[int], known: Mapping[int, _Found | None], own: MessageEnds
    ) -> tuple[_Found, MessageEnds] | None:
        """The parent that ended last of those that had ended before it, of several at once the latest; of a message
        that has not ended the first of the parents that have not either."""
        best: tuple[tuple[int, int], _Found, MessageEnds] | None = None
        for parent in parents:
            found = known.get(parent)
            if found is None:
                continue
            ends = self._ends(found)
            if not ends.done_us and not own.done_us:
                rank = (_OPEN, -parent)
            elif ends.done_us and (not own.done_us or ends.done_us <= own.done_us):
                rank = (ends.done_us, parent)
            else:
                continue
            if best is None or rank > best[0]:
                best = rank, found, ends
        return None if best is None else best[1:]

    def _report(self, places: Sequence[_Place], now_us: int, *, truncated: bool) -> CriticalPathReport:
        began_us = places[-1].found.message.time_us if places else now_us
        ended_us = places[0].ends.done_us if places else 0
        steps = [self._step(place, now_us) for place in reversed(places)]
        return CriticalPathReport(tuple(steps), began_us, ended_us, (ended_us or now_us) - began_us, truncated)

    def _step(self, place: _Place, now_us: int) -> PathStep:
        """Its durations as the pipeline's ``timed_steps`` has them."""
        message, ends = place.found.message, place.ends
        ended_us = ends.done_us or now_us
        ready_us = max(message.time_us, place.parents_us)
        begins_us = place.parents_us or message.time_us
        due_us = min(ended_us, max(ready_us, message.due_us))
        tried_us = min(ended_us, max(due_us, ends.first_attempt_us or ended_us))
        registry = self._sources.registry
        subscriber = registry.subscriber_numbered(ends.subscriber)
        return PathStep(
            id=message.id,
            sequence=message.sequence,
            queue=registry.queue_name(message.queue),
            state=self._sources.schedule.message_state(message.sequence),
            subscriber=registry.subscriber_id(ends.subscriber) if ends.subscriber else None,
            endpoint="" if subscriber is None else shown_endpoint(subscriber.settings.endpoint),
            attempts=ends.attempts,
            accepted_us=message.time_us,
            ended_us=ends.done_us,
            published_us=ready_us - begins_us,
            waited_us=max(place.parents_us - message.time_us, 0),
            scheduled_us=due_us - ready_us,
            queued_us=tried_us - due_us,
            attempts_us=ended_us - tried_us,
        )


def _upwards(journal: MessageIndex, sequences: Sequence[int], known: Iterable[int]) -> dict[int, _Found | None]:
    """These messages and, where they are few, some of those above them; None for what retention has dropped."""
    found: dict[int, _Found | None] = {}
    seen = {*known, *sequences}
    ahead = list(sequences)
    while ahead:
        above: list[int] = []
        for sequence, message in zip(ahead, journal.read_many(ahead), strict=True):
            if message is None:
                found[sequence] = None
                continue
            found[sequence] = _Found(message._replace(content=b""), journal.timed_rows_of(sequence))
            above += [parent for one in message.parents if (parent := sequence_of(one)) not in seen]
            seen.update(above)
        ahead = list(dict.fromkeys(above)) if len(found) + len(above) <= _TOGETHER else []
    return found
