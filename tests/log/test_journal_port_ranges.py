"""The port of a journal, as ``test_journal_port.py`` asks it: what a search asks of it."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncbrok.model.facts import Carried, Fact, Outcomes, Snapshot, StoredMessage
from syncbrok.model.journal import Log
from tests.log.test_journal_port import Story, told
from tests.support.log.journal_places import PLACES, Place, placed
from tests.support.log.journals import append_snapshot


@pytest.fixture(params=list(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with placed(request.param, tmp_path) as made:
        yield made


def times_are_found(journal: Log) -> None:
    """``first_at`` lies behind all facts of earlier times and behind no other."""
    facts = told(journal)
    for time_us in {near for one in facts for near in (one.time_us, one.time_us + 1)}:
        earlier = [one.sequence for one in facts if one.time_us < time_us]
        others = [one.sequence for one in facts if one.time_us >= time_us]
        assert max(earlier, default=0) < journal.first_at(time_us) <= min(others, default=journal.next_sequence)


def ranges_are_told(journal: Log, there: dict[int, StoredMessage], queue: int | None) -> None:
    """Messages of one queue, of several and of all between two sequences, in either order."""
    first, newest, following = journal.first_sequence, max(there), journal.next_sequence
    for queues in (None if queue is None else {queue}, {1, queue or 2}):
        chosen = [one.sequence for one in there.values() if queues is None or one.queue in queues]
        for after, before in ((0, following), (first, newest // 2), (newest // 2, newest), (newest, following)):
            expected = [one for one in chosen if after < one < before]
            assert journal.sequences_between(queues, after, before, 10_000, newest_first=False) == expected
            assert journal.sequences_between(queues, after, before, 3, newest_first=False) == expected[:3]
            expected.reverse()
            assert journal.sequences_between(queues, after, before, 10_000, newest_first=True) == expected
            assert journal.sequences_between(queues, after, before, 3, newest_first=True) == expected[:3]


def others_are_told(journal: Log) -> None:
    """What is neither a message nor about one, in either order."""
    no_others = (StoredMessage, Carried, Outcomes, Snapshot)
    facts = [(one.sequence, one) for one in told(journal) if not isinstance(one, no_others)]
    following = journal.next_sequence
    for after, before in ((0, following), (following // 3, following), (1, following // 2), (following, following)):
        expected = [one for one in facts if after < one[0] < before]
        assert others_of(journal, after, before, 10_000, newest_first=False) == expected
        assert others_of(journal, after, before, 3, newest_first=False) == expected
        assert others_of(journal, after, before, 10_000, newest_first=True) == expected[::-1]
        assert others_of(journal, after, before, 3, newest_first=True) == expected[::-1]


def others_of(journal: Log, after: int, before: int, limit: int, *, newest_first: bool) -> list[tuple[int, Fact]]:
    """All of them, so many at once."""
    found: list[tuple[int, Fact | None]] = []
    while True:
        some = journal.others_between(after, before, limit, newest_first=newest_first)
        assert len(some) <= limit
        found += some
        if len(some) < limit:
            return [(at, one) for at, one in found if one is not None]
        after, before = (after, some[-1][0]) if newest_first else (some[-1][0], before)


@pytest.mark.parametrize("seed", range(2))
def test_what_lies_in_a_range_is_told(place: Place, seed: int) -> None:
    """Port, index: messages between two sequences, what else there is, facts by their time, rows of many messages at
    once; also where the oldest sections were trimmed and their messages carried in part."""
    journal = place.open()
    story = Story(journal, random.Random(seed))
    story.go_on(4)
    for trimmed in range(2):
        if trimmed:
            oldest = journal.sections()[0]
            for own in [one for one in story.there() if one <= oldest.last and one % 3]:
                story.carry(own)
            append_snapshot(journal)
            journal.trim_oldest()
        there = story.there()
        times_are_found(journal)
        others_are_told(journal)
        for queue in (None, 1, 2, 4):
            ranges_are_told(journal, there, queue)
        together = sorted(there)[:: max(1, len(there) // 40)]
        assert journal.timed_rows_of_many(together) == [journal.timed_rows_of(one) for one in together]
        assert journal.timed_rows_of_many([]) == []
