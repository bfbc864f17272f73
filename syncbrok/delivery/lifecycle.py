"""The states of deliveries and messages, and the two tables by which alone they change (RULES 9).

A **delivery** is one message going to one subscriber. A **message** is all its counted deliveries together; its
events come from its parents, from the clock, and from its deliveries ("the last one ended" is such an event).

The rules of this file: every change of a state anywhere goes through ``delivery_after`` or ``message_after``; the
file does not know who asks, and holds no state itself. A pair that is in neither a table nor its ``IMPOSSIBLE`` set
is a defect that the tests find by trying all of them.

What is *not* a state here: ``paused`` is how a blocked, pending or retrying delivery is shown while its subscriber is
paused or disabled, since nothing about the delivery changes and it goes on where it was.

Deliveries::

    BLOCKED --released--> PENDING
    BLOCKED --ended--> DELIVERED | SKIPPED | DEAD | EXPIRED | DROPPED
    PENDING --taken--> IN_FLIGHT
    IN_FLIGHT --acknowledged--> DELIVERED
    IN_FLIGHT --failed--> RETRYING
    IN_FLIGHT --exhausted--> DEAD
    RETRYING --due--> PENDING
    DEAD | DELIVERED | EXPIRED | DROPPED | SKIPPED --rearmed--> BLOCKED
"""

from enum import IntEnum
from typing import Final

from syncbrok.model.facts import Outcome, Reason


class DeliveryState(IntEnum):
    BLOCKED = 0
    PENDING = 1
    IN_FLIGHT = 2
    RETRYING = 3
    DELIVERED = 4
    SKIPPED = 5
    DEAD = 6
    EXPIRED = 7
    DROPPED = 8


class DeliveryEvent(IntEnum):
    RELEASED = 0
    """its gate is open: parents complete, key's predecessor ended, time come"""
    TAKEN = 1
    """handed to a handler"""
    ACKNOWLEDGED = 2
    FAILED = 3
    """the attempt failed and another one will follow"""
    EXHAUSTED = 4
    """the attempt failed and none will follow"""
    DUE = 5
    """the wait before the next attempt is over"""
    PARENT_FAILED = 6
    EXPIRED = 7
    DROPPED = 8
    """an operator cancelled or purged it, or its subscriber or queue is gone"""
    FILTERED = 9
    ABANDONED = 10
    """its subscriber was disabled for too long"""
    REARMED = 11
    """an operator's replay"""


D = DeliveryState
E = DeliveryEvent

_OPEN: Final = (D.BLOCKED, D.PENDING, D.IN_FLIGHT, D.RETRYING)
_ENDED: Final = (D.DELIVERED, D.SKIPPED, D.DEAD, D.EXPIRED, D.DROPPED)

DELIVERY: Final[dict[tuple[DeliveryState, DeliveryEvent], DeliveryState]] = {
    (D.BLOCKED, E.RELEASED): D.PENDING,
    (D.PENDING, E.TAKEN): D.IN_FLIGHT,
    (D.IN_FLIGHT, E.ACKNOWLEDGED): D.DELIVERED,
    (D.IN_FLIGHT, E.FAILED): D.RETRYING,
    (D.IN_FLIGHT, E.EXHAUSTED): D.DEAD,
    (D.RETRYING, E.DUE): D.PENDING,
    **{(state, E.PARENT_FAILED): D.DEAD for state in _OPEN},
    **{(state, E.EXPIRED): D.EXPIRED for state in _OPEN},
    **{(state, E.DROPPED): D.DROPPED for state in _OPEN},
    **{(state, E.ABANDONED): D.DEAD for state in _OPEN},
    (D.BLOCKED, E.FILTERED): D.SKIPPED,
    (D.PENDING, E.FILTERED): D.SKIPPED,
    **{(state, E.REARMED): D.BLOCKED for state in _ENDED},
}

DELIVERY_IMPOSSIBLE: Final[frozenset[tuple[DeliveryState, DeliveryEvent]]] = frozenset(
    {
        # An ended delivery has no future but a replay: whoever reports to it is late (``Outcome.LATE``).
        *((state, event) for state in _ENDED for event in E if event is not E.REARMED),
        # Only what is out at a handler can be answered, and it can be answered only.
        *(
            (state, event)
            for state in (D.BLOCKED, D.PENDING, D.RETRYING)
            for event in (E.ACKNOWLEDGED, E.FAILED, E.EXHAUSTED)
        ),
        (D.IN_FLIGHT, E.FILTERED),
        (D.RETRYING, E.FILTERED),
        # A gate that has opened stays open, and what waits for its time is not blocked by a gate.
        *((state, E.RELEASED) for state in (D.PENDING, D.IN_FLIGHT, D.RETRYING)),
        *((state, E.TAKEN) for state in (D.BLOCKED, D.IN_FLIGHT, D.RETRYING)),
        *((state, E.DUE) for state in (D.BLOCKED, D.PENDING, D.IN_FLIGHT)),
        *((state, E.REARMED) for state in _OPEN),
    }
)


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
event leads to ``NONE``); ``states.translate(NEXT[event])`` are those that follow for a whole column. ``Chunk`` alone
changes states by it."""


class ForbiddenTransition(AssertionError):
    """An event that cannot happen to a message in this state: a defect of the scheduler. Nothing has changed."""

    def __init__(self, state: int, event: MessageEvent) -> None:
        super().__init__(f"{event.name} cannot happen to a message that is {M(state).name}; see delivery/lifecycle.py")


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


def delivery_after(state: DeliveryState, event: DeliveryEvent) -> DeliveryState:
    """The state that follows; an impossible pair is a defect of the caller (``KeyError``)."""
    return DELIVERY[state, event]


def message_after(state: int, event: MessageEvent) -> MessageState:
    """The state that follows. Raises ``ForbiddenTransition``."""
    after = NEXT[event][state]
    if not after:
        raise ForbiddenTransition(state, event)
    return M(after)


def diagram(table: dict[tuple[DeliveryState, DeliveryEvent], DeliveryState]) -> str:
    """The table as lines ``STATE --event--> STATE``, for documents and for the test that holds them to the code."""
    return "\n".join(f"{state.name} --{event.name.lower()}--> {after.name}" for (state, event), after in table.items())
