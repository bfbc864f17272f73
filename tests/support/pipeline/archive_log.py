"""A log that a test writes record by record, segment by segment, over several days, as a broker would."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syncbrok.log.journal import FileJournal
from syncbrok.log.segments import retention
from syncbrok.log.segments.options import PIPELINE
from syncbrok.log.segments.segment import SegmentInfo
from syncbrok.model.facts import Carried, Fact, Outcome, Outcomes, QueueSet, Reason, Row, StoredMessage, SubscriberSet
from syncbrok.model.message import QueueSettings, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from tests.support.log.journals import START_US, Clock, append_snapshot, message, open_journal

DAY_US = 86_400_000_000
QUEUES = ("007", "orders", "2024-01-02")
"""names that a reader might take for a number or a date"""


class WrittenLog:
    """Every change is on the disk when its call returns. ``now_us`` is the time of what is written next."""

    def __init__(self, directory: Path, seed: int = 1, queues: Sequence[str] = QUEUES, **options: Any) -> None:
        self.directory = directory
        self.now_us = START_US
        self._random = random.Random(seed)
        self.queues = tuple(
            QueueSet(0, START_US, number, QueueName(name), QueueSettings()) for number, name in enumerate(queues, 1)
        )
        self.subscribers = tuple(
            SubscriberSet(0, START_US, number, number, SubscriberId(f"s{number}"), 1, SubscriberSettings("http://s/"))
            for number in (1, 2)
        )
        self.journal: FileJournal = open_journal(directory, Clock(), archive=PIPELINE, **options)
        self.messages: list[int] = []
        """the sequences of all messages, in order"""
        self.roll()

    def close(self) -> None:
        self.journal.close()

    def roll(self) -> None:
        """Seal the segment and begin the next."""
        append_snapshot(self.journal, time_us=self.now_us, queues=self.queues, subscribers=self.subscribers)

    def write(self, *facts: Fact) -> None:
        self.journal.append(self.journal.prepare(facts))

    def fill(self, segments: int = 1, messages: int = 40) -> None:
        """So many sealed segments: messages in all queues, some with parents, keys and headers; an outcome for each,
        some of subscribers that nobody knows; each segment a few hours after the one before."""
        for _ in range(segments):
            self.publish(messages)
            self.end(self.messages[-messages:])
            self.roll()
            self.now_us += DAY_US // 3

    def publish(self, count: int) -> None:
        """In batches of up to ten."""
        while count > 0:
            size = min(count, 10)
            first = self.journal.next_sequence
            batch = [self._message(sequence) for sequence in range(first, first + size)]
            self.write(*batch)
            self.messages += range(first, first + size)
            count -= size

    def _message(self, sequence: int) -> StoredMessage:
        chance = self._random
        self.now_us += 1_000
        more: dict[str, Any] = {}
        if self.messages and chance.random() < 0.3:
            parent = chance.choice(self.messages)
            more["parents"] = (message(self.journal.id_key, parent).id,)
        if chance.random() < 0.3:
            more |= {"key": chance.choice(["", "red", "größe"]), "headers": (("b", "2"), ("a", "1"), ("b", "3"))}
        return message(
            self.journal.id_key,
            sequence,
            time_us=self.now_us,
            queue=chance.choice(range(1, len(self.queues) + 1)),
            content=chance.randbytes(chance.choice((0, 20, 200))),
            **more,
        )

    def end(self, messages: list[int]) -> None:
        """One record with an attempt of each; nobody knows every fifth subscriber."""
        rows = tuple(
            Row(
                one,
                one % 5 or 99,
                1,
                Outcome.DELIVERED,
                Reason.NONE,
                200,
                self.now_us,
                0,
                one,
                1_000,
                b"ok" * (one % 3),
            )
            for one in messages
        )
        self.write(Outcomes(self.journal.next_sequence, self.now_us, rows))

    def carry(self, *sequences: int) -> None:
        """Append messages again, as retention does before their segments go."""
        for own in self.journal.read_many(list(sequences)):
            assert own is not None
            self.write(Carried(self.journal.next_sequence, self.now_us, own, (), ()))

    def sealed(self) -> list[SegmentInfo]:
        return [one for one in self.journal.sections() if one.sealed]

    def drop(self, count: int = 1, *, archived: bool = True) -> None:
        """Retention takes the oldest segments; not ``archived``: as if nothing had been configured to wait for."""
        for _ in range(count):
            oldest = self.journal.sections()[0]
            if not archived:
                copy = retention.Copy(oldest.path.name, oldest.bytes, retention.file_crc(oldest.path), "file:/nowhere")
                retention.note(self.directory, [copy])
            self.journal.trim_oldest()
        self.journal.sweep(1 << 62)
