"""Random facts of every kind, quickly: hundreds of them for one log, from a seed."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from syncbrok.log.format.records import SegmentOpened, SegmentSealed
from syncbrok.model.facts import (
    ALL_SUBSCRIBERS,
    Carried,
    Fact,
    FileApplied,
    Outcome,
    Outcomes,
    QueueDeleted,
    QueueSet,
    Rearmed,
    RearmedEntry,
    Reason,
    Row,
    StoredMessage,
    SubscriberDeleted,
    SubscriberSet,
    Tried,
)
from syncbrok.model.message import ParentFailure, QueueSettings, Scope, SubscriberSettings
from syncbrok.model.names import MessageId, QueueName, SubscriberId, make_message_id

KEY = bytes(range(16))
START_US = 1_700_000_000_000_000
_QUEUES, _SUBSCRIBERS = 6, 9
_TEXTS = ("", "", "a", "customer-17", "ünïcode ✓", "x" * 300, "\udcff broken", 'quote " and \\', "tab\tnul\0")
_TYPES = ("", "text/plain", "application/json; charset=utf-8")


class RandomFacts:
    """``fact(sequence, time)`` is one of any kind that may stand inside a segment."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def fact(self, sequence: int, time_us: int) -> Fact:
        makers: list[Callable[[int, int], Fact]] = [
            self.message,
            self.outcomes,
            self.carried,
            self.queue,
            self.subscriber,
            lambda one, now: QueueDeleted(one, now, self.chance.randrange(_QUEUES)),
            lambda one, now: SubscriberDeleted(one, now, self.chance.randrange(_SUBSCRIBERS)),
            lambda one, now: FileApplied(one, now, "queue/one", "hash"),
            self.rearmed,
        ]
        (make,) = self.chance.choices(makers, (30, 15, 6, 1, 1, 1, 1, 1, 2))
        return make(sequence, time_us)

    def opened(self, sequence: int, time_us: int) -> SegmentOpened:
        """A snapshot that knows some of the queues and subscribers."""
        known = [self.queue(sequence, time_us) for _ in range(3)]
        members = [self.subscriber(sequence, time_us) for _ in range(4)]
        bad = ((self.chance.randrange(99), Outcome.DEAD),)
        return SegmentOpened(
            sequence,
            time_us,
            tuple(known),
            tuple(members),
            (),
            bad,
            self.chance.choice((0, time_us - 9)),
            2,
            self.chance.choice(((), ((bad[0][0], 3), (7, 3)))),
        )

    def message(self, sequence: int, time_us: int) -> StoredMessage:
        pick = self.chance.choice
        bare = self.chance.random() < 0.5
        return StoredMessage(
            sequence,
            time_us,
            make_message_id(time_us // 1_000, sequence, KEY),
            self.chance.randrange(_QUEUES),
            self.chance.randrange(1 << 42),
            self.chance.randrange(1 << 31),
            pick(tuple(Scope)),
            pick(tuple(ParentFailure)),
            tuple(self._id() for _ in range(pick((0, 0, 1, 2, 7)))),
            "" if bare else pick(_TEXTS),
            "" if bare else pick(_TEXTS),
            b"" if bare else pick((b"", bytes(range(16)))),
            0 if bare else pick((0, time_us + 5)),
            0 if bare else pick((0, time_us + 9)),
            pick(_TYPES),
            () if bare else tuple((pick("abc"), pick(_TEXTS)) for _ in range(pick((0, 1, 3)))),
            self.chance.randbytes(pick((0, 1, 30, 3_000))),
            0 if bare else pick((0, 0, 3)),
            erase_after_us=0 if bare else pick((0, 0, 86_400_000_000)),
        )

    def _id(self) -> MessageId:
        return make_message_id(1_000, self.chance.randrange(1 << 42), KEY)

    def carried(self, sequence: int, time_us: int) -> Carried:
        own = self.message(self.chance.randrange(1, 1 << 20), time_us - 5_000)
        ended = tuple((one, Outcome.DELIVERED) for one in range(self.chance.randrange(3)))
        tried = tuple(Tried(one, 2, time_us) for one in range(self.chance.randrange(3)))
        return Carried(sequence, time_us, own, ended, tried)

    def outcomes(self, sequence: int, time_us: int) -> Outcomes:
        pick = self.chance.choice
        rows = [
            Row(
                self.chance.randrange(1 << 42),
                pick((ALL_SUBSCRIBERS, *range(_SUBSCRIBERS))),
                self.chance.randrange(1 << 16),
                pick(tuple(Outcome)),
                pick(tuple(Reason)),
                pick((0, 200, 503)),
                time_us - 7,
                pick((0, time_us + 3)),
                self.chance.randrange(1 << 42),
                self.chance.randrange(1 << 32),
                self.chance.randbytes(pick((0, 0, 0, 12))),
            )
            for _ in range(pick((0, 1, 2, 60)))
        ]
        return Outcomes(sequence, time_us, tuple(rows))

    def rearmed(self, sequence: int, time_us: int) -> Rearmed:
        entry = RearmedEntry(1, 2, (3, 4), (5,), (6,), ParentFailure.HOLD)
        return Rearmed(sequence, time_us, 7, (entry, entry))

    def queue(self, sequence: int, time_us: int) -> QueueSet:
        number = self.chance.randrange(_QUEUES)
        return QueueSet(sequence, time_us, number, QueueName(f"queue-{number}"), QueueSettings())

    def subscriber(self, sequence: int, time_us: int) -> SubscriberSet:
        number = self.chance.randrange(_SUBSCRIBERS)
        settings = SubscriberSettings("http://127.0.0.1:1/", headers=(("x-a", "1"),))
        return SubscriberSet(
            sequence, time_us, number, number % _QUEUES, SubscriberId(f"subscriber-{number}"), 1, settings
        )


def random_story(chance: random.Random, segments: int = 3, records: int = 600) -> Any:
    """The facts of some segments; the last one is not sealed. Each fact is a millisecond after the one before."""
    some = RandomFacts(chance)
    facts: list[Fact] = []
    for number in range(segments):
        for place in range(chance.randrange(records // 2, records)):
            sequence, time_us = len(facts) + 1, START_US + 1_000 * len(facts)
            facts.append(some.fact(sequence, time_us) if place else some.opened(sequence, time_us))
        if number < segments - 1:
            facts.append(SegmentSealed(len(facts) + 1, START_US + 1_000 * len(facts), 0, 0))
    return SimpleNamespace(facts=facts)
