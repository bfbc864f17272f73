"""Reads messages by sequence, off the event loop, and remembers ids and queues of some sequences.

Rows and waiting children name messages by sequence; people name them by id. Content is read along and thrown away. So
readers of many messages go through here: slices keep the content in memory to a few MiB at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from syncbrok.model import limits
from syncbrok.model.facts import StoredMessage
from syncbrok.model.journal import MessageIndex
from syncbrok.model.names import MessageId
from syncbrok.space.queries.finding import find_message, found
from syncbrok.space.queries.message_rows import MessageRows
from syncbrok.space.queries.sources import Sources

SLICE = 64
"""messages per read, some KiB in practice"""
_FIRST_TOGETHER: Final = 1
_SMALL_BYTES: Final = 16 * limits.KIB
"""contents of this size on the average are small"""


class MessageHead(NamedTuple):
    """Id and queue of the message with a sequence. ``queue`` is a number."""

    id: MessageId
    queue: int


class Stored(NamedTuple):
    """A message without its content: ``message.content`` is empty, ``content_bytes`` says how long it is."""

    message: StoredMessage
    content_bytes: int


class MessageWithRows(NamedTuple):
    """A message with the rows of its attempts."""

    message: StoredMessage
    rows: MessageRows


def stored(message: StoredMessage) -> Stored:
    return Stored(message._replace(content=b""), len(message.content))


class Reading:
    """Reads messages. Owns nothing but the heads it remembers, at most ``limits.heads_kept_max``."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._heads: dict[int, MessageHead] = {}  # in the order of being learned: the oldest goes first

    def remember(self, message: StoredMessage) -> None:
        """Remember id and queue, so that naming the message later needs no disk."""
        heads = self._heads
        if len(heads) >= limits.heads_kept_max:
            del heads[next(iter(heads))]
        heads[message.sequence] = MessageHead(message.id, message.queue)

    def known(self, sequence: int) -> MessageId | None:
        """The id where memory has it."""
        head = self._heads.get(sequence)
        if head is not None:
            return head.id
        message = self._sources.journal.cached(sequence)
        return None if message is None else message.id

    async def find(self, id: MessageId, *, rows: bool = True) -> MessageWithRows:  # noqa: A002 (the word of the domain)
        """Raises what ``found`` raises."""
        reading = self._sources.run_blocking(_find, self._sources.journal, id, rows)
        message, found_rows = await found(reading, id, self._sources.schedule.is_lost, self._sources.erasures.is_past)
        self.remember(message)
        return MessageWithRows(message, found_rows)

    async def messages(self, sequences: Sequence[int]) -> list[Stored | None]:
        """The messages in the order asked; None for those that retention has dropped, or that of their
        queue."""
        found: list[Stored | None] = []
        for at in range(0, len(sequences), SLICE):
            found += await self._sources.run_blocking(_stored, self._sources.journal, sequences[at : at + SLICE])
        past = self._sources.erasures.is_past
        for at, stored in enumerate(found):
            if stored is not None:
                self.remember(stored.message)
                if past(stored.message.sequence):
                    found[at] = None
        return found

    async def heads(self, sequences: Iterable[int]) -> dict[int, MessageHead]:
        """Id and queue of each message, also of one whose record is damaged elsewhere. Messages that retention has
        dropped, and those whose header is damaged, are left out."""
        known: dict[int, MessageHead] = {}
        missing: list[int] = []
        for sequence in set(sequences):
            head = self._heads.get(sequence)
            if head is None:
                message = self._sources.journal.cached(sequence)
                head = None if message is None else MessageHead(message.id, message.queue)
            if head is None:
                missing.append(sequence)
            else:
                known[sequence] = head
        missing.sort()  # neighbours are read at once
        for sequence, stored in zip(missing, await self.messages(missing), strict=True):
            if stored is not None:
                known[sequence] = MessageHead(stored.message.id, stored.message.queue)
            elif (place := await self._sources.run_blocking(self._sources.journal.place_of, sequence)) is not None:
                known[sequence] = MessageHead(*place)
        return known


def _find(journal: MessageIndex, id_: MessageId, with_rows: bool) -> tuple[StoredMessage, MessageRows]:
    message = find_message(journal, id_)
    return message, rows_of(journal, message.sequence) if with_rows else MessageRows(())


def rows_of(journal: MessageIndex, sequence: int) -> MessageRows:
    """The rows of a message; it may read from the disk."""
    return MessageRows(row for _, row in journal.rows_of(sequence))


def rows_of_many(journal: MessageIndex, sequences: Sequence[int]) -> list[MessageRows]:
    """``rows_of`` for each of these; neighbours often have theirs in the same records, which are read once."""
    return [MessageRows(one.row for one in rows) for rows in journal.timed_rows_of_many(sequences)]


def _stored(journal: MessageIndex, sequences: Sequence[int]) -> list[Stored | None]:
    pieces = read_in_pieces(journal, sequences)
    return [None if read is None else stored(read) for some in pieces for read in some]


def read_in_pieces(journal: MessageIndex, sequences: Sequence[int]) -> Iterator[list[StoredMessage | None]]:
    """Yield these messages in the order asked, in lists with a few MiB of content at most. While contents are small
    many are read together, since they stand in one block."""
    at, together = 0, _FIRST_TOGETHER
    while at < len(sequences):
        some = journal.read_many(sequences[at : at + together])
        at += together
        size = sum([len(message.content) for message in some if message is not None])
        together = SLICE if size < _SMALL_BYTES * len(some) else _FIRST_TOGETHER
        yield some
