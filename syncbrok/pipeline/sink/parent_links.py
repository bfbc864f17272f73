"""Parents that a row names by their keys: rows of the same frame, or of one that was published before.

A parent that waits for its request in the same queue is named by its line there (``#3``), one that waits in another
queue has that sent first, and one that was sent by its id. What this task has not published, the broker is asked for:
rows of an earlier batch, or of a partition that was done before.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import orjson

from syncbrok.pipeline.sink.publisher import (
    AcceptedRequest,
    BadRow,
    FoundMessage,
    PreparedRow,
    Publisher,
    RequestBatcher,
)

COLUMN: Final = "parent_keys"
_IDS_MAX: Final = 200_000
"""ids that are remembered, the newest: some 40 MB. The broker is asked for others"""


class ParentLinks:
    """Hands rows on to ``batcher``, each with the parents that its keys name. ``name`` says which row one is."""

    def __init__(self, publisher: Publisher, batcher: RequestBatcher, name: Callable[[PreparedRow], str]) -> None:
        self._name = name
        self._publisher = publisher
        self._batcher = batcher
        self._waiting: dict[str, tuple[str, int]] = {}
        """queue and number in its request, by key"""
        self._ids: OrderedDict[str, str] = OrderedDict()

    def add(self, line: PreparedRow, keys: Sequence[str | None]) -> Iterator[AcceptedRequest]:
        """Take a row, and yield the requests that were sent for it. Raises ``BadRow`` for a key of which nothing is
        known."""
        named = [key for key in keys if key is not None]
        for queue in dict.fromkeys(self._waiting[key][0] for key in named if key in self._waiting):
            if queue != line.queue:
                yield from self._sent(self._batcher.send(queue))
        if named:  # once all is sent that has to be: what is sent may push an id out of memory
            line = line._replace(text=_with_parents(line.text, [self._parent(key, line) for key in named]))
        self._waiting[line.key] = line.queue, self._batcher.waiting(line.queue) + 1
        yield from self._sent(self._batcher.add(line))
        if line.key in self._waiting:  # those before it may have been sent to make room
            self._waiting[line.key] = line.queue, self._batcher.waiting(line.queue)

    def flush(self) -> Iterator[AcceptedRequest]:
        """Send all that waits. What is in one queue never waits for what is in another's request: ``add`` sent it."""
        yield from self._sent(self._batcher.flush())

    def _sent(self, requests: Iterator[AcceptedRequest]) -> Iterator[AcceptedRequest]:
        for accepted in requests:
            for line, id_ in zip(accepted.lines, accepted.ids, strict=True):
                self._waiting.pop(line.key, None)
                self._remember(line.key, id_)
            yield accepted

    def _remember(self, key: str, id_: str) -> None:
        self._ids[key] = id_
        if len(self._ids) > _IDS_MAX:
            self._ids.popitem(last=False)

    def _parent(self, key: str, line: PreparedRow) -> str:
        """The name of the parent of this key for ``line``: its line in the request that waits, or its id."""
        if key in self._waiting:
            return f"#{self._waiting[key][1]}"
        if key not in self._ids:
            self._remember(key, self._asked(key, line))
        return self._ids[key]

    def _asked(self, key: str, line: PreparedRow) -> str:
        """The id of the message that the broker has under ``key``: in the row's queue, or else in the only one that
        has it."""
        found = self._publisher.find(key)
        there = [one for one in found if one.queue == line.queue] or found
        if len({one.queue for one in there}) > 1:
            raise BadRow(
                f"{self._name(line)}: its {COLUMN} name {key!r}, which several queues have "
                f"({', '.join(sorted({one.queue for one in there}))}): name that parent by its id, in parents"
            )
        if not there:
            raise BadRow(
                f"{self._name(line)}: its {COLUMN} name {key!r}, which is no row before it in its partition and no "
                "message of the broker. Parents stand before their children in one partition (coalesce(1), or "
                "repartition by family, and sortWithinPartitions), or are published before"
            )
        return _newest(there).id


def _with_parents(text: bytes, parents: Sequence[str]) -> bytes:
    """The row as a line, with ``parents`` behind those that it names itself."""
    given: dict[str, Any] = orjson.loads(text)
    given["parents"] = [*given.get("parents", ()), *parents]
    return orjson.dumps(given)


def _newest(found: Sequence[FoundMessage]) -> FoundMessage:
    return max(found, key=lambda one: one.sequence)
