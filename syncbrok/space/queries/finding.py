"""From an id to its message, or to what there is to say against it. One place, so that reading, cancelling and
replaying say the same of the same id. And from sequences to ids."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from syncbrok.model.errors import Gone, Lost, PastRetention, UnknownMessage
from syncbrok.model.facts import StoredMessage
from syncbrok.model.journal import MessageIndex
from syncbrok.model.names import MessageId, id_text, issued_by, sequence_of

T = TypeVar("T")


async def found(
    reading: Awaitable[T], id_: MessageId, is_lost: Callable[[int], bool], is_past: Callable[[int], bool]
) -> T:
    """The result of ``reading``, which asks ``find_message`` for this id in a reader's thread. Raises its errors, but
    ``Lost`` in place of ``Gone`` while a dead letter says that the message's content was lost (``Scheduler.is_lost``):
    its age is not the reason why nobody got it. Raises ``PastRetention`` where ``is_past`` says so of its sequence."""
    text = id_text(id_)
    try:
        result = await reading
    except Gone as gone:
        if type(gone) is not Gone or not is_lost(sequence_of(id_)):
            raise
    else:
        if is_past(sequence_of(id_)):
            raise PastRetention(f"message {text} is older than its queue's retention", id=text)
        return result
    raise Lost(f"message {text} is lost: the log was damaged there, and it is older than the log is kept", id=text)


def ids_of(journal: MessageIndex, sequences: Sequence[int]) -> list[MessageId]:
    """The ids of those of these messages (ascending) that the log still has. Reads the disk."""
    return [place[0] for place in journal.places_of(sequences) if place is not None]


def find_message(journal: MessageIndex, id_: MessageId) -> StoredMessage:
    """The message, content included. Reads the disk. Raises ``UnknownMessage`` for an id never issued, ``Gone``
    for one that retention has dropped, ``Lost`` for one that the log has lost."""
    text = id_text(id_)
    if not issued_by(id_, journal.id_key):
        raise UnknownMessage(f"this broker never issued the id {text}", id=text)
    kind, message = _kind_and_message(journal, sequence_of(id_))
    if message is not None and message.id == id_:
        return message
    if kind == "dropped":
        raise Gone(f"message {text} is older than the log is kept", id=text)
    if kind == "lost":
        raise Lost(f"message {text} is lost: the log is damaged there, or salvage left a gap", id=text)
    raise UnknownMessage(f"there is no message {text}", id=text)


def _kind_and_message(journal: MessageIndex, sequence: int) -> tuple[str, StoredMessage | None]:
    kind = journal.kind_of(sequence)
    message = journal.read_many([sequence])[0] if kind == "message" else None
    if kind == "message" and message is None:  # dropped between the two calls, or damaged
        kind = "dropped" if journal.kind_of(sequence) == "dropped" else "lost"
    return kind, message
