"""A checkpoint is believed only about the log it was made of."""

from collections.abc import Callable
from pathlib import Path

from syncbrok.log import checkpoint

UUID = bytes(range(16))
PARTS = {"scheduler": b"state" * 1_000, "queues": b"", "a-name-of-thirty-two-characters-": b"\0\xff"}


def crc_of(known: dict[int, int]) -> Callable[[int], int | None]:
    return known.get


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    """Parts come back byte for byte, with the sequence they are applied through."""
    assert checkpoint.load(tmp_path, UUID, crc_of({})) is None
    checkpoint.save(tmp_path, UUID, 7, 0xABCD, PARTS)
    assert checkpoint.load(tmp_path, UUID, crc_of({7: 0xABCD})) == (7, PARTS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]


def test_refused_where_the_log_differs(tmp_path: Path) -> None:
    """DESIGN 4: another log, another record of that sequence, or no such record: the log is replayed instead."""
    checkpoint.save(tmp_path, UUID, 7, 0xABCD, PARTS)
    assert checkpoint.load(tmp_path, UUID, crc_of({7: 0xABCE})) is None
    assert checkpoint.load(tmp_path, UUID, crc_of({8: 0xABCD})) is None
    assert checkpoint.load(tmp_path, bytes(16), crc_of({7: 0xABCD})) is None


def test_the_one_before_is_kept(tmp_path: Path) -> None:
    """Where the newest names a record that was cut away as a torn tail, the one before it serves."""
    for through in (5, 6, 7):
        checkpoint.save(tmp_path, UUID, through, through, {"n": b"%d" % through})
    assert checkpoint.load(tmp_path, UUID, crc_of({5: 5, 6: 6, 7: 7})) == (7, {"n": b"7"})
    assert checkpoint.load(tmp_path, UUID, crc_of({5: 5, 6: 6})) == (6, {"n": b"6"})
    assert checkpoint.load(tmp_path, UUID, crc_of({5: 5})) is None


def test_a_save_cut_short_changes_nothing(tmp_path: Path) -> None:
    """Whatever a crash leaves of a save, the checkpoints before it stand."""
    checkpoint.save(tmp_path, UUID, 5, 5, PARTS)
    (tmp_path / "checkpoint.tmp").write_bytes(b"half")
    assert checkpoint.load(tmp_path, UUID, crc_of({5: 5})) == (5, PARTS)
    (tmp_path / "checkpoint").rename(tmp_path / "checkpoint.before")
    assert checkpoint.load(tmp_path, UUID, crc_of({5: 5})) == (5, PARTS)
    checkpoint.save(tmp_path, UUID, 6, 6, PARTS)
    assert checkpoint.load(tmp_path, UUID, crc_of({5: 5})) == (5, PARTS)


def test_every_byte_counts(tmp_path: Path) -> None:
    """A checkpoint with any byte changed or missing is ignored, never half believed."""
    checkpoint.save(tmp_path, UUID, 7, 7, {"one": b"12345", "two": b"678"})
    path = tmp_path / "checkpoint"
    good = path.read_bytes()
    for place in range(len(good)):
        for bad in (good[:place], good[:place] + bytes([good[place] ^ 0x40]) + good[place + 1 :]):
            path.write_bytes(bad)
            assert checkpoint.load(tmp_path, UUID, lambda _: 7) is None
    path.write_bytes(good + b"\0")
    assert checkpoint.load(tmp_path, UUID, lambda _: 7) is None
