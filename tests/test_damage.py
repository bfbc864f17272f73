"""A sealed segment rots on the disk while the broker runs: it is said aloud, and everything else goes on."""

import asyncio
from pathlib import Path

from syncbrok.log.segment import SEGMENT_HEADER_BYTES
from syncbrok.space.scrub import scrub
from tests.support.journals import open_journal, publish, roll
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
    sealed = journal.segments()[0]
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
    sealed = journal.segments()[0]
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
    sealed = journal.segments()[0]
    roll(journal)
    journal.close()
    rot(sealed.path, b"precious")
    journal = open_journal(tmp_path)
    wanted = [*first, lost, *last]
    found = journal.read_many([message.sequence for message in wanted])
    assert found == [*first, None, *last]
    assert list(journal.damaged) == [sealed.path.name]
    journal.close()
