"""A log in which everything is much that a job has to bring together from far apart: families whose members wait for
members of the next family, and messages to a queue without subscribers that follow them in one long chain.

Of each family ``i``: a root; a child of it and of the root of family ``i + 1``; a grandchild of the children of both;
and in the queue ``nobody`` a message below the grandchild and below that of the family before. All are published before
anything is delivered, so all wait; every other grandchild is not delivered at all.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from syncbrok.log.journal import FileJournal
from syncbrok.model.facts import Outcome, Outcomes, QueueSet, Reason, Row, StoredMessage, SubscriberSet
from syncbrok.model.message import QueueSettings, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from tests.support.log.journals import START_US, append_snapshot, message, opened

ORDERS, NOBODY = 1, 2
SUBSCRIBER = 1
_TOGETHER: Final = 500
_QUEUES: Final = tuple(
    QueueSet(0, START_US, number, QueueName(name), QueueSettings()) for number, name in ((1, "orders"), (2, "nobody"))
)
_SUBSCRIBERS: Final = (
    SubscriberSet(0, START_US, SUBSCRIBER, ORDERS, SubscriberId("crm"), 1, SubscriberSettings("http://crm/")),
)


class _Writer:
    def __init__(self, journal: FileJournal) -> None:
        self.journal = journal
        self.now_us = START_US
        self._roll()

    def publish(self, queue: int, parents: Sequence[Sequence[StoredMessage]]) -> list[StoredMessage]:
        """A message for each of ``parents``; in ``nobody`` one below the one before it, too."""
        made: list[StoredMessage] = []
        first = self.journal.next_sequence
        for at, own in enumerate(parents):
            above = [*own, *(made[-1:] if queue == NOBODY else [])]
            self.now_us += 10
            sequence = first + at
            place = {"root": above[0].root, "depth": 1 + max(one.depth for one in above)} if above else {}
            ids = tuple(one.id for one in above)
            made.append(message(self.journal.id_key, sequence, time_us=self.now_us, queue=queue, parents=ids, **place))
        for start in range(0, len(made), _TOGETHER):
            self._write(made[start : start + _TOGETHER])
        return made

    def deliver(self, messages: Sequence[StoredMessage]) -> None:
        """One attempt of each, begun when all before it was in the log."""
        after, began_us = self.journal.next_sequence - 1, self.now_us
        for start in range(0, len(messages), _TOGETHER):
            self.now_us += 1_000_000
            rows = tuple(
                Row(one.sequence, SUBSCRIBER, 1, Outcome.DELIVERED, Reason.NONE, 200, began_us, 0, after, 900)
                for one in messages[start : start + _TOGETHER]
            )
            self._write([Outcomes(self.journal.next_sequence, self.now_us, rows)])

    def _write(self, facts: "list[StoredMessage] | list[Outcomes]") -> None:
        self.journal.append(self.journal.prepare(facts))

    def _roll(self) -> None:
        append_snapshot(self.journal, time_us=self.now_us, queues=_QUEUES, subscribers=_SUBSCRIBERS)

    def seal(self) -> None:
        self._roll()


def crossed_log(folder: Path, families: int, segments: int = 2) -> int:
    """Write the log of so many families, in some sealed segments; how many messages it has."""
    journal = opened(FileJournal, folder, segment_bytes=1 << 30)
    writer = _Writer(journal)
    count = 0
    for part in range(segments):
        size = families // segments
        roots = writer.publish(ORDERS, [()] * size)
        children = writer.publish(ORDERS, [roots[at : at + 2] for at in range(size)])
        grandchildren = writer.publish(ORDERS, [children[at : at + 2] for at in range(size)])
        count += 4 * len(writer.publish(NOBODY, [(one,) for one in grandchildren]))
        writer.seal()
        for wave in (roots, children, grandchildren[part % 2 :: 2]):
            writer.deliver(wave)
        writer.seal()
    journal.close()
    return count
