"""Chooses the work that goes on while the disk is full: commands that end other work or let it go on are written from
the log's reserve (RULES 27).

An operator must be able to mend it from here: moving an endpoint or ending a pause lets messages end, deleting or
purging a queue lets retention drop its messages. And what writes nothing needs no room: to refuse it would say that
nothing of a message was kept that was accepted long ago, or leave an endpoint untried that has been mended.
"""

from collections.abc import Mapping
from typing import Any, Final

from syncbrok.model.signature_settings import NAME as SIGNATURES
from syncbrok.space.channels import (
    Cancel,
    CancelJob,
    CancelMessages,
    ChangeQueue,
    ChangeSubscriber,
    DeclareQueue,
    DeleteQueue,
    DropDeadLetters,
    EraseMessage,
    EraseMessages,
    Publish,
    PurgeQueue,
    Recover,
    Replay,
    ReplayMessages,
    RetryMessage,
    RetrySubscriber,
    RevokeToken,
    Subscribe,
    Unsubscribe,
)
from syncbrok.space.commit.channel import BoundedChannel, ChannelItem, no_room
from syncbrok.space.commit.commit_batch import CommitBatch, Step

_ENDING: Final = (Cancel, CancelJob, CancelMessages, DeleteQueue, EraseMessage, PurgeQueue, Unsubscribe)
_WITHOUT_FACTS: Final = (RetryMessage, RetrySubscriber)
_MAY_CHANGE_NOTHING: Final = (ChangeQueue, DeclareQueue, Subscribe)
_TRIED_MAX: Final = 64
"""messages with keys that are looked at together: a larger unit would hold the loop only to be refused"""


def goes_on(item: Any) -> bool:
    """True if the item is worked on even on a full disk. A new secret is not: its file needs room of its own. So does
    a token that is taken away, but who does that must be told at once whether it was."""
    return (
        isinstance(item, (*_ENDING, *_WITHOUT_FACTS, RevokeToken))
        or (isinstance(item, ChangeSubscriber) and not _keeps_secrets(item))
        or (isinstance(item, (Replay, ReplayMessages, Recover, DropDeadLetters, EraseMessages)) and item.dry_run)
    )


def _keeps_secrets(item: ChangeSubscriber) -> bool:
    """True if the file of secrets may have to be written: a key pair is made where ``signatures`` asks for one."""
    return item.secret is not None or bool(item.credentials) or SIGNATURES in item.changes


def _may_change_nothing(item: Any) -> bool:
    """True if it may turn out that the item writes nothing: a publish whose idempotency key is known is one."""
    if not isinstance(item, Publish):
        return isinstance(item, _MAY_CHANGE_NOTHING)
    keyed = item.keys or any(message.idempotency_key for message in item.extras.values())
    return len(item.contents) <= _TRIED_MAX and bool(keyed)


def refuse_others(channel: BoundedChannel, steps: Mapping[type, Step], batch: CommitBatch) -> None:
    """Refuse what waits in the channel and does not go on, except what would write nothing: a file of queues that
    stands as it is applied is no reason not to start."""
    kept: list[ChannelItem] = []
    while (waiting := channel.take()) is not None:
        if goes_on(waiting.item):
            kept.append(waiting)
        elif not (_may_change_nothing(waiting.item) and _changed_nothing(waiting, steps, batch)):
            waiting.refuse(no_room())
    channel.put_back(kept)


def _changed_nothing(waiting: ChannelItem, steps: Mapping[type, Step], batch: CommitBatch) -> bool:
    """True if the item was answered without a fact, or is being looked up."""
    trial = CommitBatch(batch.sequence, batch.time_us, now_us=batch.now_us)
    trial.answer(waiting, steps[type(waiting.item)])
    if trial.records:
        for undo in trial.undo:
            undo()
        return False
    trial.resolve()
    return True
