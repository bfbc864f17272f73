"""No power loss loses what was acknowledged, whatever the disk had not written yet.

``kill -9`` does not show whether an fsync is missing, since the page cache survives it. Here
the calls are recorded, and the disk states that they allow are made of them. Broken by hand to see it fail: the segment
opened without ``O_DSYNC``; a new segment renamed before its fsync; the directory not fsynced after the rename; ``sync``
without its fdatasync; what stands before a seal not synced before it; the room behind a seal not given back for good.
"""

import random
import shutil
from pathlib import Path

import pytest

from syncbrok.log.journal import FileJournal
from syncbrok.model.facts import StoredMessage
from tests.support.log.journals import Clock, open_journal, publish, records, roll
from tests.support.power.directory import Event, Recording, after_power_loss, restore

STATES = 200


def record(directory: Path, sync: str) -> tuple[list[Event], list[tuple[int, int]]]:
    """The events of a life of a journal, and (how many events, sequence) of each acknowledgement."""
    acknowledged: list[tuple[int, int]] = []
    clock = Clock()
    with Recording(directory).running() as recording:
        journal = open_journal(directory, clock, segment_bytes=8 * 1024, sync=sync)
        for number in range(12):
            publish(journal, 4, unit_ends={0, 3}, content=b"message %d " % number * 60)
            if sync == "interval" and number % 3 == 2:
                journal.sync()
            acknowledged.append((len(recording.events), journal.durable_sequence))
            if number % 4 == 3:
                clock.now_us += 1_000_000
            if journal.wants_snapshot or number in (1, 5, 6):  # also with room left, and right after another
                roll(journal)
                acknowledged.append((len(recording.events), journal.durable_sequence))
        journal.close()
        acknowledged.append((len(recording.events), journal.durable_sequence))
    return recording.events, acknowledged


@pytest.mark.parametrize("sync", ["always", "interval"])
def test_no_power_loss_loses_what_was_acknowledged(tmp_path: Path, seed: int, sync: str) -> None:
    """DESIGN section 1: 201 means fsynced. After a power loss at any moment the log starts, has all that was
    acknowledged and whole units only, and goes on; a second power loss while it recovers changes nothing of that."""
    events, acknowledged = record(tmp_path / "log", sync)
    dice = random.Random(seed)
    for number in range(STATES):
        moment = dice.randrange(len(events) + 1)
        promised = max((sequence for count, sequence in acknowledged if count <= moment), default=0)
        directory = tmp_path / f"state-{number}"
        restore(after_power_loss(events[:moment], dice), directory)
        begun = Recording(directory)
        untouched = len(begun.events)
        with begun.running():
            journal = open_journal(directory, sync=sync)
            check(journal, promised)
            publish(journal)
            journal.close()
        again = tmp_path / f"again-{number}"
        moment = dice.randrange(untouched, len(begun.events) + 1)
        restore(after_power_loss(begun.events[:moment], dice), again)
        journal = open_journal(again, sync=sync)
        check(journal, promised)
        journal.close()
        shutil.rmtree(directory)
        shutil.rmtree(again)


def check(journal: FileJournal, promised: int) -> None:
    """All that was promised is there, in units of one and three (and perhaps the one more of the second life)."""
    facts = records(journal)
    assert [fact.sequence for fact in facts] == list(range(1, journal.next_sequence))
    assert facts[-1].sequence >= promised, f"{promised} was acknowledged, {facts[-1].sequence} is left"
    messages = [fact for fact in facts if isinstance(fact, StoredMessage)]
    assert len(messages) % 4 in (0, 1, 2), f"half a unit: {len(messages)} messages"
