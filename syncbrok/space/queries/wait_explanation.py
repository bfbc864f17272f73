"""Explains in words why a message is not on its way.

It names only the obstacle: the first message waited for and, if that waits itself, the one at the root of the waiting.
The scheduler answers from memory; ids and queues of the named messages are read once for many explanations.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from syncbrok.delivery.scheduler.blockers import BlockedBy
from syncbrok.delivery.scheduler.breakers import BreakerReport
from syncbrok.model.facts import StoredMessage
from syncbrok.model.message import Scope
from syncbrok.model.names import id_text, sequence_of
from syncbrok.model.units import many
from syncbrok.space.pause import Pause
from syncbrok.space.queries.reading import MessageHead, Reading
from syncbrok.space.queries.sources import Sources

ENDED = frozenset({"complete", "dead", "expired", "dropped"})
ENDED_BADLY = ENDED - {"complete"}
ENDED_DELIVERIES = frozenset({"delivered", "skipped", "dead", "expired", "dropped"})

_steps_max = 1_000
"""how far up a line of waiting messages the root is looked for"""
_subscribers_max = 64
"""looked at for each message: whom another scope would help"""
_WAITED_FOR = {
    BlockedBy.GATE: "its gate to open",
    BlockedBy.PARENT: "a parent there",
    BlockedBy.KEY: "an earlier message of its key there",
    BlockedBy.PAST: "what came before the subscriber's time, which may have its key",
}


class Obstacle(NamedTuple):
    """The messages that another one waits for, none where it waits for none. ``root``: the one at the root of the
    waiting of the first, which is that one again if it is not blocked itself; 0 for none."""

    blockers: tuple[int, ...] = ()
    root: int = 0

    @property
    def first(self) -> int:
        """The one to name; 0 for none."""
        return self.blockers[0] if self.blockers else 0

    @property
    def others(self) -> int:
        """How many more there are."""
        return max(0, len(self.blockers) - 1)


class WaitExplanation:
    """Explains waiting messages. ``explain`` takes many, so that a page of them costs one look at the disk."""

    def __init__(self, sources: Sources, reading: Reading) -> None:
        self._registry = sources.registry
        self._schedule = sources.schedule
        self._clock_us = sources.clock_us
        self._reading = reading

    async def explain(self, messages: Sequence[StoredMessage], pause: Pause) -> dict[int, str]:
        """The words by sequence; ``""`` for what has ended or is on its way."""
        obstacles: dict[int, Obstacle] = {}
        for message in messages:
            obstacles[message.sequence] = self._obstacle(message)
            await pause()
        named = {at for obstacle in obstacles.values() for at in (obstacle.first, obstacle.root) if at}
        heads = await self._reading.heads(named)
        words: dict[int, str] = {}
        for message in messages:
            words[message.sequence] = self._words(message, obstacles[message.sequence], heads)
            await pause()
        return words

    def blockers(self, message: StoredMessage) -> tuple[int, ...]:
        """The messages it waits for: parents, and the predecessor of its key, that have not ended; for a held message
        the parents that ended badly."""
        if self._schedule.message_state(message.sequence) == "held":
            return self._schedule.held_by(message.sequence)
        return self._open(message.sequence)

    def _open(self, sequence: int) -> tuple[int, ...]:
        blockers = self._schedule.blocked_by(sequence)
        return tuple(blocker for blocker in blockers if not self._schedule.ended(blocker))

    # -- looking ------------------------------------------------------------------------------------------------------

    def _obstacle(self, message: StoredMessage) -> Obstacle:
        if self._schedule.message_state(message.sequence) in ENDED:
            return Obstacle()
        blockers = self.blockers(message)
        if not blockers:
            return Obstacle()
        return Obstacle(blockers, self._root(blockers[0]))

    def _root(self, sequence: int) -> int:
        """Up the first of each one's blockers to one that nothing blocks."""
        for _ in range(_steps_max):
            blockers = self._open(sequence)
            if not blockers:
                break
            sequence = blockers[0]
        return sequence

    # -- saying -------------------------------------------------------------------------------------------------------

    def _words(self, message: StoredMessage, obstacle: Obstacle, heads: dict[int, MessageHead]) -> str:
        state = self._schedule.message_state(message.sequence)
        if state in ENDED:
            return ""
        parts = []
        if message.due_us > self._clock_us():
            parts.append(f"is not due before {self._when(message.due_us)}")
        if obstacle.first:
            parts.append(self._waiting(message, obstacle, heads))
        elif state == "pending":
            parts.append(self._on_its_way(message.sequence))
        return "; ".join(part for part in parts if part)

    def _waiting(self, message: StoredMessage, obstacle: Obstacle, heads: dict[int, MessageHead]) -> str:
        parents = set(map(sequence_of, message.parents))
        what = "parent" if obstacle.first in parents else f"the message before it of key {message.key!r},"
        held = self._schedule.message_state(message.sequence) == "held"
        text = f"{'is held for' if held else 'waits for'} {what} {_name(obstacle.first, heads)}"
        text += f" in queue {self._queue(obstacle.first, heads)}"
        if obstacle.root == obstacle.first:
            text += f", {self._stands(obstacle.first, heads, held=held)}"
        else:
            text += (
                f", which waits itself; at the root of it is {_name(obstacle.root, heads)}"
                f" in queue {self._queue(obstacle.root, heads)}, {self._stands(obstacle.root, heads)}"
            )
        if obstacle.others:
            text += f" (and for {obstacle.others} more)"
        helps = not held and message.scope is Scope.ALL and parents.issuperset(obstacle.blockers)
        return text + self._under_same(message, obstacle.blockers) if helps else text

    def _under_same(self, message: StoredMessage, parents: Sequence[int]) -> str:
        """A clause about who would have the message without waiting if its scope were ``same`` (RULES 11): subscribers
        of its queue that have had each of these parents, for which it waits. Empty where there is none."""
        schedule = self._schedule
        if any(schedule.queue_of(one) != message.queue for one in parents if not schedule.ended(one)):
            return ""
        names = [
            self._registry.subscriber_id(one)
            for one in schedule.pending_deliveries(message.sequence)[:_subscribers_max]
            if all(self._has_had(parent, one) for parent in parents)
        ]
        if not names:
            return ""
        others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        return f"; with the scope same it would already be on its way to subscriber {names[0]}{others}"

    def _has_had(self, sequence: int, subscriber: int) -> bool:
        counted = self._schedule.is_counted(sequence, subscriber)
        return counted and self._schedule.delivery_state(sequence, subscriber) in ("delivered", "skipped")

    def _stands(self, sequence: int, heads: dict[int, MessageHead], *, held: bool = False) -> str:
        """A clause beginning with "which" about a message that is waited for and is not blocked itself. ``held``: a
        message is on hold for it. Then even a complete one is an obstacle, if it was sent again and failed."""
        state = self._schedule.message_state(sequence)
        if state == "scheduled":
            return "which is not due yet"
        if state == "held":
            return "which is held for a parent that ended badly: replay that one, or cancel this"
        if state in ENDED_BADLY:
            return f"which ended {state}{self._mend(sequence, heads)}"
        if state == "complete":
            again = f"which failed when it was sent again{self._mend(sequence, heads)}"
            return again if held else "which has just been completed"
        slow = [text for text in self._deliveries(sequence) if text]
        return "which " + (slow[0] if slow else "is on its way")

    def _mend(self, sequence: int, heads: dict[int, MessageHead]) -> str:
        """Advice about a message that ended badly, for others that are held because of it."""
        head = heads.get(sequence)
        if head is None or self._registry.is_there(head.queue):
            return ": replay it to go on"
        return " and cannot be replayed, for its queue has been deleted: cancel this message, or wait for its deadline"

    def _on_its_way(self, sequence: int) -> str:
        """About a message that nothing blocks: the subscribers that have not taken it, at most three by name."""
        slow = [text for text in self._deliveries(sequence) if text]
        more = f" (and {len(slow) - 3} more)" if len(slow) > 3 else ""
        return "; ".join(slow[:3]) + more

    def _deliveries(self, sequence: int) -> list[str]:
        """One clause for each delivery that is neither ended nor out, the most telling first."""
        clauses = [self._delivery(sequence, subscriber) for subscriber in self._schedule.pending_deliveries(sequence)]
        return [text for _, text in sorted(clause for clause in clauses if clause is not None)]

    def _delivery(self, sequence: int, subscriber: int) -> tuple[int, str] | None:
        state = self._schedule.delivery_state(sequence, subscriber)
        if state in ENDED_DELIVERIES:
            return None
        name = self._registry.subscriber_id(subscriber)
        if state == "paused":
            declared = self._registry.subscriber_numbered(subscriber)
            return 0, f"subscriber {name} does not take: it {'is paused' if declared is None else declared.why_stopped}"
        if state == "blocked":
            blocker = self._schedule.blocked_at(sequence, subscriber)
            waited_for = _WAITED_FOR[BlockedBy.PARENT if blocker is None else blocker.why]
            return 3, f"subscriber {name} has not been tried: it waits for {waited_for}"
        attempts, due_us = self._schedule.delivery_tried(sequence, subscriber)
        times = "once" if attempts == 1 else f"{attempts} times"
        tried = f"has failed {times}" if attempts else "has not been tried"
        consumers = self._schedule.consumers(subscriber)
        if consumers is not None:
            rank, text = self._at_consumers(state, due_us, *consumers)
            before = f"has given back {times}{'; ' if state == 'retrying' else ' and '}" if attempts else ""
            return rank, f"subscriber {name} {before}{text}"
        breaker = self._schedule.breaker(subscriber)
        if state == "pending" and breaker is not None and breaker.state != "closed":
            return 1, f"subscriber {name} {tried}: {self._breaker(breaker)}"
        rated_us = self._schedule.rate_next_us(subscriber, self._clock_us()) if state == "pending" else 0
        if rated_us:
            return 3, f"subscriber {name} {tried}: its rate is used up, it goes on {self._when(rated_us)}"
        if state == "retrying":
            return 1, f"subscriber {name} has failed {times}; next attempt {self._when(due_us)}"
        if state == "in_flight":
            return (2, f"subscriber {name} has failed {times} and is being tried now") if attempts else None
        if attempts:
            return 3, f"subscriber {name} has failed {times}; its next attempt is due and waits for its turn there"
        return 3, f"subscriber {name} has not been tried: it waits for its turn there"

    def _breaker(self, breaker: BreakerReport) -> str:
        """About a delivery that goes when its breaker lets it."""
        whose = f"the breaker of {breaker.origin}" if breaker.origin else "its breaker"
        failed = many(breaker.failing, "attempt has", "attempts have")
        failing = "cannot be reached" if breaker.origin else f"{failed} failed"
        if breaker.state == "probing":
            return f"{whose} is probing, and lets few be tried at once"
        return f"{whose} is open ({failing}); next probe {self._when(breaker.probe_us)}"

    def _at_consumers(self, state: str, due_us: int, lent: int, room: int) -> tuple[int, str]:
        """About a delivery that waits for somebody to come for it, or to acknowledge what was ``lent``."""
        if state == "retrying":
            return 1, f"it may be taken again from {self._when(due_us)}"
        if state == "in_flight":
            return 2, "has not acknowledged yet: a consumer has it"
        if room == 0:
            return 1, "does not take: none of its consumers is there"
        if room <= lent:
            return 3, f"does not take yet: its consumers ask for no more than the {lent} they have"
        return 3, "has not taken yet: it waits for its turn there"

    def _queue(self, sequence: int, heads: dict[int, MessageHead]) -> str:
        head = heads.get(sequence)
        return "(gone)" if head is None else self._registry.queue_name(head.queue)

    def _when(self, time_us: int) -> str:
        """A time of today by the clock alone, another one with its date; UTC."""
        when = datetime.fromtimestamp(time_us // 1_000_000, UTC)
        now = datetime.fromtimestamp(self._clock_us() // 1_000_000, UTC)
        return f"{when:%H:%M:%SZ}" if when.date() == now.date() else f"{when:%Y-%m-%dT%H:%M:%SZ}"


def _name(sequence: int, heads: dict[int, MessageHead]) -> str:
    head = heads.get(sequence)
    return f"at sequence {sequence}" if head is None else id_text(head.id)
