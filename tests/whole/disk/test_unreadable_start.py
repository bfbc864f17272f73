"""A real broker that starts on a log of which the disk cannot read a page (RULES 28).

It is judged as one whose page has rotted: ``tests/support/disk/rotting.py``, which imports nothing of the broker.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncbrok.log.format.layout import HEADER_BYTES, Kind
from syncbrok.log.offline.salvage import salvage
from syncbrok.log.offline.verify import Finding, verify
from syncbrok.log.segments.segment import segment_path
from tests.support.broker.process import BrokerProcess
from tests.support.disk import rot, rotting
from tests.support.disk.bad_sector import PAGE_BYTES, unreadable
from tests.support.disk.rotting import Judge, Story
from tests.support.http.recorder import Recorder
from tests.support.log.journals import open_journal, publish, roll
from tests.support.polling import eventually_blocking

HOW = ("the disk cannot read it", "it is zeros")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with Recorder() as subscriber:
        yield rotting.make_story(tmp_path_factory.mktemp("story"), subscriber)


def page_of(story: Story, part: str) -> int:
    """Where a page of the sealed segment begins: the one with its header, with open messages, or with its seal."""
    records = rot.records(rot.segments(story.storage)[0])
    told = {one.sequence for one in story.messages if one.open}
    place = {"first": 0, "messages": max(one.at for one in records if one.own in told), "last": records[-1].at}[part]
    return place // PAGE_BYTES * PAGE_BYTES


def hit_by(story: Story, page: int) -> list[rot.Record]:
    records = rot.records(rot.segments(story.storage)[0])
    return [one for one in records if one.at < page + PAGE_BYTES and one.end > page]


def hit_in_body(record: rot.Record, page: int) -> bool:
    """Whether it is a message whose header stands before the page: that is lost, and no reason to refuse."""
    return record.kind == Kind.MESSAGE and record.at + HEADER_BYTES <= page


def broker_on(story: Story, storage: Path, page: int, how: str, *gone: str, retention: str = "7d") -> BrokerProcess:
    """On a copy of the story's log of which this page cannot be had."""
    shutil.copytree(story.storage, storage)
    rotting.forget(storage, *gone)
    broker = story.broker(storage, retention)
    path = rot.segments(storage)[0]
    if how == HOW[0]:
        broker.bad_sector = path, page
        return broker
    with path.open("r+b") as file:
        file.seek(page)
        file.write(bytes(min(PAGE_BYTES, path.stat().st_size - page)))
    return broker


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("part", ["first", "messages", "last"])
def test_a_start_with_a_checkpoint_goes_on(story: Story, tmp_path: Path, part: str, how: str) -> None:
    """RULES 28: a page that cannot be read costs exactly its records where a checkpoint covers them, whichever page of
    a sealed segment it is, and is named."""
    page = page_of(story, part)
    hit = hit_by(story, page)
    judge = Judge(story, [])
    judge.lost = {one.own for one in hit if one.own}
    judge.nameless = {one.own for one in hit if one.body_at > page}
    with broker_on(story, tmp_path / "log", page, how) as broker:
        judge.named(broker, len(hit) + (page == 0))
        judge.repeats(broker)
        judge.answers(broker)
        judge.adopts(broker)
        judge.released(broker)
    assert not judge.wrong, "\n".join(judge.wrong[:20])


@pytest.mark.parametrize("part", ["first", "messages", "last"])
def test_without_one_it_is_refused_in_the_words_for_rot(story: Story, tmp_path: Path, part: str) -> None:
    """RULES 28: where nobody can tell how things stood, it makes no difference why: exit code 65, naming file, offset
    and sequences, and what to do."""
    page, said = page_of(story, part), []
    for number, how in enumerate(HOW):
        broker = broker_on(story, tmp_path / f"{number}" / "log", page, how, "checkpoint*")
        with pytest.raises(AssertionError, match=f"ended with {rotting.REFUSED}"):
            broker.start()
        words = broker.output()[broker.output().rindex("syncbrok: ") :]
        said.append(words.replace(str(broker.storage), ""))
    first = next(one for one in hit_by(story, page) if not hit_in_body(one, page))
    name = rot.segments(story.storage)[0].name
    assert f"{name}, offset {first.at}, sequences {first.sequence} to " in said[0]
    assert "syncbrok log salvage" in said[0]
    assert said[0] == said[1]


def test_the_end_of_the_log_must_be_readable_and_the_error_names_the_file(story: Story, tmp_path: Path) -> None:
    """RULES 28, INTERFACES 1: what was written last is never guessed at: exit code 74, with the file and what to do."""
    broker = broker_on(story, tmp_path / "log", 0, HOW[0])
    last = rot.segments(broker.storage)[-1]
    broker.bad_sector = last, 0
    with pytest.raises(AssertionError, match="ended with 74"):
        broker.start()
    assert f"syncbrok: {last} cannot be read" in broker.output()
    assert "look at the disk, then start again" in broker.output()


@pytest.mark.parametrize("sealed", [True, False])
def test_verify_names_it_and_salvage_reads_around_it(tmp_path: Path, sealed: bool) -> None:
    """RULES 28: an operator's commands go on where the disk cannot read a page, at the end of the log too; verify names
    the file, salvage the sequences that are lost, and keeps all others."""
    journal = open_journal(tmp_path / "log")
    sent = [publish(journal, content=bytes([number]) * 1_000)[0] for number in range(12)]
    roll(journal)
    more = [publish(journal, content=bytes([number]) * 1_000)[0] for number in range(12)]
    journal.close()
    base = 1 if sealed else sent[-1].sequence + 2
    path = segment_path(tmp_path / "log", base)
    place = path.read_bytes().index((sent if sealed else more)[5].content) + 10
    with unreadable(path, place):
        found = [one for one in verify(tmp_path / "log") if isinstance(one, Finding)]
        report = salvage(tmp_path / "log", tmp_path / "saved")
    assert any(one.file == path.name and "the disk cannot read" in one.what for one in found)
    lost = {sequence for one in report.lost for sequence in range(one.first, one.last + 1)}
    assert (sent if sealed else more)[5].sequence in lost
    assert len(lost) <= 6
    saved = open_journal(tmp_path / "saved")
    wanted = [one for one in (*sent, *more) if one.sequence not in lost]
    assert saved.read_many([one.sequence for one in wanted]) == wanted
    saved.close()


@pytest.mark.parametrize("how", HOW)
def test_retention_archives_what_can_be_read(story: Story, tmp_path: Path, how: str) -> None:
    """RULES 28: a segment of which a page is lost goes as any other when it is old: what has not ended and is lost ends
    by a row, the archive gets all that can be read, with zeros in the place of the page, and the log says so. Else it
    would stay for ever, and all behind it."""
    page = page_of(story, "messages")
    hit = hit_by(story, page)
    judge = Judge(story, [], dropped=True)
    judge.lost = {one.own for one in hit if one.own}
    archive = tmp_path / "archive"
    broker = broker_on(story, tmp_path / "log", page, how, retention=f"{rotting.SHORT}, archive: {archive}")
    path = rot.segments(broker.storage)[0]
    whole = (story.storage / path.name).read_bytes()
    with broker:
        eventually_blocking(lambda: not path.exists(), "the first segment gone")
        judge.released(broker)
        said = [line for line in broker.output().splitlines() if "syncbrok.log.damage_archived" in line]
    copy = (archive / path.name).read_bytes()
    assert copy == whole[:page] + bytes(PAGE_BYTES) + whole[page + PAGE_BYTES :]
    assert len(said) == 1
    assert path.name in said[0]
    assert not judge.wrong, "\n".join(judge.wrong[:20])
