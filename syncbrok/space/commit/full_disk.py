"""Chooses the work that goes on while the disk is full: commands that end other work or let it go on are written from
the log's reserve (RULES 27).

An operator must be able to mend it from here: moving an endpoint or ending a pause lets messages end, deleting or
purging a queue lets retention drop its messages.
"""

from collections.abc import Mapping
from typing import Any, Final

from syncbrok.space.channels import (
    Cancel,
    ChangeQueue,
    ChangeSubscriber,
    DeclareQueue,
    DeleteQueue,
    PurgeQueue,
    Subscribe,
    Unsubscribe,
)
from syncbrok.space.commit.channel import BoundedChannel, ChannelItem, no_room
from syncbrok.space.commit.commit_batch import CommitBatch, Step

_ENDING: Final = (Cancel, DeleteQueue, PurgeQueue, Unsubscribe)
_MAY_CHANGE_NOTHING: Final = (ChangeQueue, DeclareQueue, Subscribe)


def is_essential(item: Any) -> bool:
    """True if the item is written even on a full disk. A new secret is not: its file needs room of its own."""
    return isinstance(item, _ENDING) or (isinstance(item, ChangeSubscriber) and item.secret is None)


def refuse_others(channel: BoundedChannel, steps: Mapping[type, Step], batch: CommitBatch) -> None:
    """Refuse what waits in the channel and is not essential, except what would write nothing: a file of queues that
    stands as it is applied is no reason not to start."""
    kept: list[ChannelItem] = []
    while (waiting := channel.take()) is not None:
        if is_essential(waiting.item):
            kept.append(waiting)
        elif not (isinstance(waiting.item, _MAY_CHANGE_NOTHING) and _changed_nothing(waiting, steps, batch)):
            waiting.refuse(no_room())
    channel.put_back(kept)


def _changed_nothing(waiting: ChannelItem, steps: Mapping[type, Step], batch: CommitBatch) -> bool:
    """True if the item was answered without a fact."""
    trial = CommitBatch(batch.sequence, batch.time_us, now_us=batch.now_us)
    trial.answer(waiting, steps[type(waiting.item)])
    if trial.records:
        for undo in trial.undo:
            undo()
        return False
    trial.resolve()
    return True
