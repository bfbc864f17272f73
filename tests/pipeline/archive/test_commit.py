"""An archive goes from one state to the next whole or not at all: which manifests count, and what a kill leaves."""

import itertools
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from syncbrok.pipeline.archive.commit import (
    FOLDER,
    STAGING,
    AnotherLog,
    begin,
    clean,
    commit,
    drop_replaced,
    manifests,
    owner,
)
from syncbrok.pipeline.archive.manifest import (
    ArchiveDamaged,
    ArchivedRange,
    ArchivedSegment,
    DataFile,
    Manifest,
    ManifestName,
    MissingSequences,
    RowChecksum,
    current,
    dump,
    gaps,
    load,
    parse_name,
)
from syncbrok.pipeline.archive.plan import check_same, cut, plan
from syncbrok.pipeline.archive.store import StoredFile
from syncbrok.pipeline.log_place import LogDirectory
from syncbrok.pipeline.log_snapshot import LogSnapshot
from syncbrok.pipeline.log_snapshot import SegmentSnapshot as LogSegment

LOG = "ab" * 16


class Killed(BaseException):
    """The process ended here."""


class LocalFolder:
    """A place on the disk, killed before its change number ``dies`` (counted from 1)."""

    def __init__(self, root: Path, dies: int = 0) -> None:
        self.root = root
        self._dies = dies
        self._changes = itertools.count(1)

    def _change(self) -> None:
        if next(self._changes) == self._dies:
            raise Killed

    def full(self, path: str) -> str:
        return str(self.root / path)

    def names(self, folder: str) -> list[str]:
        where = self.root / folder
        return sorted(one.name for one in where.iterdir()) if where.is_dir() else []

    def walk(self, folder: str) -> Iterator[StoredFile]:
        for one in sorted((self.root / folder).rglob("*")):
            if one.is_file():
                stat = one.stat()
                yield StoredFile(str(one.relative_to(self.root)), stat.st_size, stat.st_mtime_ns // 1_000_000)

    def read_text(self, path: str) -> str:
        return (self.root / path).read_text()

    def write_text(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        for part in ("", text[: len(text) // 2], text):  # killed in the middle of writing, too
            self._change()
            (self.root / path).write_text(part)

    def rename(self, source: str, target: str) -> None:
        self._change()
        assert not (self.root / target).exists()
        (self.root / source).rename(self.root / target)

    def rename_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        for source, target in pairs:
            (self.root / target).parent.mkdir(parents=True, exist_ok=True)
            self.delete_all([target])
            self.rename(source, target)

    def delete_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._change()
            (self.root / path).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        self._change()
        shutil.rmtree(self.root / folder, ignore_errors=True)

    def sync_folders(self, folders: Iterable[str]) -> None:
        pass


def made(first: int, last: int, generation: int = 0, files: Iterable[str] = (), log: str = LOG) -> Manifest:
    """A manifest of files that hold nothing."""
    name = ManifestName(first, last, generation)
    return Manifest(
        name,
        log,
        "2026-01-01T00:00:00Z",
        (ArchivedSegment(first, last, 1_000, 7, 8),),
        (ArchivedRange("messages", first, last, RowChecksum(2, 3, 4)),),
        tuple(
            DataFile("messages", "q", "2026-01-01", f"messages/{name.stem}-{file}", 1, 2, first, last, 3, 4)
            for file in files
        ),
    )


def stage(store: LocalFolder, manifest: Manifest) -> list[str]:
    """What Spark has written: the files of the manifest, in the staging folder."""
    staged = [f"{STAGING}/{number}" for number in range(len(manifest.files))]
    for path, file in zip(staged, manifest.files, strict=True):
        (store.root / path).parent.mkdir(parents=True, exist_ok=True)
        (store.root / path).write_text(file.path)
    return staged


def data(store: LocalFolder) -> set[str]:
    """The files with rows that are at their place."""
    return {one.path for one in store.walk("") if not one.path.startswith(FOLDER)}


def named(store: LocalFolder) -> set[str]:
    """The files that a reader reads."""
    return {file.path for manifest in manifests(store) for file in manifest.files}


def test_a_manifest_is_read_as_it_was_written() -> None:
    """JSON and back; the name alone says range and generation."""
    manifest = made(1, 30, 2, ["a", "b"])
    assert load(manifest.name, dump(manifest), "here") == manifest
    assert parse_name(manifest.name.file) == manifest.name
    assert parse_name("00000000000000000001-00000000000000000030.json.pending") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', dump(made(1, 9))])
def test_a_manifest_that_is_not_one_is_named(text: str) -> None:
    """Half a file, another file, another range: an error that says which file it is and what to do."""
    with pytest.raises(ArchiveDamaged, match="here"):
        load(ManifestName(1, 8), text, "here")
    with pytest.raises(ArchiveDamaged, match=r"format 9.*newer"):
        load(ManifestName(1, 9), dump(made(1, 9)).replace('"format": 1', '"format": 9'), "here")


@pytest.mark.parametrize(
    ("names", "living"),
    [
        ([], []),
        ([(1, 9, 0), (10, 19, 0)], [(1, 9, 0), (10, 19, 0)]),
        ([(1, 9, 0), (10, 19, 0), (1, 19, 1)], [(1, 19, 1)]),
        ([(1, 9, 0), (1, 9, 1), (1, 9, 2), (10, 19, 0)], [(1, 9, 2), (10, 19, 0)]),
        ([(1, 9, 1), (10, 19, 1), (1, 19, 2), (20, 29, 0)], [(1, 19, 2), (20, 29, 0)]),
        ([(1, 19, 1), (20, 29, 0), (1, 29, 2)], [(1, 29, 2)]),
    ],
)
def test_a_later_generation_counts_instead_of_what_it_holds(
    names: list[tuple[int, int, int]], living: list[tuple[int, int, int]]
) -> None:
    """From the names alone: the newest manifest over a range, and all that no newer one holds."""
    for order in itertools.permutations(names):
        assert current(ManifestName(*one) for one in order) == [ManifestName(*one) for one in living]


def test_two_manifests_of_the_same_sequences_are_refused() -> None:
    """Rows would be read twice: that is no archive, and it is said."""
    with pytest.raises(ArchiveDamaged, match="both name sequences 5 to 9"):
        current([ManifestName(1, 9), ManifestName(5, 19)])


def test_gaps_are_what_no_range_has() -> None:
    """From sequence 1 on, between the ranges, and up to where the log begins; what the log still has is none."""
    assert gaps([], 1) == []
    assert gaps([], 5) == [MissingSequences(1, 4)]
    assert gaps([ManifestName(1, 9), ManifestName(10, 19)], 20) == []
    assert gaps([ManifestName(1, 9), ManifestName(10, 19)], 5) == []
    assert gaps([ManifestName(5, 9), ManifestName(20, 29)], 40) == [
        MissingSequences(1, 4),
        MissingSequences(10, 19),
        MissingSequences(30, 39),
    ]
    assert gaps([ManifestName(5, 9), ManifestName(20, 29)], 15) == [MissingSequences(1, 4), MissingSequences(10, 14)]


def test_logs_do_not_mix(tmp_path: Path) -> None:
    """Manifests of two logs in one folder are an error that names both."""
    store = LocalFolder(tmp_path)
    for one in (made(1, 9), made(10, 19, log="cd" * 16)):
        commit(store, one, [])
    with pytest.raises(ArchiveDamaged, match=LOG):
        manifests(store)


def test_killed_anywhere_a_commit_is_whole_or_nothing(tmp_path: Path) -> None:
    """Killed before each change that a commit makes, and again while the next run cleans: readers see the state before
    or the one after, and the run that gets through leaves each file once and nothing else."""
    kills = 0
    for dies in itertools.count(1):
        root = tmp_path / str(dies)
        store = LocalFolder(root, dies)
        before, after = made(1, 9, files=["a"]), made(10, 19, files=["b", "c", "d"])
        commit(LocalFolder(root), before, stage(store, before))
        try:
            commit(store, after, stage(store, after))
        except Killed:
            kills += 1
        else:
            break
        seen = manifests(LocalFolder(root))
        assert seen in ([before], [before, after])
        assert named(LocalFolder(root)) <= data(LocalFolder(root))
        for cleaning in itertools.count(1):
            try:
                clean(LocalFolder(root, cleaning))
            except Killed:
                assert manifests(LocalFolder(root)) == seen
            else:
                break
        assert data(LocalFolder(root)) == named(LocalFolder(root))
        if seen == [before]:
            commit(LocalFolder(root), after, stage(store, after))
        assert manifests(LocalFolder(root)) == [before, after]
        assert data(LocalFolder(root)) == named(LocalFolder(root))
    assert kills >= 10


def test_cleaning_never_takes_what_another_manifest_names(tmp_path: Path) -> None:
    """A compaction keeps large files where they are: killed before its commit, those stay."""
    store = LocalFolder(tmp_path)
    before = made(1, 9, files=["a", "b"])
    commit(store, before, stage(store, before))
    merged = made(1, 9, 1, ["c"])
    merged = merged._replace(files=(before.files[0], *merged.files))
    staged = stage(store, merged)
    with pytest.raises(Killed):
        commit(LocalFolder(tmp_path, 6), merged, ["", staged[1]])
    assert clean(store) == 1
    assert data(store) == {file.path for file in before.files} == named(store)


def test_what_was_replaced_stays_for_its_readers_and_goes_later(tmp_path: Path) -> None:
    """The files of a replaced manifest stay as long as is said since it was replaced, then go, but for those that the
    newer one names too. Killed in between, nothing that counts is missing and the next run finishes."""
    for dies in itertools.count(1):
        store = LocalFolder(tmp_path / str(dies))
        first, second = made(1, 9, files=["a", "b"]), made(10, 19, files=["c"])
        merged = made(1, 19, 1, ["d"])
        merged = merged._replace(files=(second.files[0], *merged.files))
        for one in (first, second):
            commit(store, one, stage(store, one))
        commit(store, merged, ["", *stage(store, merged)[1:]])
        replaced_ms = next(one.written_ms for one in store.walk(FOLDER) if merged.name.file in one.path)
        assert drop_replaced(store, replaced_ms + 59_999, 60.0) == (0, 0)
        assert len(data(store)) == 4
        try:
            drop_replaced(LocalFolder(store.root, dies), replaced_ms + 60_000, 60.0)
        except Killed:
            assert named(store) <= data(store)
            drop_replaced(store, replaced_ms + 60_000, 60.0)
        else:
            break
        assert data(store) == named(store) == {file.path for file in merged.files}
        assert [one for one in store.names(FOLDER) if one != "staging"] == [merged.name.file]


# -- what of a log is to be archived ----------------------------------------------------------------------------------


def log_of(*segments: tuple[int, int], uuid: str = LOG, crc: int = 8) -> LogSnapshot:
    """A log of these segments (first, last), all sealed but the last."""
    place = LogDirectory("/log")
    found = tuple(
        LogSegment(
            f"/log/{base:020d}.log", base, last, 1_000, number < len(segments), crc, last - base + 1, 0, 1, place
        )
        for number, (base, last) in enumerate(segments, 1)
    )
    return LogSnapshot(place, bytes.fromhex(uuid), segments[0][0], segments[-1][1], found)


def groups(log: LogSnapshot, *archive: Manifest, group_bytes: int = 1 << 30) -> list[tuple[int, int]]:
    return [group.name[:2] for group in plan(log, archive, group_bytes).groups]


def test_only_sealed_segments_that_the_archive_lacks() -> None:
    """In groups of about the size that is asked for, in order; never the segment that is written to."""
    log = log_of((1, 9), (10, 19), (20, 29), (30, 39), (40, 45))
    assert groups(log) == [(1, 39)]
    assert groups(log, group_bytes=2_000) == [(1, 19), (20, 39)]
    assert groups(log, made(1, 9)) == [(10, 39)]
    assert groups(log, made(10, 19)) == [(1, 9), (20, 39)], "a hole is filled while the log has it"
    assert groups(log_of((1, 5))) == []
    planned = plan(log, [made(10, 19)], 1 << 30)
    assert ([one.base for one in planned.known], planned.waiting, planned.gaps) == ([10], 1, ())


def test_what_neither_has_is_said() -> None:
    """Segments that retention dropped before they were archived: a gap, at the start or in the middle."""
    assert plan(log_of((30, 39), (40, 45)), [], 1 << 30).gaps == (MissingSequences(1, 29),)
    assert plan(log_of((30, 39), (40, 45)), [made(1, 9)], 1 << 30).gaps == (MissingSequences(10, 29),)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (log_of((1, 9), (10, 19), uuid="cd" * 16), "give each log"),
        (log_of((1, 9), (10, 19), crc=9), "sequences 1 to 9"),
        (log_of((1, 8), (9, 19)), "sequences 1 to 8"),
        (log_of((1, 7)), "sequences 1 to 7"),
        (log_of((5, 19), (20, 29)), "sequences 5 to 9"),
    ],
)
def test_another_log_and_another_past_are_refused(log: LogSnapshot, said: str) -> None:
    """The uuid of another log; or the same one whose storage was restored from a backup and went on differently."""
    with pytest.raises(AnotherLog, match=said):
        check_same(log, [made(1, 9)])


def test_a_log_that_ends_before_its_archive_is_another_past() -> None:
    """A backup older than the archive: the next messages would get sequences that the archive has already."""
    with pytest.raises(AnotherLog, match="sequences 20 to 29"):
        check_same(log_of((1, 9), (10, 19)), [made(1, 9), made(20, 29)])


def test_readers_take_the_log_from_the_first_segment_that_is_not_archived() -> None:
    """The border between both: nothing before it is missing in the archive, nothing behind it in the log."""
    log = log_of((1, 9), (10, 19), (20, 29), (30, 35))
    assert cut(log, []) == 0
    assert cut(log, [made(1, 9), made(10, 19)]) == 19
    assert cut(log, [made(1, 9), made(20, 29)]) == 9
    assert cut(log_of((20, 29), (30, 35)), [made(1, 9), made(10, 19)]) == 19


def test_whose_an_empty_archive_is(tmp_path: Path) -> None:
    """Wherever the first run is killed, the note is there whole or not at all, and the next run writes it; one that
    cannot be read is told, not taken for none."""
    for dies in range(1, 6):
        root = tmp_path / str(dies)
        try:
            begin(LocalFolder(root, dies), LOG)
        except Killed:
            assert owner(LocalFolder(root)) is None
            clean(LocalFolder(root))
            begin(LocalFolder(root), LOG)
        assert owner(LocalFolder(root)) == LOG
        assert manifests(LocalFolder(root)) == []
    (root / FOLDER / "log").write_text("")
    with pytest.raises(ArchiveDamaged, match="_syncbrok/log cannot be read"):
        owner(LocalFolder(root))
