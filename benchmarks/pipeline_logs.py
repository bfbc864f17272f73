"""Logs of millions of messages, written in seconds through the journal as the broker writes, without the broker.

``plain``     messages of a few queues, 150 bytes each of random letters: what is read, counted and archived
``families``  a fifth of all messages in chains of 1,000, the others in trees of about ten, some with two parents; each
              delivered once, wave by wave, so that the log keeps every promise an audit looks for

Blocks are complete in themselves, so a short log has chains as long as a long one. Every segment that has messages is
sealed in the end.
"""

import string
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from syncbrok.log.journal import FileJournal, FileOptions
from syncbrok.model.facts import (
    Attributes,
    Messages,
    Outcome,
    Outcomes,
    QueueSet,
    Reason,
    Row,
    Snapshot,
    StoredMessage,
    SubscriberSet,
)
from syncbrok.model.journal import JournalOptions
from syncbrok.model.message import ParentFailure, QueueSettings, Scope, SubscriberSettings
from syncbrok.model.names import MessageId, QueueName, SubscriberId
from syncbrok.space.commit.message_ids import make_message_ids

CONTENT_BYTES: Final = 150
CHAIN: Final = 1_000
BLOCK: Final = 125_000
"""messages of ``families`` that are complete in themselves"""
BLOCK_QUICK: Final = 5_000

_QUEUES: Final = ("customers", "cards", "invoices", "payments")
_RUN: Final = 5_000
_NEAR: Final = 40
_OUTCOME_ROWS: Final = 500
_START_US: Final = 1_750_000_000_000_000
_MESSAGE_US: Final = 50
_HOP_US: Final = 2_000
_SEED: Final = 20


class Writer:
    """A journal, its clock and a supply of contents."""

    def __init__(self, journal: FileJournal) -> None:
        self.journal = journal
        self.random = np.random.default_rng(_SEED + journal.next_sequence)
        self.now_us = _START_US + _MESSAGE_US * journal.next_sequence
        letters = np.frombuffer((string.ascii_letters + string.digits).encode(), "S1")
        self._letters = self.random.choice(letters, 1 << 20).tobytes()
        if not journal.sections():
            self.roll()

    def contents(self, count: int) -> list[bytes]:
        """Slices of a million random letters: no two alike, and little that a compression finds again."""
        starts = self.random.integers(0, len(self._letters) - CONTENT_BYTES, count)
        return [self._letters[at : at + CONTENT_BYTES] for at in starts.tolist()]

    def ids(self, count: int) -> bytes:
        return make_message_ids(self.now_us // 1_000, self.journal.next_sequence, count, self.journal.id_key)

    def write(self, facts: "list[StoredMessage] | list[Messages] | list[Outcomes]") -> None:
        self.journal.append(self.journal.prepare(facts))
        if self.journal.wants_snapshot:
            self.roll()

    def roll(self) -> None:
        """The snapshot that begins a segment: a subscriber for each queue."""
        queues = tuple(
            QueueSet(1, _START_US, number, QueueName(name), QueueSettings()) for number, name in enumerate(_QUEUES, 1)
        )
        settings = SubscriberSettings(name="crm", endpoint="http://127.0.0.1:20000/")
        subscribers = tuple(
            SubscriberSet(1, _START_US, queue.number, queue.number, SubscriberId("crm"), 0, settings)
            for queue in queues
        )
        self.journal.append(
            self.journal.prepare_snapshot(
                lambda sequence, time_us: Snapshot(sequence, time_us, queues, subscribers, (), ()), self.now_us
            )
        )


@contextmanager
def _writer(folder: Path) -> Iterator[Writer]:
    # Nothing is lost if the machine fails now: one fsync at the end.
    options = JournalOptions(sync="interval", interval_ms=1_000)
    started: list[Writer] = []
    journal = FileJournal.open(
        folder,
        options,
        lambda: started[0].now_us if started else _START_US,
        in_files=FileOptions(reserve_bytes=0),
    )
    try:
        started.append(Writer(journal))
        yield started[0]
        started[0].roll()  # what is not sealed is not archived
    finally:
        journal.close()


def plain(folder: Path, messages: int) -> None:
    """So many messages."""
    with _writer(folder) as writer:
        while messages > 0:
            count = min(_RUN, messages)
            queue = 1 + writer.journal.next_sequence // _RUN % len(_QUEUES)
            sequence = writer.journal.next_sequence
            run = Messages(
                sequence,
                writer.now_us,
                writer.ids(count),
                ((count, Attributes(queue, Scope.ALL, ParentFailure.FAIL, "application/octet-stream")),),
                writer.contents(count),
            )
            writer.now_us += count * _MESSAGE_US
            writer.write([run])
            messages -= count


def families(folder: Path, messages: int, block: int = BLOCK) -> None:
    """So many messages, in whole blocks, and a delivery for each."""
    with _writer(folder) as writer:
        for _ in range(-(-messages // block)):
            published = _publish_block(writer, block)
            _deliver_block(writer, published)


def _publish_block(writer: Writer, block: int) -> list[list[tuple[int, int]]]:
    """Sequence and queue of its messages by depth."""
    family = _Family(block // 5 // CHAIN)
    by_depth: list[list[tuple[int, int]]] = [[] for _ in range(CHAIN)]
    for _ in range(block // _RUN):
        ids, contents, first = writer.ids(_RUN), writer.contents(_RUN), writer.journal.next_sequence
        facts: list[StoredMessage] = []
        for at, draw in enumerate(writer.random.random((_RUN, 4)).tolist()):
            parents = family.parents(draw)
            fact = _message(writer, first + at, ids[16 * at : 16 * at + 16], parents, contents[at])
            family.add(fact, draw)
            by_depth[fact.depth].append((fact.sequence, fact.queue))
            facts.append(fact)
        writer.now_us += _RUN * _MESSAGE_US
        writer.write(facts)
    return by_depth


class _Family:
    """Who may be a parent next. Every fifth message goes on with one of the chains, the others are in trees."""

    def __init__(self, chains: int) -> None:
        self._chains: list[StoredMessage | None] = [None] * chains
        self._near: list[StoredMessage] = []
        self._number = 0

    def parents(self, draw: list[float]) -> tuple[StoredMessage, ...]:
        """``draw``: four numbers from 0 to 1."""
        if self._number % 5 == 0:
            last = self._chains[self._number // 5 % len(self._chains)]
            return (last,) if last else ()
        if not self._near or draw[0] < 0.1:
            return ()
        one = self._near[int(draw[1] * len(self._near))]
        other = self._near[int(draw[2] * len(self._near))]
        return (one, other) if draw[0] > 0.95 and one is not other else (one,)

    def add(self, fact: StoredMessage, draw: list[float]) -> None:
        if self._number % 5 == 0:
            self._chains[self._number // 5 % len(self._chains)] = fact
        elif len(self._near) < _NEAR:
            self._near.append(fact)
        else:
            self._near[int(draw[3] * _NEAR)] = fact
        self._number += 1


def _message(
    writer: Writer, sequence: int, id_: bytes, parents: tuple[StoredMessage, ...], content: bytes
) -> StoredMessage:
    return StoredMessage(
        sequence,
        writer.now_us,
        MessageId(id_),
        1 + sequence % len(_QUEUES),
        parents[0].root if parents else sequence,
        1 + max(one.depth for one in parents) if parents else 0,
        Scope.ALL,
        ParentFailure.FAIL,
        tuple(one.id for one in parents),
        "",
        "",
        b"",
        0,
        0,
        "application/octet-stream",
        (),
        content,
    )


def _deliver_block(writer: Writer, by_depth: list[list[tuple[int, int]]]) -> None:
    """A wave for each depth, begun when the wave before is in the log."""
    for wave in by_depth:
        after, began_us = writer.journal.next_sequence - 1, writer.now_us
        writer.now_us += _HOP_US
        rows = (
            Row(sequence, queue, 1, Outcome.DELIVERED, Reason.NONE, 200, began_us, 0, after, 1_000 + sequence % 512)
            for sequence, queue in wave
        )
        facts: list[Outcomes] = []
        while some := tuple(islice(rows, _OUTCOME_ROWS)):
            facts.append(Outcomes(writer.journal.next_sequence + len(facts), writer.now_us, some))
        if facts:
            writer.write(facts)
