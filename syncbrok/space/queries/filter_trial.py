"""Tries a filter on the newest messages of a queue; nothing is changed."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from syncbrok.delivery.filtering.filter_contexts import FilterContexts
from syncbrok.delivery.filtering.message_filter import compile_filter
from syncbrok.model import limits
from syncbrok.model.facts import Reason, StoredMessage
from syncbrok.model.journal import MessageIndex
from syncbrok.model.units import read_setting
from syncbrok.space.queries.reading import read_in_pieces
from syncbrok.space.queries.sources import Sources
from syncbrok.space.reports import TriedMessage

_FIRST_LOOK: Final = 4
_FURTHER: Final = 8
"""a look goes back this many sequences for each message that is wanted, each next one so many times as far"""


class FilterTrial:
    """Makes the trials, each in a thread. Keeps nothing between two of them."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    async def run(self, queue: str, text: str, last: int) -> list[TriedMessage]:
        """The filter's answers for the newest ``last`` messages of the queue, the newest first. Raises ``BadSetting``
        where it is no filter, and ``UnknownQueue``."""
        number = self._sources.registry.queue(queue).number
        newest = self._sources.schedule.queue_statistics(number).last_sequence
        read_setting("filter", compile_filter, text)
        return await self._sources.run_blocking(_tried, self._sources.journal, queue, number, newest, text, last)


def _tried(journal: MessageIndex, queue: str, number: int, newest: int, text: str, last: int) -> list[TriedMessage]:
    contexts = FilterContexts()
    wanted = compile_filter(text)
    found: list[TriedMessage] = []
    for some in read_in_pieces(journal, _newest(journal, number, newest, last)):
        found += [
            _as_tried(message, *contexts.verdict(wanted, message, queue)[:2]) for message in some if message is not None
        ]
    return found[::-1]


def _as_tried(message: StoredMessage, reason: Reason, detail: bytes) -> TriedMessage:
    result = "delivered" if reason is Reason.NONE else reason.name.lower()
    return TriedMessage(message.id, message.sequence, result, detail.decode(errors="replace"))


def _newest(journal: MessageIndex, queue: int, newest: int, last: int) -> Sequence[int]:
    """The newest sequences of a queue, at most ``last``, ascending. Other queues' messages lie between them, so it
    looks further and further back, at last through all of the log."""
    found: deque[int] = deque(maxlen=last)
    after, back = newest, _FIRST_LOOK * last
    while len(found) < last and after > 0:
        found.clear()
        after = max(newest - back, 0)
        while some := journal.queue_sequences(queue, found[-1] if found else after, limits.scanned_per_page_max):
            found.extend(some)
        back *= _FURTHER
    return [*found]
