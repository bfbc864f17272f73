"""The words with which a unit of messages is refused; ``position`` is the line of a batch it is about."""

from syncbrok.model.errors import FirstLost, IdempotencyConflict, UnknownParent
from syncbrok.model.facts import StoredMessage
from syncbrok.model.names import MessageId, id_text
from syncbrok.space.commit.commit_batch import First


def differs(key: str, first: First, position: int) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"idempotency key {key!r} was used for another message, {id_text(first.id)}; use a new key for new content",
        idempotency_key=key,
        id=id_text(first.id),
        line=position,
    )


def first_is_lost(key: str, first: StoredMessage | None, position: int) -> FirstLost:
    """The refusal of a key whose first message is damaged. ``first``: the message as far as the log still tells, None
    for nothing."""
    name = None if first is None else id_text(first.id)
    return FirstLost(
        f"idempotency key {key!r} was used before, for message {name or '(unknown)'}, and the log is damaged where "
        "that stands: it was accepted, and whether this is the same message cannot be told any more",
        idempotency_key=key,
        id=name,
        line=position,
    )


def unknown_parent(parent: MessageId, position: int) -> UnknownParent:
    return UnknownParent(
        f"parent {id_text(parent)} was never accepted; publish it first", parent=id_text(parent), line=position
    )
