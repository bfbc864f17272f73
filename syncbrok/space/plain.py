"""From plain messages, which are nothing but their contents, to facts and runs. Reads no disk and no clock.

They come as a batch, which is one unit, or as many single ones that waited together, each to the queue it was put for.
A batch whose messages have an idempotency key each is decided here too, in one look, where all of them are new.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, Final

from syncbrok.model.errors import Malformed, SyncbrokError
from syncbrok.model.facts import Published
from syncbrok.model.message import Queue
from syncbrok.model.names import QueueName
from syncbrok.space.channels import Accepted, PlainKind, PublishBatch, PublishKeyed, PublishPlain
from syncbrok.space.draft import RUN_MIN, Alike, Draft, First, Keyed
from syncbrok.space.idempotency import KeyIndex, key_hashes, plain_fingerprints

_new: Final[Callable[..., Any]] = tuple.__new__
"""makes a named tuple from its fields in order, in a third of the time"""


class PlainAcceptor:
    """``queue`` gives a queue by its name, and raises ``UnknownQueue`` and ``Conflict``."""

    def __init__(self, queue: Callable[[QueueName], Queue], keys: KeyIndex, sync: str) -> None:
        self._queue = queue
        self._keys = keys
        self._sync = sync

    def accept_batch(self, item: PublishBatch, draft: Draft) -> Accepted:
        """All of them or none."""
        queue = self._queue(item.kind.queue)
        contents = item.contents
        if not contents:
            raise Malformed("a batch without a message")
        first = draft.sequence
        ids = draft.ids.joined(first, len(contents))
        draft.add_plain(_alike(queue, item.kind), contents, one_unit=True)
        draft.size_bytes += sum(map(len, contents))
        return Accepted(first, ids, self._sync)

    def accept_keyed(self, item: PublishKeyed, draft: Draft) -> Accepted | None:
        """All of them, where each key is new and memory knows that it is. None, with nothing changed, where they must
        be decided one by one."""
        queue = self._queue(item.kind.queue)
        keys, contents = item.keys, item.contents
        hashes = key_hashes(queue.number, keys)
        if not self._all_new(queue, keys, hashes, draft):
            return None
        first, count = draft.sequence, len(contents)
        prints = plain_fingerprints(item.kind.content_type, contents)
        ids = draft.ids.joined(first, count)
        draft.add_keyed(_alike(queue, item.kind), contents, Keyed(keys, prints, hashes))
        draft.size_bytes += sum(map(len, contents))
        each = [ids[at : at + 16] for at in range(0, 16 * count, 16)]
        made = map(_new, repeat(First), zip(prints, each, range(first, first + count), strict=True))
        draft.keys.update(zip(zip(repeat(queue.number), keys), made, strict=True))
        return Accepted(first, ids, self._sync)

    def _all_new(self, queue: Queue, keys: Sequence[str], hashes: Sequence[int], draft: Draft) -> bool:
        since_us = draft.now_us - int(queue.settings.idempotency_window_s * 1e6)
        return (
            since_us >= self._keys.complete_since_us
            and len(set(keys)) == len(keys)
            and (not draft.keys or draft.keys.keys().isdisjoint(zip(repeat(queue.number), keys)))
            and self._keys.none_of(hashes)
        )

    def queues_of(self, kinds: Sequence[PlainKind]) -> tuple[list[Queue], dict[int, SyncbrokError]]:
        """The queue of each message that can be accepted, in order; and by place why the others cannot."""
        queues: list[Queue] = []
        refused: dict[int, SyncbrokError] = {}
        last: PlainKind | None = None
        for place, kind in enumerate(kinds):
            if kind is not last:
                try:
                    queue = self._queue(kind.queue)
                except SyncbrokError as why:
                    refused[place] = why
                    continue
                last = kind
            queues.append(queue)
        return queues, refused

    def accept_each(self, item: PublishPlain, queues: Sequence[Queue], draft: Draft) -> Accepted:
        """As ``accept_batch`` for messages that are units of their own; ``queues`` has the queue of each. Neighbours
        that are alike become runs."""
        kinds, contents = item
        first, count = draft.sequence, len(contents)
        ids = draft.ids.joined(first, count)
        singles: list[Published] = []
        at = 0
        while at < count:
            queue, kind = queues[at], kinds[at]
            end = at + 1
            while end < count and (kinds[end] is kind or kinds[end] == kind):
                end += 1
            if end - at < min(RUN_MIN, count):  # what is alike from end to end may go on a run, or be gone on with
                singles += _singles(first + at, draft.time_us, ids[16 * at : 16 * end], queue, kind, contents[at:end])
            else:
                draft.add_singles(singles)
                singles = []
                draft.add_plain(_alike(queue, kind), contents[at:end], one_unit=False)
            at = end
        draft.add_singles(singles)
        draft.size_bytes += sum(map(len, contents))
        return Accepted(first, ids, self._sync)


def _alike(queue: Queue, kind: PlainKind) -> Alike:
    settings = queue.settings
    return Alike(queue.number, settings.scope, settings.parent_failure, kind.content_type)


def _singles(
    first: int, time_us: int, ids: bytes, queue: Queue, kind: PlainKind, contents: Sequence[bytes]
) -> list[Published]:
    """Few plain messages of one kind, as facts. The fields of ``Published`` in their order."""
    number, content_type, settings = queue.number, kind.content_type, queue.settings
    scope, failure = settings.scope, settings.parent_failure
    made = []
    for at, content in enumerate(contents):
        sequence, id_ = first + at, ids[16 * at : 16 * at + 16]
        fields = (sequence, time_us, id_, number, sequence, 0, scope, failure, (), "", "", b"", 0, 0)
        made.append(_new(Published, (*fields, content_type, (), content, 0)))
    return made
