"""A sealed segment rots on the disk while the broker runs: it is said aloud, and everything else goes on."""

import asyncio
from contextlib import nullcontext
from pathlib import Path

import pytest

from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES
from syncbrok.model.errors import LogCorrupt
from syncbrok.model.facts import FactsLost
from syncbrok.model.limits import MIB
from syncbrok.space.operations.scrub import scrub
from tests.support.disk.bad_sector import unreadable
from tests.support.log.journals import open_journal, publish, roll
from tests.support.polling import eventually


def rot(path: Path, content: bytes) -> None:
    """One bit of this content."""
    data = bytearray(path.read_bytes())
    data[data.index(content, SEGMENT_HEADER_BYTES)] ^= 1
    path.write_bytes(data)


async def test_the_scrub_finds_what_start_up_trusted(tmp_path: Path) -> None:
    """DESIGN 4: start-up trusts a sealed segment by its footer, a background scrub reads the rest."""
    journal = open_journal(tmp_path)
    publish(journal, 20, content=b"precious")
    sealed = journal.sections()[0]
    roll(journal)
    journal.close()
    rot(sealed.path, b"precious")
    journal = open_journal(tmp_path)
    assert not journal.damaged
    scrubbing = asyncio.create_task(scrub(journal, asyncio.to_thread))
    try:
        await eventually(lambda: journal.damaged, "the damage found")
    finally:
        scrubbing.cancel()
    assert list(journal.damaged) == [sealed.path.name]
    assert "sequences 2 to 2" in journal.damaged[sealed.path.name]
    journal.close()


def test_the_header_of_a_damaged_record_still_says_whose_it_is(tmp_path: Path) -> None:
    """RULES 20: a message whose body has rotted is a dead letter with an id, not a number in a statistic."""
    journal = open_journal(tmp_path)
    lost = publish(journal, content=b"precious")[0]
    sealed = journal.sections()[0]
    roll(journal)
    journal.close()
    rot(sealed.path, b"precious")
    journal = open_journal(tmp_path)
    assert journal.read_many([lost.sequence]) == [None]
    assert journal.place_of(lost.sequence) == (lost.id, lost.queue)
    assert journal.place_of(lost.sequence + 1) is None
    journal.close()


def test_a_damaged_record_is_the_only_one_that_cannot_be_read(tmp_path: Path) -> None:
    """DESIGN 1, nothing lost silently: its neighbours are read, and the damage stands where operators look."""
    journal = open_journal(tmp_path)
    first = publish(journal, 10)
    lost = publish(journal, content=b"precious")[0]
    last = publish(journal, 10)
    sealed = journal.sections()[0]
    roll(journal)
    journal.close()
    rot(sealed.path, b"precious")
    journal = open_journal(tmp_path)
    wanted = [*first, lost, *last]
    found = journal.read_many([message.sequence for message in wanted])
    assert found == [*first, None, *last]
    assert list(journal.damaged) == [sealed.path.name]
    journal.close()


@pytest.mark.parametrize("large", [False, True])
def test_what_the_disk_cannot_read_is_damage_and_costs_no_more(tmp_path: Path, large: bool) -> None:
    """RULES 28: a page of a sealed segment that the disk cannot read is damage, as a turned bit is: it is named, its
    records are lost and not those beside it, and nobody who asks is told that the log has failed."""
    journal = open_journal(tmp_path, segment_bytes=4 * MIB)
    size = 200_000 if large else 1_000
    sent = [publish(journal, content=bytes([number]) * size)[0] for number in range(12)]
    sealed = journal.sections()[0]
    roll(journal)
    journal.close()
    at = sealed.path.read_bytes().index(sent[5].content) + 10
    journal = open_journal(tmp_path, segment_bytes=4 * MIB)
    with unreadable(sealed.path, at):
        found = journal.read_many([one.sequence for one in sent])
        lost = {one.sequence for one, read in zip(sent, found, strict=True) if read is None}
        assert sent[5].sequence in lost
        assert len(lost) <= (2 if large else 6)
        assert [read for read in found if read] == [one for one in sent if one.sequence not in lost]
        assert {journal.kind_of(one.sequence) for one in sent if one.sequence not in lost} == {"message"}
        assert journal.kind_of(sent[5].sequence) == "lost"
        journal.check(journal.sections()[0])
        assert list(journal.damaged) == [sealed.path.name]
        gaps = [fact for fact in journal.facts() if isinstance(fact, FactsLost)]
        assert {sequence for gap in gaps for sequence in range(gap.first, gap.last + 1)} == lost
        if not large:
            with pytest.raises(LogCorrupt, match=sealed.path.name):
                list(journal.facts_or_runs(0))
        assert list(journal.facts_or_runs(sealed.last))
    journal.close()


@pytest.mark.parametrize("how", ["rotten", "unreadable"])
def test_damage_in_the_segment_that_is_written_to_ends_nobody(tmp_path: Path, how: str) -> None:
    """RULES 28: whoever asks a running broker for a record that has rotted, or cannot be read, where the log is being
    written is told that this one is lost, and all others are there: not that the log is damaged, which would end the
    broker for all."""
    journal = open_journal(tmp_path)
    sent = [publish(journal, content=bytes([number]) * 1_000)[0] for number in range(12)]
    path = journal.sections()[-1].path
    journal.close()
    journal = open_journal(tmp_path)
    data = path.read_bytes()
    at = data.index(sent[5].content) - 60
    if how == "rotten":
        path.write_bytes(data[:at] + b"???" + data[at + 3 :])
    with unreadable(path, at) if how == "unreadable" else nullcontext():
        found = journal.read_many([one.sequence for one in sent])
        kinds = {one.sequence: journal.kind_of(one.sequence) for one in sent}
        assert journal.place_of(sent[0].sequence) == (sent[0].id, sent[0].queue)
    lost = {one.sequence for one, read in zip(sent, found, strict=True) if read is None}
    assert sent[5].sequence in lost
    assert len(lost) <= (1 if how == "rotten" else 6)
    assert {sequence for sequence, kind in kinds.items() if kind != "message"} <= lost
    assert list(journal.damaged) == [path.name]
    assert {one.first for one in journal.damages[journal.sections()[-1].first]} == lost, "each is named, for the metric"
    journal.close()
