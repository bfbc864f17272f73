"""The states of messages, the table by which alone they change, and the names of a delivery's states (RULES 9).

A **message** is all its counted deliveries together; its events come from its parents, from the clock, and from its
deliveries ("the last one ended" is such an event). ``MESSAGE`` says which event leads from which state to which. It is
executed: ``message_chunk.MessageChunk`` holds the states as a column and changes them by ``NEXT``, which is this table
as bytes, and nothing else writes there. An event that the table does not know raises ``ForbiddenTransition`` and
changes nothing.

What is no event: a message that nobody is to get is complete without ever having a row, and a checkpoint, or what a
segment's snapshot says of messages that are gone, is taken over as it stands.

A **delivery** is one message going to one subscriber. It has no state of its own and so no table. While it has not
ended, its state follows from where the subscriber's cursor holds it (``Cursor.state``), from its message, and from
whether the subscriber is paused or disabled; afterwards from what is known of its end
(``SchedulerQueries.delivery_state``).
"""

from enum import IntEnum
from typing import Final

from syncbrok.model.facts import Outcome, Reason


class DeliveryState(IntEnum):
    """The answers of ``SchedulerQueries.delivery_state``."""

    BLOCKED = 0
    """a gate keeps it: its message waits or is on hold, or an earlier one of its key has not ended there"""
    PENDING = 1
    """it goes when the window has room"""
    IN_FLIGHT = 2
    """handed to a handler, or its end is not durable yet"""
    RETRYING = 3
    """an attempt has failed and the next one waits for its time"""
    PAUSED = 4
    """it has not ended and is not out, and its subscriber is paused or disabled: it goes on where it was"""
    DELIVERED = 5
    DEAD = 6
    EXPIRED = 7
    DROPPED = 8
    """an operator cancelled or purged it, or its subscriber or queue is gone"""
    SKIPPED = 9
    """it was not for this subscriber: its filter says so"""


class MessageState(IntEnum):
    """``NONE`` stands in a chunk where a sequence is not a message's. All after ``PENDING`` have ended."""

    NONE = 0
    SCHEDULED = 1
    WAITING = 2
    HELD = 3
    PENDING = 4
    COMPLETE = 5
    DEAD = 6
    EXPIRED = 7
    DROPPED = 8


class MessageEvent(IntEnum):
    DELAYED = 0
    """accepted with a time not before which nothing is delivered"""
    BLOCKED = 1
    """a parent has not ended"""
    PARENT_BAD = 2
    """a parent ended badly and the message's policy is ``hold``"""
    RELEASED = 3
    """its gate is open"""
    ENDED_WELL = 4
    """the last counted delivery ended and none is dead or expired"""
    ENDED_DEAD = 5
    ENDED_EXPIRED = 6
    ENDED_DROPPED = 7
    """an operator cancelled or purged it"""
    SKIPPED = 8
    """it counts no subscriber, and nothing keeps it any more (RULES 17)"""
    MENDED = 9
    """a replay brought it to all subscribers after all"""


M = MessageState
V = MessageEvent

_MESSAGE_OPEN: Final = (M.SCHEDULED, M.WAITING, M.HELD, M.PENDING)
_MESSAGE_BAD: Final = (M.DEAD, M.EXPIRED, M.DROPPED)

MESSAGE: Final[dict[tuple[MessageState, MessageEvent], MessageState]] = {
    (M.NONE, V.DELAYED): M.SCHEDULED,
    (M.NONE, V.BLOCKED): M.WAITING,
    (M.NONE, V.PARENT_BAD): M.HELD,
    (M.NONE, V.RELEASED): M.PENDING,
    (M.SCHEDULED, V.BLOCKED): M.WAITING,
    (M.SCHEDULED, V.PARENT_BAD): M.HELD,
    (M.SCHEDULED, V.RELEASED): M.PENDING,
    (M.WAITING, V.PARENT_BAD): M.HELD,
    (M.WAITING, V.RELEASED): M.PENDING,
    (M.HELD, V.BLOCKED): M.WAITING,
    (M.HELD, V.RELEASED): M.PENDING,
    # With scope ``same`` one subscriber may have it already when a parent ends badly at another.
    (M.PENDING, V.PARENT_BAD): M.HELD,
    (M.PENDING, V.ENDED_WELL): M.COMPLETE,
    (M.HELD, V.ENDED_WELL): M.COMPLETE,
    **{(state, V.ENDED_DEAD): M.DEAD for state in _MESSAGE_OPEN},
    **{(state, V.ENDED_EXPIRED): M.EXPIRED for state in _MESSAGE_OPEN},
    **{(state, V.ENDED_DROPPED): M.DROPPED for state in _MESSAGE_OPEN},
    # At a start its row may be applied before the ends of its parents have been carried to it, or its time has come.
    **{(state, V.SKIPPED): M.COMPLETE for state in _MESSAGE_OPEN},
    # Every subscriber left before its time or its parents had come: all its deliveries count as acknowledged.
    (M.SCHEDULED, V.ENDED_WELL): M.COMPLETE,
    (M.WAITING, V.ENDED_WELL): M.COMPLETE,
    **{(state, V.MENDED): M.COMPLETE for state in _MESSAGE_BAD},
}

MESSAGE_IMPOSSIBLE: Final[frozenset[tuple[MessageState, MessageEvent]]] = frozenset(
    {
        # The end of a message is decided once (RULES 12); only a replay mends it, and completion never goes back.
        *((state, event) for state in _MESSAGE_BAD for event in V if event is not V.MENDED),
        *((M.COMPLETE, event) for event in V),
        *((state, V.MENDED) for state in (M.NONE, *_MESSAGE_OPEN)),
        # What was never accepted cannot end; what was accepted cannot be delayed anew.
        *((M.NONE, event) for event in (V.ENDED_WELL, V.ENDED_DEAD, V.ENDED_EXPIRED, V.ENDED_DROPPED, V.SKIPPED)),
        *((state, V.DELAYED) for state in _MESSAGE_OPEN),
        # Parents do not become unfinished again, and a state is not entered twice.
        (M.WAITING, V.BLOCKED),
        (M.PENDING, V.BLOCKED),
        (M.PENDING, V.RELEASED),
        (M.HELD, V.PARENT_BAD),
    }
)

NEXT: Final[tuple[bytes, ...]] = tuple(
    bytes(MESSAGE.get((state, event), M.NONE) for state in M).ljust(256, bytes(1)) for event in V
)
"""``MESSAGE`` as it is executed: ``NEXT[event][state]`` is the state that follows, 0 where the event is forbidden (no
event leads to ``NONE``); ``states.translate(NEXT[event])`` are those that follow for a whole column. ``MessageChunk``
alone changes states by it."""


class ForbiddenTransition(AssertionError):
    """An event that cannot happen to a message in this state: a defect of the scheduler. Nothing has changed."""

    def __init__(self, state: int, event: MessageEvent) -> None:
        super().__init__(
            f"{event.name} cannot happen to a message that is {M(state).name}; see delivery/scheduler/lifecycle.py"
        )


ENDING: Final[dict[Outcome, MessageEvent]] = {
    Outcome.SKIPPED: V.SKIPPED,
    Outcome.DEAD: V.ENDED_DEAD,
    Outcome.EXPIRED: V.ENDED_EXPIRED,
    Outcome.DROPPED: V.ENDED_DROPPED,
}
"""A row for all subscribers ends its message so."""

BAD_STATE: Final[dict[Outcome, MessageState]] = {
    Outcome.DEAD: M.DEAD,
    Outcome.EXPIRED: M.EXPIRED,
    Outcome.DROPPED: M.DROPPED,
}
"""How a message that ended badly is written in a segment's snapshot."""

PARENT_REASON: Final[dict[MessageState, Reason]] = {
    M.DEAD: Reason.PARENT_FAILED,
    M.EXPIRED: Reason.PARENT_EXPIRED,
    M.DROPPED: Reason.PARENT_DROPPED,
}
"""Why a child dies of a parent that ended so (RULES 12)."""

OF_A_PARENT: Final = frozenset(PARENT_REASON.values())


def message_after(state: int, event: MessageEvent) -> MessageState:
    """The state that follows. Raises ``ForbiddenTransition``."""
    after = NEXT[event][state]
    if not after:
        raise ForbiddenTransition(state, event)
    return M(after)
