"""All the state of the scheduler in one place, for the parts that work on it. Nobody outside this room sees it."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from syncbrok.delivery.scheduler.content_sizes import ContentSizes
from syncbrok.delivery.scheduler.cursor import Backlog, Cursor, TriedState
from syncbrok.delivery.scheduler.edges import Edges
from syncbrok.delivery.scheduler.key_chains import KeyChains
from syncbrok.delivery.scheduler.lifecycle import MessageState
from syncbrok.delivery.scheduler.message_table import MessageTable
from syncbrok.delivery.scheduler.queue_rotation import QueueRotation
from syncbrok.delivery.scheduler.timer_wheel import TimerWheel
from syncbrok.model.facts import Outcome, Reason
from syncbrok.model.message import ParentFailure, Queue
from syncbrok.model.sequence_set import SequenceSet

# Kinds in the wheel: below, the number of the subscriber whose retry it is.
DUE: Final = 1 << 32
EXPIRES: Final = DUE + 1
HOLD_OVER: Final = DUE + 2
DISABLED_OVER: Final = DUE + 3
BREAKER_DUE: Final = DUE + 4
"""the value is the number of a breaker"""
RATE_DUE: Final = DUE + 5
"""the value is the number of a subscriber whose bucket has a token again"""


Died = tuple[Reason, tuple[int, ...] | None]
"""why a message died as a whole, and at whom (None: everyone it counts)"""


class Cascaded(dict[int, Died]):
    """Messages of a queue that died as a whole, and how many at each subscriber: to look at hundreds of thousands for
    each of twenty subscribers is half a second of the loop for one scrape. The figure of a subscriber
    (``Cursor.cascaded``) changes with what is here; for one that came when some had died, from when it is asked for."""

    __slots__ = ("_alike", "_cursors", "sequences")

    def __init__(self, cursors: list[Cursor]) -> None:
        super().__init__()
        self._cursors = cursors
        self._alike: dict[Died, Died] = {}  # bounded by the reasons, and the subsets of subscribers there are
        self.sequences = SequenceSet()
        """the same messages, in the order of the log"""

    def __setitem__(self, sequence: int, died: Died) -> None:
        if not self:
            for cursor in self._cursors:
                cursor.cascaded = 0
        self.pop(sequence)
        super().__setitem__(sequence, self._alike.setdefault(died, died))  # of millions nearly all died alike
        self.sequences.add(sequence)
        self._count(sequence, died, 1)

    def pop(self, sequence: int, default: None = None) -> Died | None:  # type: ignore[override]
        died = super().pop(sequence, default)
        if died is not None:
            self.sequences.discard(sequence)
            self._count(sequence, died, -1)
        return died

    def _count(self, sequence: int, died: Died, change: int) -> None:
        for cursor in self._cursors:
            if cursor.cascaded >= 0 and is_at(cursor, sequence, died):
                cursor.cascaded += change

    def after(self, cursor: Cursor, sequence: int, most: int) -> list[int]:
        """The lowest behind ``sequence`` that died at this subscriber, in order, at most ``most``."""
        found: list[int] = []
        while len(found) < most and (some := self.sequences.after(sequence, most)):
            found += [one for one in some if is_at(cursor, one, self[one])]
            sequence = some[-1]
        return found[:most]

    def count_at(self, cursor: Cursor) -> int:
        if cursor.cascaded < 0:
            cursor.cascaded = sum(is_at(cursor, sequence, died) for sequence, died in self.items())
        return cursor.cascaded


def is_at(cursor: Cursor, sequence: int, died: Died) -> bool:
    """Whether a message that died so died at this subscriber of its queue."""
    return cursor.counts(sequence) and (died[1] is None or cursor.number in died[1])


@dataclass(slots=True)
class QueueState:
    """A queue, those who get its messages, and what has been counted of it."""

    queue: Queue
    backlog: Backlog = field(default_factory=Backlog)
    cursors: list[Cursor] = field(default_factory=list)
    uncounted: list[Cursor] = field(default_factory=list)
    """those whose subscribers do not count: nothing that is decided about a message looks at them"""
    waiting: int = 0
    sizes: ContentSizes | None = None
    """of those that wait; where the queue bounds their bytes"""
    last_sequence: int = 0
    accepted: int = 0
    delivered: int = 0
    failed: int = 0
    dead: int = 0
    oldest_hint: int = 0
    cascaded: Cascaded = field(init=False)

    def __post_init__(self) -> None:
        self.cascaded = Cascaded(self.cursors)

    @property
    def everybody(self) -> tuple[Cursor, ...]:
        """All who get its messages, whether they count or not."""
        return (*self.cursors, *self.uncounted)

    def beside(self, cursor: Cursor) -> list[Cursor]:
        """The list in which the cursor stands: among those that count, or among the others."""
        return self.cursors if cursor.is_counted else self.uncounted


@dataclass(slots=True)
class ReplayEntry:
    """Progress of one replayed message.

    ``left``: subscribers where it has not ended yet. ``attempts``: by subscriber, the attempts before the replay.
    ``waiting``: the parents it waits for (edges of scope ``IN_REPLAY``, from this end): until they have ended, or,
    where they failed, until they go well at these subscribers. ``failed``: subscribers where it failed. A hold ends at
    ``hold_over_us`` (RULES 12). ``before``: how it had ended badly, by subscriber: it ends so again where the replay is
    cancelled before it was sent.
    """

    number: int
    queue: int
    left: set[int]
    attempts: dict[int, int]
    waiting: dict[int, set[int]]
    parent_failure: ParentFailure
    key: str = ""
    failed: set[int] = field(default_factory=set)
    hold_over_us: int = 0
    before: dict[int, tuple[Outcome, Reason]] = field(default_factory=dict)

    @property
    def held(self) -> dict[int, set[int]]:
        """The parents of ``waiting`` that failed: it is on hold for them."""
        return {parent: missing for parent, missing in self.waiting.items() if missing}


class ReplayEntries(dict[int, ReplayEntry]):
    """By message. ``of_queue``: how many there are of each queue; a scrape asks that of every one. Those with a key
    stand in the ``replay_lines`` of the cursors where they have yet to end (RULES 6)."""

    def __init__(self, cursors: Mapping[int, Cursor]) -> None:
        super().__init__()
        self._cursors = cursors
        self.of_queue: Counter[int] = Counter()

    def __setitem__(self, message: int, entry: ReplayEntry) -> None:
        if message in self:
            del self[message]
        super().__setitem__(message, entry)
        self.of_queue[entry.queue] += 1
        for subscriber in entry.left if entry.key else ():
            if subscriber in self._cursors:
                self._cursors[subscriber].replay_lines.add(entry.key, message)

    def __delitem__(self, message: int) -> None:
        entry = self[message]
        for subscriber in entry.left:
            self._leave_line(message, entry, subscriber)
        super().__delitem__(message)
        self.of_queue[entry.queue] -= 1
        if not self.of_queue[entry.queue]:
            del self.of_queue[entry.queue]

    def end_at(self, message: int, subscriber: int) -> None:
        """The message, which is here, has ended at the subscriber."""
        entry = self[message]
        if subscriber in entry.left:
            entry.left.discard(subscriber)
            self._leave_line(message, entry, subscriber)

    def goes_to(self, message: int, subscriber: int) -> bool:
        """Whether a replay sends the message to the subscriber, where it has yet to end."""
        entry = self.get(message)
        return entry is not None and subscriber in entry.left

    def _leave_line(self, message: int, entry: ReplayEntry, subscriber: int) -> None:
        if entry.key and subscriber in self._cursors:
            self._cursors[subscriber].replay_lines.discard(entry.key, message)


@dataclass(slots=True)
class ReplayProgress:
    """How far a replay is whose job is not over: the messages that were armed, and of those the ones that have ended
    again at all to whom it sends them, well or not, and the ones that have not."""

    total: int = 0
    done: int = 0
    failed: int = 0
    left: SequenceSet = field(default_factory=SequenceSet)


@dataclass(slots=True)
class ForcedEnd:
    """A message whose end a rule demands: the row is asked for once, and not while an attempt of it is out."""

    message: int
    outcome: Outcome
    reason: Reason
    replay: int = 0
    """the replay in which it ends; 0 for the message's own end"""


@dataclass(slots=True)
class SchedulerState:
    table: MessageTable = field(default_factory=MessageTable)
    queues: dict[int, QueueState] = field(default_factory=dict)
    sized: set[int] = field(default_factory=set)
    """queues (numbers) that have ``sizes``"""
    cursors: dict[int, Cursor] = field(default_factory=dict)
    abandoned: set[int] = field(default_factory=set)
    """subscribers disabled for so long that all that waits for them dies"""
    failed_too_long: set[int] = field(default_factory=set)
    """subscribers all of whose attempts have failed for as long as their ``disable_after`` says"""
    timers: TimerWheel = field(default_factory=TimerWheel)
    rotation: QueueRotation = field(default_factory=QueueRotation)
    """cursors that may have something to hand out, each once"""
    held_back: deque[Cursor] = field(default_factory=deque)
    """cursors that may have something, and hold their share of what all share (``shares``), each once"""
    pending_ends: deque[ForcedEnd] = field(default_factory=deque)
    still_out: dict[int, list[ForcedEnd]] = field(default_factory=dict)
    """of a message that is to die an attempt is out: until that is back; bounded by the windows"""
    given_up: dict[int, set[int]] = field(default_factory=dict)
    """by subscriber: messages with an attempt out that should not begin any more, if it has not; bounded as above"""
    asked: dict[int, ForcedEnd] = field(default_factory=dict)
    """messages whose ending row has been asked for and is not durable yet"""
    replays: ReplayEntries = field(init=False)
    edges: Edges = field(default_factory=Edges)
    prerequisites: deque[int] = field(default_factory=deque)
    """messages with dependents in a replay or at a subscriber, that have ended outside a replay or whose gates have
    opened: those are yet to be told"""
    replay_number: int = 0
    ended_again: dict[int, set[int]] = field(default_factory=dict)
    """messages that have ended in the newest replay -> at whom they failed there; those that went well only where they
    had ended badly before and still count as that. At most a replay's messages; for what it has yet to write"""
    progress: dict[int, ReplayProgress] = field(default_factory=dict)
    """by number of the replay, of jobs that are not over; ``limits.jobs_unfinished_max`` bounds those"""
    has_progressed: bool = False
    """a replay of ``progress`` has come further since somebody asked"""
    keys: KeyChains = field(init=False)
    watched: set[int] = field(default_factory=set)
    watched_ended: list[int] = field(default_factory=list)
    unconfirmed: int = 0
    """outcomes whose rows are not durable yet, over all cursors"""
    time_us: int = 0
    """of the newest fact applied"""
    now_us: int = 0
    """what the wall clock said last, 0 where nobody has told"""

    @property
    def moment_us(self) -> int:
        """When the newest fact took effect: at its own time, but never after the wall clock's (RULES 25)."""
        return min(self.time_us, self.now_us) if self.now_us else self.time_us

    def __post_init__(self) -> None:
        self.keys = KeyChains(self.table)
        self.replays = ReplayEntries(self.cursors)

    @property
    def others(self) -> bool:
        """True if ``concerns_others`` may be true of some message: asked once for many rows."""
        return bool(
            self.keys.numbered
            or self.watched
            or self.asked
            or self.replays
            or self.edges.in_replay
            or self.edges.subscribers
        )

    def queue_of(self, message: int) -> int:
        """The queue (number) of a message that has not ended, or is being delivered again."""
        entry = self.replays.get(message)
        return entry.queue if entry is not None else self.table.queue(message)

    def concerns_others(self, message: int) -> bool:
        """True if anything besides the message table depends on this message's end: a watcher, somebody who asked
        about it, its successor of the same key, a replay, or others at a subscriber."""
        return (
            message in self.keys.numbered
            or message in self.watched
            or message in self.asked
            or message in self.replays
            or message in self.edges.in_replay
            or message in self.edges.subscribers
        )

    def give_up(self, cursor: Cursor, messages: Iterable[int]) -> None:
        """Attempts of these are out there that it would be wrong to begin now."""
        self.given_up.setdefault(cursor.number, set()).update(messages)

    def let_go(self, cursor: Cursor) -> None:
        """Wait for nothing any more of what is out there: the subscriber is deleted, or its endpoint elsewhere."""
        if cursor.in_flight:
            self.give_up(cursor, cursor.in_flight)
            self.no_longer_out(cursor.in_flight)

    def no_longer_out(self, messages: Iterable[int]) -> None:
        """An attempt of each of these is back, or is waited for no more: what was to die by it may die now."""
        if self.still_out:
            for message in messages:
                self.pending_ends.extend(self.still_out.pop(message, ()))

    def ended(self, cursor: Cursor, message: int) -> None:
        """A delivery has ended, and its row is under way."""
        cursor.ended(message)
        self.unconfirmed += 1

    def confirm(self, cursor: Cursor, message: int) -> bool:
        """A delivery has ended, durably; whether its row was waited for."""
        was_waited_for = cursor.confirm(message)
        self.unconfirmed -= was_waited_for
        return was_waited_for

    def wake_at(self, due_us: int, kind: int, message: int) -> None:
        """Into the wheel; and out of it, now and then, goes what has been settled without it."""
        self.timers.add(due_us, kind, message)
        self.timers.sweep_some(self.still_waits)

    def still_waits(self, kind: int, value: int) -> bool:
        """Whether an entry of the wheel may still mean something: a message that has ended does not expire."""
        if kind not in (EXPIRES, HOLD_OVER) or value in self.replays:
            return True
        return 0 < self.table.state(value) < MessageState.COMPLETE

    def try_again(self, cursor: Cursor, sequence: int, tried: TriedState) -> None:
        """An attempt has failed: the delivery is due again at its time."""
        cursor.trying_again(sequence, tried)
        self.timers.add(tried.due_us, cursor.subscriber.number, sequence)

    def one_more(self, cursors: Iterable[Cursor]) -> None:
        """A message came for each of these, so none is idle: ``activate`` without that look."""
        for cursor in cursors:
            if not cursor.queued and not cursor.stopped and len(cursor.in_flight) < cursor.window:
                cursor.queued = True
                self.rotation.append(cursor)

    def hold_back(self, cursor: Cursor) -> None:
        """Let a cursor that has taken its share stand aside until some of it is back."""
        if not cursor.held_back and not cursor.idle:
            cursor.held_back = True
            self.held_back.append(cursor)

    def let_back_in(self, room: Callable[[Cursor], int], most: int) -> None:
        """Let those that were held back and have room again stand in line; so many are looked at."""
        for _ in range(min(len(self.held_back), most)):
            cursor = self.held_back.popleft()
            if room(cursor) > 0:
                cursor.held_back = False
                self.activate(cursor)
            else:
                self.held_back.append(cursor)

    def activate(self, cursor: Cursor) -> None:
        """Let the cursor stand in line, once, if it may have work."""
        if not cursor.queued and not cursor.stopped and len(cursor.in_flight) < cursor.window and not cursor.idle:
            cursor.queued = True
            self.rotation.append(cursor)
