"""What is archived, as the nodes of a cluster know it (CLUSTER, ``note``): noted once, on each node, whoever leads.

Broken by hand to see these fail: a leader that writes its file alone; an append although the line is known; no
repetition behind a segment's beginning, or of a new leader; a list that is taken back in the stream first; a follower
that passes notes over; the plain marker file in ``_note_archived``.
"""

import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cluster.archive_notes import ArchiveNotes, named_copies
from syncbrok.cluster.election import Election, LeaseTimes
from syncbrok.cluster.following import Following, roll_of
from syncbrok.cluster.healing import Healing
from syncbrok.cluster.leadership import Fenced, Leadership
from syncbrok.cluster.replicated_journal import DamagedYet, ReplicatedJournal
from syncbrok.cluster.segment_care import SegmentCare
from syncbrok.cluster.stream_messages import PIECE_BYTES, AppendNames, StreamKind, StreamMessage
from syncbrok.log.segments import retention
from syncbrok.log.segments.options import PIPELINE
from syncbrok.log.segments.retention import Copy
from syncbrok.log.segments.segment import segment_path
from syncbrok.model.errors import BadSetting, LogFailed, LogFull
from tests.cluster.test_healing import Directories
from tests.support.cluster.memory_engine import MemoryEngine
from tests.support.cluster.replicated_places import CLAIM, IDENTITY, HeldReplicated, take_over
from tests.support.disk.rot import flip
from tests.support.log.journals import append_snapshot, opened, publish


class Nodes:
    """Of one stream; each has a directory of its name."""

    def __init__(self, directory: Path, unsure: int = 0) -> None:
        self.engine = MemoryEngine(1, unsure)
        self._directory = directory
        self._open: list[ReplicatedJournal] = []

    def opened(self, name: str, **options: Any) -> ReplicatedJournal:
        """The files of a node as they are found."""
        (self._directory / name).mkdir(exist_ok=True)
        journal: ReplicatedJournal = opened(HeldReplicated, self._directory / name, identity=IDENTITY, **options)
        self._open.append(journal)
        return journal

    def leads(self, name: str, **options: Any) -> ReplicatedJournal:
        """It has read all there is, and leads from now on."""
        journal = self.opened(name, **options)
        take_over(self.engine, journal)
        return journal

    def reader(self, journal: ReplicatedJournal) -> Following:
        """Of a node that follows, where its files end."""
        election = Election(LeaseTimes.of(2.0), 1, lambda: 0.0, 0)
        leadership = Leadership(self.engine, election, AppendNames("f", "r"), CLAIM, lambda: 0)
        nothing = lambda _: None  # noqa: E731
        following = Following(self.engine, journal, election, leadership, nothing, nothing, "f", lambda: 0)
        following.begin()
        return following

    def follows(self, name: str) -> ReplicatedJournal:
        """It has read all there is."""
        journal = self.opened(name)
        reader = self.reader(journal)
        while reader.step():
            pass
        return journal

    def ends(self, journal: ReplicatedJournal) -> None:
        self._open.remove(journal)
        journal.close()

    def notes(self) -> list[bytes]:
        """Their bodies, of the whole stream."""
        return [one.body for one in self.engine.messages if one.kind is StreamKind.NOTE]

    def marked(self, name: str) -> list[str]:
        """The lines of a node's file, but for halves of some."""
        return lines(retention.copies(self._directory / name))

    def close(self) -> None:
        for journal in self._open:
            journal.close()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    made.close()


def fill(journal: ReplicatedJournal, segments: int = 2) -> None:
    """So many sealed segments, and one that is written to."""
    for _ in range(segments):
        append_snapshot(journal)
        publish(journal, 2)
    append_snapshot(journal)


def sealed_copies(journal: ReplicatedJournal, place: str = "hdfs://name/a b") -> list[Copy]:
    """As the job notes the sealed segments."""
    return [
        Copy(one.path.name, one.bytes, retention.file_crc(one.path), place) for one in journal.sections() if one.sealed
    ]


@contextmanager
def no_room() -> Iterator[None]:
    """Inside no file takes more than half a line."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def lines(copies: Iterable[Copy]) -> list[str]:
    return [retention.line_of(one) for one in copies]


def test_a_note_stands_once_on_each_node_and_retention_heeds_it(tmp_path: Path) -> None:
    """CLUSTER, note, and R3: the leader appends it, whatever the engine says of the append, and what is known already
    is no message; each node's file has the lines once, and on each retention may drop these segments and no others."""
    nodes = Nodes(tmp_path, unsure=60)
    leader = nodes.leads("a", archive=PIPELINE)
    fill(leader, 3)
    first, second, third = sealed_copies(leader)
    assert leader.archived.add([first, first, second]) == 2
    assert leader.archived.add([second, first]) == 0
    assert len(nodes.notes()) == 1
    for name in ("b", "c"):
        nodes.follows(name)
    for name in ("a", "b", "c"):
        assert nodes.marked(name) == lines([first, second])
        found = [retention.may_drop(tmp_path / name / one.name, PIPELINE) for one in (first, second, third)]
        assert found == [True, True, False]
    assert [leader.held_back(one) for one in leader.sections()[:3]] == [False, False, True]
    nodes.close()


def test_what_is_read_again_is_noted_once(nodes: Nodes) -> None:
    """A node that was killed reads from its last batch on: notes come again, and stand in its file once."""
    leader = nodes.leads("a")
    fill(leader)
    leader.archived.add(sealed_copies(leader))
    for _ in range(3):
        nodes.ends(nodes.follows("b"))
    assert nodes.marked("b") == lines(sealed_copies(leader))


def test_a_leader_that_dies_before_its_file_gets_it_later(nodes: Nodes, tmp_path: Path) -> None:
    """The note is in the stream, a batch behind it in the file, and the line is not: that node begins behind both. What
    the next leader says of it again it reads, and so it has what the others have."""
    leader = nodes.leads("a")
    fill(leader)
    noted = sealed_copies(leader)
    leader.archived.add(noted)
    publish(leader, 1)
    nodes.ends(leader)
    (tmp_path / "a" / "archived").unlink()
    following = nodes.opened("a")
    reader = nodes.reader(following)
    assert not reader.step()
    assert nodes.marked("a") == []
    nodes.leads("b")
    while reader.step():
        pass
    assert nodes.marked("a") == lines(noted)


def test_what_a_purge_takes_is_said_again_behind_each_segments_beginning(nodes: Nodes) -> None:
    """CLUSTER, keep: a stream that was purged up to a roll has, behind it, the notes of all that the log still has, and
    not of what retention has dropped. A node that begins there knows what the others know."""
    leader = nodes.leads("a")
    fill(leader, 3)
    noted = sealed_copies(leader)
    leader.archived.add(noted)
    leader.trim_oldest()
    append_snapshot(leader)
    roll = roll_of(nodes.engine, leader.sections()[-1].first)
    assert roll is not None
    nodes.engine.purge(roll.sequence)
    nodes.follows("late")
    assert nodes.marked("late") == lines(noted[1:])


def test_all_of_it_is_taken_back(nodes: Nodes) -> None:
    """Whoever has lost an archive: after that no node knows of it, whatever is read or said again, and what is noted
    from then on counts."""
    leader = nodes.leads("a", archive=PIPELINE)
    fill(leader)
    noted = sealed_copies(leader)
    leader.archived.add(noted)
    nodes.follows("b")
    leader.archived.forget()
    append_snapshot(leader)
    assert nodes.notes()[-1] == b""
    leader.archived.add(noted[:1])
    nodes.follows("c")
    assert nodes.marked("a") == nodes.marked("c") == lines(noted[:1])
    assert [leader.held_back(one) for one in leader.sections()[:2]] == [False, True]


def test_what_is_taken_back_is_gone_here_before_it_is_said(nodes: Nodes) -> None:
    """A leader whose message does not come through holds on to no line: one too many costs a segment."""
    leader = nodes.leads("a")
    fill(leader)
    leader.archived.add(sealed_copies(leader))
    nodes.engine.messages.append(StreamMessage(StreamKind.CLAIM, 9, "b.1", sequence=len(nodes.engine.messages) + 1))
    with pytest.raises(Fenced):
        leader.archived.forget()
    assert nodes.marked("a") == []


def test_who_leads_no_more_notes_nothing(nodes: Nodes) -> None:
    """R1: another node has claimed; the line stands nowhere, and the log of this one takes nothing more."""
    leader = nodes.leads("a")
    fill(leader)
    nodes.engine.messages.append(StreamMessage(StreamKind.CLAIM, 9, "b.1", sequence=len(nodes.engine.messages) + 1))
    with pytest.raises(Fenced):
        leader.archived.add(sealed_copies(leader))
    assert (nodes.marked("a"), nodes.notes()) == ([], [])
    with pytest.raises(LogFailed):
        publish(leader, 1)


def test_without_room_for_the_line_the_leader_says_so_and_is_asked_again(nodes: Nodes) -> None:
    """A full disk of the leader: it may stand in the stream already, which changes nothing."""
    leader = nodes.leads("a")
    fill(leader)
    noted = sealed_copies(leader)
    with no_room(), pytest.raises(LogFull):
        leader.archived.add(noted)
    assert leader.archived.add(noted) == 2
    nodes.follows("b")
    assert nodes.marked("a") == nodes.marked("b") == lines(noted)


def test_on_a_full_disk_it_is_noted_from_the_reserve(tmp_path: Path) -> None:
    """RULES 27: what must be known before a segment is dropped is written from the reserve."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    copy, sent = Copy(f"{1:020d}.log", 5, 6, "file:/a"), list[StreamMessage]()

    def make_room() -> bool:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        return True

    notes = ArchiveNotes(tmp_path, lambda: 1, sent.append, make_room)
    with no_room():
        assert notes.add([copy]) == 1
    assert (notes.copies(), len(sent)) == ([copy], 1)


def test_a_follower_without_room_for_the_line_stalls_and_goes_on(nodes: Nodes) -> None:
    """CLUSTER, "a follower's disk is full": it reads no further until there is room, and then has the line."""
    leader = nodes.leads("a")
    fill(leader)
    nodes.ends(nodes.follows("b"))
    leader.archived.add(sealed_copies(leader))
    publish(leader, 1)
    follower = nodes.opened("b")
    reader = nodes.reader(follower)
    with no_room():
        reader.step()
    assert reader.stalled
    before = follower.next_sequence
    while reader.step():
        pass
    assert (reader.stalled, follower.next_sequence) == (False, before + 1)
    assert nodes.marked("b") == lines(sealed_copies(leader))


def test_a_file_that_is_not_ours_stops_no_follower(nodes: Nodes, tmp_path: Path) -> None:
    """A job that was run as another user has made the file: the node follows on, and what it could not note keeps its
    segments; once that is mended the next repetition brings it."""
    leader = nodes.leads("a")
    fill(leader)
    leader.archived.add(sealed_copies(leader))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "archived").mkdir()  # opening it is refused, to root too
    follower = nodes.opened("b")
    reader = nodes.reader(follower)
    while reader.step():
        pass
    assert follower.next_sequence == leader.next_sequence
    (tmp_path / "b" / "archived").rmdir()
    append_snapshot(leader)
    while reader.step():
        pass
    assert nodes.marked("b") == lines(sealed_copies(leader)[:2])


def test_what_cannot_be_read_is_passed_over(nodes: Nodes) -> None:
    """A line of a version to come, half a line, bytes that are none: the others count."""
    leader = nodes.leads("a")
    fill(leader)
    (one, _) = sealed_copies(leader)
    body = b"half a li\nname 5 0badcafe another kind of line\n\xff\xfe\n" + lines([one])[0].encode() + b"\n"
    nodes.engine.messages.append(
        StreamMessage(StreamKind.NOTE, 1, "a.x", body, sequence=len(nodes.engine.messages) + 1)
    )
    nodes.follows("b")
    assert nodes.marked("b") == lines([one])


def test_a_long_list_goes_in_pieces(nodes: Nodes) -> None:
    """More lines than one message of the stream has room for."""
    leader = nodes.leads("a")
    fill(leader)
    place = "s3a://bucket/" + "x" * 2_000
    many = [Copy(segment_path(Path(), at).name, 7, at, place) for at in range(1, PIECE_BYTES // 2_000)]
    assert leader.archived.add(many) == len(many)
    assert len(nodes.notes()) == 2
    nodes.follows("b")
    assert nodes.marked("b") == lines(many)


# -- archive: DIR -----------------------------------------------------------------------------------------------------


def test_the_leader_alone_copies_and_the_next_one_goes_on(nodes: Nodes, tmp_path: Path) -> None:
    """CLUSTER, "`archive: DIR` is written by the leader": who follows copies nothing; after a failover each segment
    stands in the archive, and each line in each file, once; what one leader has copied and noted the next one copies
    not again, also where the first died before it dropped the segment."""
    archive = tmp_path / "archive"
    leader = nodes.leads("a", archive=archive)
    fill(leader, 3)
    leader.trim_oldest()
    leader._ready_to_trim()  # copied and noted; it dies before the drop
    (copied,) = [one for one in archive.iterdir() if one.name == leader.sections()[0].path.name]
    written = copied.stat()
    nodes.ends(leader)
    follower = nodes.follows("c")
    assert sorted(one.name for one in archive.iterdir()) == sorted(
        copy.name for copy in retention.copies(tmp_path / "c")
    )
    following = nodes.leads("b", archive=archive)
    following.trim_oldest()
    after = copied.stat()
    assert (after.st_ino, after.st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    following.trim_oldest()
    reader = nodes.reader(follower)
    while reader.step():
        pass
    names = sorted(one.name for one in archive.iterdir())
    assert len(names) == 3
    for name in ("b", "c"):
        assert sorted(line.split(" ")[0] for line in nodes.marked(name)) == names
    assert len(follower.sections()) == len(following.sections()) == 1


@pytest.mark.parametrize("held", [True, False])
def test_what_is_damaged_is_mended_before_it_is_archived(nodes: Nodes, tmp_path: Path, held: bool) -> None:
    """A segment is found damaged as it is about to go: a copy with zeros in it would be all that is left, though a peer
    has it whole. Where none has, it goes as on one machine, since all behind it would stay for ever."""
    archive = tmp_path / "archive"
    leader = nodes.leads("a", archive=archive)
    fill(leader, 2)
    nodes.follows("b")
    first = leader.sections()[0]
    whole = first.path.read_bytes()
    flip(first.path, len(whole) // 2)
    leader.check(first)
    assert list(leader.damages) == [first.first]
    with pytest.raises(DamagedYet):
        leader.trim_oldest()
    assert not archive.exists()

    peers = Directories(*[tmp_path / "b"] if held else [], last=leader.next_sequence - 1)
    healing = Healing(tmp_path / "a", IDENTITY, peers, lambda: 0, stream_is_cut=False)
    nothing = lambda _: None  # noqa: E731
    SegmentCare(tmp_path / "a", healing, peers, leader, lambda: False, nothing, lambda: 1_000.0, lambda: 0).step()
    leader.trim_oldest()
    assert ((archive / first.path.name).read_bytes() == whole) is held


def test_a_copy_that_nobody_noted_is_made_again(nodes: Nodes, tmp_path: Path) -> None:
    """The leader dies between the copy and the note: the next one makes it once more, with the same bytes."""
    archive = tmp_path / "archive"
    leader = nodes.leads("a", archive=archive)
    fill(leader)
    path = leader.sections()[0].path
    whole = path.read_bytes()
    with pytest.raises(RuntimeError):
        retention.archive_segment(path, archive, _dies, writer="a")
    nodes.ends(leader)
    following = nodes.leads("b", archive=archive)
    following.trim_oldest()
    assert [one.read_bytes() for one in archive.iterdir()] == [whole]
    assert [line.split(" ")[0] for line in nodes.marked("b")] == [path.name]


def _dies(_: Copy) -> None:
    raise RuntimeError("killed, says the test")


def test_an_unfinished_copy_of_another_leader_is_not_touched(nodes: Nodes, tmp_path: Path) -> None:
    """One that leads no more may wake in the middle of a copy: it has a file of its own, so what the next leader has
    read back stays as it was read."""
    archive = tmp_path / "archive"
    leader = nodes.leads("a", archive=archive, archive_writer="a")
    fill(leader, 1)
    name = leader.sections()[0].path.name
    for other in (f"{name}.b.tmp", f"{name}.tmp"):
        (archive / other).mkdir(parents=True)  # to write there is refused
    leader.trim_oldest()
    assert (archive / name).is_file()


# -- what jobs ask for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "",
        "half a li",
        "{name} {size} 0badcafe",
        "{name} {more} 0badcafe pipeline file:/a",
        "{active} {size} 0badcafe pipeline file:/a",
        "00000000000000099999.log {size} 0badcafe pipeline file:/a",
        "another.log {size} 0badcafe pipeline file:/a",
        "../{name} {size} 0badcafe pipeline file:/a",
        "{name} {size} 0badcafe another file:/a",
        "{name} -1 0badcafe pipeline file:/a",
    ],
)
def test_a_line_that_is_none_is_refused(nodes: Nodes, line: str) -> None:
    """Nothing is noted that is not a sealed segment of this log, of this length; nor the broker's own copies, which a
    job does not make."""
    leader = nodes.leads("a")
    fill(leader)
    one = leader.sections()[0]
    given = {"name": one.path.name, "size": one.bytes, "more": one.bytes + 1, "active": leader.sections()[-1].path.name}
    with pytest.raises(BadSetting):
        named_copies([*lines(sealed_copies(leader)), line.format(**given)], leader.sections())


def test_of_what_is_gone_nothing_need_be_noted(nodes: Nodes) -> None:
    """A job beside a follower that lags names a segment that the leader has dropped: that is no mistake."""
    leader = nodes.leads("a")
    fill(leader, 3)
    noted = sealed_copies(leader)
    leader.trim_oldest()
    assert named_copies(lines(noted), leader.sections()) == noted[1:]
