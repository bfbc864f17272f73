"""From units of messages to facts, or to a refusal (RULES 1 to 7). Reads no disk and no clock.

There is one way, and it ends early: bare messages are columns and stay columns, however many units they came in; so do
a unit's messages with an idempotency key each, where memory knows that all are new. Only what remains is decided
message by message.

What memory does not hold is named (``Wanted``), looked up elsewhere, and the unit is tried again with what was
``LookupResult``. Old idempotency keys and parents older than the recent ones are the only reasons.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, NamedTuple

from syncbrok.delivery.scheduler.queries import NOTHING, Standing
from syncbrok.model import limits
from syncbrok.model.errors import Conflict, Forbidden, Malformed, SyncbrokError, TooLarge
from syncbrok.model.event_types import EVENTS_QUEUE
from syncbrok.model.facts import Attributes, Extras, Keyed, StoredMessage
from syncbrok.model.message import Message, ParentFailure, Queue
from syncbrok.model.names import MessageId, QueueName, issued_by, key_digest, sequence_of, time_ms_of
from syncbrok.space.channels import Accepted, Publish
from syncbrok.space.commit.backlog_bounds import BacklogBounds
from syncbrok.space.commit.commit_batch import CommitBatch, First
from syncbrok.space.commit.refusals import differs, first_is_lost, unknown_parent
from syncbrok.space.state.idempotency import KeyIndex, alike_fingerprints, fingerprint, key_hash, key_hashes
from syncbrok.space.state.lineage import GraphPlace, Lineage
from syncbrok.space.state.registry import Registry

Slowly = Generator[None, None, Any]
"""work in steps: its driver can do other work between two of them. Its return value is the result"""


class OldKey(NamedTuple):
    """An idempotency key to be looked for in the log's own index."""

    queue: int
    key: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """The records to read before a unit can be decided."""

    messages: frozenset[int]
    keys: frozenset[OldKey]
    since_us: int
    """how far back the keys matter"""


@dataclass(slots=True)
class LookupResult:
    """The records that were read. A sequence that was asked for and is in none of ``messages``, ``lost`` and
    ``dropped`` is no message."""

    messages: dict[int, StoredMessage] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    """retention has dropped them"""
    looked: set[int] = field(default_factory=set)
    older: dict[OldKey, int] = field(default_factory=dict)
    """the newest message with the key, 0 for none"""
    lost: dict[int, StoredMessage | None] = field(default_factory=dict)
    """messages whose records are damaged, each as far as the log still tells"""


class SomeRefused(Exception):
    """Not an error of the whole: of units that came together, those at these places (ascending) cannot be accepted,
    each for the reason beside it. Nothing was changed."""

    def __init__(self, why: Mapping[int, SyncbrokError]) -> None:
        super().__init__()
        self.why = why


_nothing: Final = LookupResult()
_AT_ONCE: Final = 64
"""messages that are decided without a look at the time: some milliseconds at most, whatever parents they have"""
_new: Final[Callable[..., Any]] = tuple.__new__
"""makes a named tuple from its fields in order, in a third of the time"""


class _Fresh:
    """New messages on their way into the batch, as columns of ``Messages``. ``only``: number of the one subscriber they
    are for."""

    __slots__ = ("_attributes", "_batch", "_bounds", "_content_type", "_only", "_queue", "_starts", "contents",
                 "extras")  # fmt: skip

    def __init__(self, queue: Queue, content_type: str, batch: CommitBatch, only: int, bounds: BacklogBounds) -> None:
        self._bounds = bounds
        self._queue = queue
        self._content_type = content_type
        self._batch = batch
        self._only = only
        self._starts: list[int] = []
        self._attributes: list[Attributes] = []
        self.contents: list[bytes] = []
        self.extras: dict[int, Extras] = {}

    def add_bare(self, content: bytes) -> None:
        """A message with nothing more than what its unit says of all."""
        if self._only:
            at = len(self.contents)
            self.extras[at] = Extras(self._batch.sequence + at, only=self._only)
        self._append(content, self._content_type, self._queue.settings.parent_failure)

    def add(
        self,
        message: Message,
        parents: tuple[MessageId, ...] = (),
        below: GraphPlace | None = None,
        print_: bytes = b"",
    ) -> None:
        """Add a message to the batch. ``below``: its place in the graph, if it has parents. The queue's settings for it
        are frozen now (RULES 3)."""
        content, content_type, _, key, idempotency_key, failure, due_us, delay_us, expires_us, headers, after_us = (
            message
        )
        batch, only = self._batch, self._only
        if delay_us:  # counted from acceptance (RULES 7), by the wall clock (RULES 25)
            due_us = max(due_us, batch.now_us + delay_us)
        if parents or key or idempotency_key or due_us or expires_us or headers or only or after_us:
            at = len(self.contents)
            root, depth = below or (batch.sequence + at, 0)
            fields = (root, depth, parents, key, idempotency_key, print_, due_us, expires_us, headers, only, after_us)
            self.extras[at] = _new(Extras, fields)
        self._append(content, content_type, self._queue.settings.parent_failure if failure is None else failure)

    def _append(self, content: bytes, content_type: str, failure: ParentFailure) -> None:
        last = self._attributes[-1] if self._attributes else None
        if last is None or last.content_type != content_type or last.parent_failure is not failure:
            self._starts.append(len(self.contents))
            self._attributes.append(Attributes(self._queue.number, self._queue.settings.scope, failure, content_type))
        self.contents.append(content)

    def put(self) -> None:
        """Into the batch, as one unit. Raises as ``BacklogBounds.admit``, with nothing changed."""
        if not self._only and self._queue.settings.max_backlog is not None:
            self._bounds.admit(self._queue, self.contents, self.extras, self._batch.added)
        ends = (*self._starts[1:], len(self.contents))
        self._batch.publish(zip(ends, self._attributes, strict=True), self.contents, self.extras)


class _Work:
    """One unit while it is being decided: what came of each message so far, and what must be read."""

    __slots__ = ("below", "fresh", "ids", "keys", "known", "known_lines", "new_ids", "parents", "unit", "wanted_keys",
                 "wanted_messages")  # fmt: skip

    def __init__(self, unit: Publish, new_ids: list[MessageId], fresh: _Fresh) -> None:
        self.unit = unit
        self.new_ids = new_ids
        """of new lines, in their order"""
        self.fresh = fresh
        self.ids: list[MessageId] = []
        self.known_lines: dict[int, int] = {}
        self.parents: dict[int, tuple[MessageId, ...]] = {}
        self.known: dict[MessageId, GraphPlace] = {}
        """places of parents, which lines often have in common"""
        self.below: tuple[tuple[MessageId, ...], GraphPlace] = ((), GraphPlace(0, 0))
        """the last line's parents, which the next one often has as well, and the place below them"""
        self.keys: dict[str, First] = {}
        self.wanted_messages: set[int] = set()
        self.wanted_keys: set[OldKey] = set()


class Acceptor:
    """``cached`` gives a recent message without a read. ``closing`` holds queues that are being deleted by force.
    ``erased``: whether there may be messages in the log that have a digest in the place of their key (RULES 32).
    ``standing``: what has not ended of a queue (number)."""

    def __init__(
        self,
        registry: Registry,
        lineage: Lineage,
        keys: KeyIndex,
        id_key: bytes,
        cached: Callable[[int], StoredMessage | None],
        closing: AbstractSet[int],
        sync: str,
        erased: Callable[[], bool] = lambda: False,
        standing: Callable[[int], Standing] = lambda _: NOTHING,
    ) -> None:
        self._bounds = BacklogBounds(standing)
        self._erased = erased
        self._registry = registry
        self._lineage = lineage
        self._keys = keys
        self._id_key = id_key
        self._cached = cached
        self._closing = closing
        self._sync = sync

    def accept(
        self, units: Sequence[Publish], batch: CommitBatch, found: LookupResult | None = None
    ) -> Accepted | Wanted | Slowly:
        """Put the new messages of one unit into the batch, or bare messages that are units of their own. A large unit
        is decided in steps; nothing else may be put into the batch meanwhile. Raises ``UnknownQueue``,
        ``UnknownSubscriber``, ``UnknownParent``, ``IdempotencyConflict``, ``Malformed``, ``TooLarge``, ``Conflict`` or
        ``BacklogFull``;
        for several units ``SomeRefused`` instead. Then nothing was changed."""
        unit = units[0]
        if unit.extras or unit.keys or unit.only:
            return self._accept_with_extras(unit, batch, found)
        stretches, contents = self._one(unit, batch) if len(units) == 1 else self._several(units, batch)
        first = batch.sequence
        batch.publish(stretches, contents, one_unit=len(units) == 1)
        return Accepted(first, batch.ids.joined(first, len(contents)), self._sync)

    def _one(self, unit: Publish, batch: CommitBatch) -> tuple[list[tuple[int, Attributes]], Sequence[bytes]]:
        """Stretches and contents of a unit in which all messages are bare."""
        queue, contents = self._queue(unit.queue), unit.contents
        if not contents:
            raise Malformed("a batch without a message")
        if queue.settings.max_backlog is not None:
            self._bounds.admit(queue, contents, {}, batch.added)
        return [(len(contents), _attributes(queue, unit.content_type))], contents

    def _several(
        self, units: Sequence[Publish], batch: CommitBatch
    ) -> tuple[list[tuple[int, Attributes]], Sequence[bytes]]:
        """As ``_one``, of several units."""
        stretches: list[tuple[int, Attributes]] = []
        together: list[bytes] = []
        refused: dict[int, SyncbrokError] = {}
        added = dict(batch.added)
        is_bounded = False
        last_name = last_type = attributes = None
        for place, (name, content_type, contents, _, _, _, _) in enumerate(units):
            if name != last_name or content_type != last_type:
                try:
                    queue = self._queue(name)
                except SyncbrokError as why:
                    refused[place] = why
                    continue
                if attributes is not None:
                    stretches.append((len(together), attributes))
                attributes, last_name, last_type = _attributes(queue, content_type), name, content_type
                is_bounded = queue.settings.max_backlog is not None
            if is_bounded:
                try:
                    self._bounds.admit(queue, contents, {}, added)
                except SyncbrokError as why:
                    refused[place] = why
            together += contents
        if refused:
            raise SomeRefused(refused)
        assert attributes is not None
        batch.added = added
        stretches.append((len(together), attributes))
        return stretches, together

    def _queue(self, name: QueueName, *, is_test: bool = False) -> Queue:
        queue = self._registry.queue(name)
        if name == EVENTS_QUEUE and not is_test:
            raise Forbidden(f"{EVENTS_QUEUE} has the broker's own events, and only the broker publishes there")
        if queue.number in self._closing:
            raise Conflict(f"queue {name!r} is being deleted", queue=name)
        return queue

    def _accept_with_extras(
        self, unit: Publish, batch: CommitBatch, found: LookupResult | None
    ) -> Accepted | Wanted | Slowly:
        only = self._registry.subscriber(unit.queue, unit.only).number if unit.only else 0
        queue = self._queue(unit.queue, is_test=only > 0)
        if not unit.contents:
            raise Malformed("a batch without a message")
        if unit.keys and found is None and not only:
            accepted = self._accept_new_keys(unit, queue, batch)
            if accepted is not None:
                return accepted
        fresh = _Fresh(queue, unit.content_type, batch, only, self._bounds)
        if len(unit.contents) > _AT_ONCE:
            return self._decide_all(unit, queue, fresh, batch, found or _nothing)
        if not unit.keys and _stand_alone(unit.extras):
            first, count = batch.sequence, len(unit.contents)
            for position, content in enumerate(unit.contents):
                message = unit.extras.get(position)
                fresh.add_bare(content) if message is None else fresh.add(message)
            fresh.put()
            return Accepted(first, batch.ids.joined(first, count), self._sync)
        steps = self._decide_all(unit, queue, fresh, batch, found or _nothing)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: Accepted | Wanted = end.value
                return result

    def _accept_new_keys(self, unit: Publish, queue: Queue, batch: CommitBatch) -> Accepted | None:
        """All of them, where each key is new and memory knows that it is. None, with nothing changed, where they must
        be decided one by one."""
        first, contents, keys = batch.sequence, unit.contents, unit.keys
        hashes = key_hashes(queue.number, keys)
        if not self._all_new(queue, keys, hashes, batch):
            return None
        self._bounds.admit(queue, contents, {}, batch.added)
        prints = alike_fingerprints(unit.content_type, contents)
        stretches = ((len(contents), _attributes(queue, unit.content_type)),)
        batch.publish(stretches, contents, keyed=Keyed(keys, prints, hashes))
        accepted = Accepted(first, batch.ids.joined(first, len(contents)), self._sync)
        made = map(_new, repeat(First), zip(prints, accepted.ids, accepted.sequences, strict=True))
        batch.keys.update(zip(zip(repeat(queue.number), keys), made, strict=True))
        return accepted

    def _all_new(self, queue: Queue, keys: Sequence[str], hashes: Sequence[int], batch: CommitBatch) -> bool:
        since_us = batch.now_us - int(queue.settings.idempotency_window_s * 1e6)
        return (
            since_us >= self._keys.complete_since_us
            and len(set(keys)) == len(keys)
            and (not batch.keys or batch.keys.keys().isdisjoint(zip(repeat(queue.number), keys)))
            and self._keys.none_of(hashes)
            and not (self._erased() and any(self._of_erased(queue.number, key) for key in keys))
        )

    def _of_erased(self, queue: int, key: str) -> int:
        """Sequence of the newest message that had this key and is known by its digest; 0 where there is none."""
        return self._keys.find(key_hash(queue, key_digest(key, self._id_key))) or 0

    def _decide_all(
        self, unit: Publish, queue: Queue, fresh: _Fresh, batch: CommitBatch, found: LookupResult
    ) -> Slowly:
        """One by one, a step for each message: ten thousand with 64 parents each take half a second."""
        first = batch.sequence
        work = _Work(unit, batch.ids.take(first, len(unit.contents)), fresh)
        extras, keys, content_type = unit.extras, unit.keys, unit.content_type
        for position, content in enumerate(unit.contents):
            message = extras.get(position)
            if message is None and keys:
                message = Message(content, content_type, idempotency_key=keys[position])
            if message is None:
                work.ids.append(work.new_ids[len(fresh.contents)])
                fresh.add_bare(content)
            else:
                self._decide(message, queue, work, batch, found)
            yield
        if work.wanted_messages or work.wanted_keys:
            since_us = batch.now_us - int(queue.settings.idempotency_window_s * 1e6)
            return Wanted(frozenset(work.wanted_messages), frozenset(work.wanted_keys), since_us)
        if fresh.contents:
            fresh.put()
            for key, owner in work.keys.items():
                batch.keys[queue.number, key] = owner
        return Accepted(first, b"".join(work.ids), self._sync, work.known_lines, work.parents)

    def _decide(
        self,
        message: Message,
        queue: Queue,
        work: _Work,
        batch: CommitBatch,
        found: LookupResult,
    ) -> None:
        """One line: a known message, a new one, or something to be read."""
        position = len(work.ids)
        parents: tuple[MessageId, ...] = ()
        if message.parents:
            parents = work.parents[position] = self._resolve(message, work, position)
        print_ = b""
        if message.idempotency_key:  # before the parents are looked at (RULES 4)
            first = self._first(message.idempotency_key, queue, work, batch, found, position)
            print_ = fingerprint(message, _comparable(message, work, position))
            if first is not None:
                if first.fingerprint != print_:
                    raise differs(message.idempotency_key, first, position)
                work.known_lines[position] = first.sequence
                work.ids.append(first.id)
                return
        new = len(work.fresh.contents)
        sequence, id_ = batch.sequence + new, work.new_ids[new]
        place = self._place_below(sequence, parents, work, batch, found, position)
        work.ids.append(id_)
        work.fresh.add(message, parents, place, print_)
        if message.idempotency_key:
            work.keys[message.idempotency_key] = First(print_, id_, sequence)

    def _resolve(self, message: Message, work: _Work, position: int) -> tuple[MessageId, ...]:
        """Ids of the parents, each once; ``#n`` names a line before this one (RULES 5)."""
        if len(message.parents) > limits.parents_max:
            raise TooLarge(
                f"{len(message.parents)} parents; at most {limits.parents_max} are allowed",
                line=position,
                limit=limits.parents_max,
            )
        resolved: dict[MessageId, None] = {}
        for parent in message.parents:
            if not isinstance(parent, int):
                resolved[parent] = None
            elif 0 <= parent < position:
                resolved[work.ids[parent]] = None
            else:
                raise Malformed(f"line {position} names line {parent} as its parent; a parent stands before its child",
                                line=position, parent=f"#{parent}")  # fmt: skip
        return tuple(resolved)

    def _first(
        self, key: str, queue: Queue, work: _Work, batch: CommitBatch, found: LookupResult, position: int
    ) -> First | None:
        """The earlier message with this idempotency key; None without one, or while it is not known. Records that must
        be read to know it are noted in ``work``. Raises ``FirstLost``."""
        first = work.keys.get(key) or batch.keys.get((queue.number, key))
        if first is not None:
            return first
        since_us = batch.now_us - int(queue.settings.idempotency_window_s * 1e6)
        sequence = self._keys.find(key_hash(queue.number, key))
        if self._erased():
            sequence = max(sequence or 0, self._of_erased(queue.number, key)) or None
        if sequence is None and since_us < self._keys.complete_since_us:
            old = OldKey(queue.number, key)
            sequence = found.older.get(old)
            if sequence is None:
                work.wanted_keys.add(old)
        if not sequence:
            return None
        message = self._message(sequence, work, found)
        if sequence in found.lost:
            lost = found.lost[sequence]
            if lost is None or (lost.queue == queue.number and _accepted_by_us(lost) >= since_us):
                raise first_is_lost(key, lost, position)
        if message is None or not self._has_key(message, key) or message.queue != queue.number:
            return None
        return First(message.fingerprint, message.id, sequence) if _accepted_by_us(message) >= since_us else None

    def _has_key(self, message: StoredMessage, key: str) -> bool:
        """Whether it is the message of this idempotency key, erased or not."""
        return message.idempotency_key == (key_digest(key, self._id_key) if message.erased else key)

    def _message(self, sequence: int, work: _Work, found: LookupResult) -> StoredMessage | None:
        message = found.messages.get(sequence)
        if message is None and sequence not in found.looked:
            message = self._cached(sequence)
            if message is None:
                work.wanted_messages.add(sequence)
        return message

    def _place_below(
        self,
        sequence: int,
        parents: tuple[MessageId, ...],
        work: _Work,
        batch: CommitBatch,
        found: LookupResult,
        position: int,
    ) -> GraphPlace:
        """Root and depth of a message with these parents. Raises ``UnknownParent``."""
        if not parents:
            return GraphPlace(sequence, 0)
        before, below = work.below
        if parents == before:
            return below
        root, depth = sequence, 0
        for index, parent in enumerate(parents):
            place = work.known.get(parent)
            if place is None:
                place = self._place(parent, work, batch, found, position)
                if not work.wanted_messages:
                    work.known[parent] = place
            if index == 0:
                root = place.root
            depth = max(depth, place.depth + 1)
        below = GraphPlace(root, depth)
        if not work.wanted_messages:
            work.below = (parents, below)
        return below

    def _place(
        self, parent: MessageId, work: _Work, batch: CommitBatch, found: LookupResult, position: int
    ) -> GraphPlace:
        sequence = sequence_of(parent)
        place = self._lineage.place(parent, sequence)
        if place is not None:
            return place
        if sequence >= batch.first:  # not durable yet: a line of this unit, or never issued
            own = sequence - batch.sequence
            if 0 <= own < len(work.fresh.contents) and work.new_ids[own] == parent:
                extras = work.fresh.extras.get(own)
                return GraphPlace(sequence, 0) if extras is None else GraphPlace(extras.root, extras.depth)
            raise unknown_parent(parent, position)
        message = self._message(sequence, work, found)
        if message is not None and message.id == parent:
            return GraphPlace(message.root, message.depth)
        if message is None and sequence in work.wanted_messages:
            return GraphPlace(sequence, 0)  # not decided yet
        lost = found.lost.get(sequence)
        if lost is not None and lost.id == parent:
            return GraphPlace(lost.root, lost.depth)
        if (sequence in found.dropped or sequence in found.lost) and issued_by(parent, self._id_key):
            return GraphPlace(
                sequence, 0
            )  # complete, or known to have ended badly (RULES 2); what was above it is gone
        raise unknown_parent(parent, position)


def _stand_alone(extras: Mapping[int, Message]) -> bool:
    """Whether none of these messages refers to another, and so there is nothing to look for."""
    for message in extras.values():  # noqa: SIM110 (a generator costs as much as all the rest)
        if message.parents or message.idempotency_key:
            return False
    return True


def _accepted_by_us(message: StoredMessage) -> int:
    """The time by which it had been accepted by the wall clock, Unix microseconds: its id has the millisecond. Its
    record's time may be ahead, after one that was written while the clock was (RULES 25)."""
    return 1_000 * (time_ms_of(message.id) + 1)


def _attributes(queue: Queue, content_type: str) -> Attributes:
    settings = queue.settings
    return Attributes(queue.number, settings.scope, settings.parent_failure, content_type)


def _comparable(message: Message, work: _Work, position: int) -> list[MessageId | int]:
    """Parents as the fingerprint sees them: see ``fingerprint``."""
    seen: list[MessageId | int] = []
    for parent in message.parents:
        if not isinstance(parent, int):
            seen.append(parent)
        elif (line := work.unit.extras.get(parent)) is not None and line.idempotency_key:
            seen.append(work.ids[parent])
        else:
            seen.append(position - parent)
    return seen


def merge(found: LookupResult | None, more: LookupResult) -> LookupResult:
    """The results of two look-ups for the same unit as one."""
    if found is None:
        return more
    return LookupResult(
        found.messages | more.messages,
        found.dropped | more.dropped,
        found.looked | more.looked,
        _joined(found.older, more.older),
        found.lost | more.lost,
    )


def _joined(old: Mapping[OldKey, int], new: Mapping[OldKey, int]) -> dict[OldKey, int]:
    return {**old, **new}
