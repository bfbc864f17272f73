"""From plain messages, which are nothing but their contents, to facts and runs. Reads no disk and no clock.

They come as a batch, which is one unit, or as many single ones that waited together, each to the queue it was put for.
A batch whose messages have an idempotency key each is decided here too, in one look, where all of them are new.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, Final

from syncbrok.model.errors import Malformed, SyncbrokError
from syncbrok.model.facts import Attributes, Keyed
from syncbrok.model.message import Queue
from syncbrok.model.names import QueueName
from syncbrok.space.channels import Accepted, PlainKind, PublishBatch, PublishKeyed
from syncbrok.space.draft import Draft, First
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
        count = len(item.contents)
        if not count:
            raise Malformed("a batch without a message")
        first = draft.sequence
        draft.publish(((count, _attributes(queue, item.kind)),), item.contents)
        return Accepted(first, draft.ids.joined(first, count), self._sync)

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
        draft.publish(((count, _attributes(queue, item.kind)),), contents, keyed=Keyed(keys, prints, hashes))
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

    def stretches_of(self, kinds: Sequence[PlainKind]) -> tuple[list[tuple[int, Attributes]], dict[int, SyncbrokError]]:
        """Of the messages that can be accepted those that are alike, as in ``Messages``; and by place why the others
        cannot."""
        stretches: list[tuple[int, Attributes]] = []
        refused: dict[int, SyncbrokError] = {}
        last: PlainKind | None = None
        attributes: Attributes | None = None
        end = 0
        for place, kind in enumerate(kinds):
            if kind is not last:
                try:
                    queue = self._queue(kind.queue)
                except SyncbrokError as why:
                    refused[place] = why
                    continue
                if attributes is not None:
                    stretches.append((end, attributes))
                attributes, last = _attributes(queue, kind), kind
            end += 1
        if attributes is not None:
            stretches.append((end, attributes))
        return stretches, refused

    def accept_each(
        self, contents: Sequence[bytes], stretches: Sequence[tuple[int, Attributes]], draft: Draft
    ) -> Accepted:
        """As ``accept_batch`` for messages that are units of their own."""
        first = draft.sequence
        draft.publish(stretches, contents, one_unit=False)
        return Accepted(first, draft.ids.joined(first, len(contents)), self._sync)


def _attributes(queue: Queue, kind: PlainKind) -> Attributes:
    settings = queue.settings
    return Attributes(queue.number, settings.scope, settings.parent_failure, kind.content_type)
