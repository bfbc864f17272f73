"""What a bad disk leaves of a segment is mended only where nothing acknowledged can be lost.

Broken by hand to see these fail: ``synced_through`` ignored in ``_synced_behind``; the watermark ignored in
``scan_segment``; a record's checksum not compared; rows of the table swapped.
"""

import itertools
from bisect import bisect_right

from crc32c import crc32c

from syncbrok.log.format import codec
from syncbrok.log.format.codec import Corrupt
from syncbrok.log.format.records import SegmentOpened
from syncbrok.log.recovery.recovery import scan_segment
from syncbrok.log.recovery.recovery_table import ROWS, Signs, Verdict, VerdictRow, evaluate_signs, fits, possible
from syncbrok.log.segments import segment
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, SegmentHeader
from syncbrok.model.facts import Fact
from tests.support.log.journals import START_US, message

KEY = bytes(range(16))
UUID = bytes(range(16, 32))
HEADER = SegmentHeader(UUID, KEY, 1, START_US)


class Golden:
    """The bytes of an unsealed segment: records in batches of four; ``ends`` are where its records end."""

    def __init__(self, records: int = 64, *, always: bool = True, room_bytes: int = 64) -> None:
        self.facts: list[Fact] = [SegmentOpened(1, START_US, (), (), (), ())]
        self.facts += [message(KEY, sequence, content=b"%04d" % sequence) for sequence in range(2, records + 1)]
        data = segment.pack_segment_header(HEADER)
        self.ends: list[int] = []
        for first in range(0, records, 4):
            batch = self.facts[first : first + 4]
            synced = first if always else 0
            encoded = codec.encode_batch(batch, batch=first // 4 + 1, synced_through=synced)
            self.ends += [len(data) + end for end in encoded.ends]
            data += encoded.data
        self.data = data + bytes(room_bytes)

    def record_at(self, offset: int) -> int:
        """The sequence of the record that a byte belongs to; that of the next one for the room behind all of them."""
        return bisect_right(self.ends, offset) + 1


# -- the table ---------------------------------------------------------------------------------------------------------


def test_every_combination_of_signs_has_one_row() -> None:
    """STYLE anchor E: whatever recovery may see, one row of the table, and only one, says what it means."""
    seen: set[VerdictRow] = set()
    for values in itertools.product((True, False), repeat=len(Signs._fields)):
        signs = Signs(*values)
        rows = [row for row in ROWS if fits(row, signs)]
        if possible(signs):
            assert len(rows) == 1, f"{signs}: {[row.name for row in rows]}"
            assert evaluate_signs(signs) is rows[0]
            seen.update(rows)
    assert seen == set(ROWS), "no row is there for nothing"


def test_only_the_last_segment_is_ever_cut() -> None:
    """Nothing is cut that the watermark, a seal or a later batch vouches for."""
    for values in itertools.product((True, False), repeat=len(Signs._fields)):
        signs = Signs(*values)
        if possible(signs) and evaluate_signs(signs).verdict is Verdict.TORN:
            assert signs.last
            assert not signs.sealed
            assert not signs.vouched
            assert not signs.covered


# -- every bit and every length ----------------------------------------------------------------------------------------


def test_every_flipped_bit_is_judged_rightly() -> None:
    """Of all flips of one bit none in the middle of the log is called torn,
    and what is kept is always a prefix of what was written, to the end of a unit."""
    golden = Golden(32)  # 28 thousand flips; with 64 records they are 60 thousand, and found the same
    data = bytearray(golden.data)
    torn = 0
    for offset in range(SEGMENT_HEADER_BYTES, len(data)):
        sequence = golden.record_at(offset)
        for bit in range(8):
            data[offset] ^= 1 << bit
            scan = scan_segment(bytes(data), HEADER, 0, last=True)
            data[offset] ^= 1 << bit
            verdict = evaluate_signs(scan.signs).verdict
            in_last_batch = sequence > 28
            assert verdict is (Verdict.TORN if in_last_batch else Verdict.CORRUPT), f"byte {offset}, bit {bit}"
            assert scan.last == sequence - 1
            assert scan.end == (golden.ends[scan.last - 1] if scan.last else SEGMENT_HEADER_BYTES)
            torn += in_last_batch
    assert torn > 0


def test_no_flip_below_the_watermark_is_called_torn() -> None:
    """The last batch alone is ambiguous; the watermark settles it."""
    golden = Golden()
    data = bytearray(golden.data)
    for offset in range(golden.ends[59], golden.ends[63]):
        data[offset] ^= 0x10
        scan = scan_segment(bytes(data), HEADER, 64, last=True)
        data[offset] ^= 0x10
        assert evaluate_signs(scan.signs).verdict is Verdict.CORRUPT, f"byte {offset}"


def test_every_truncation_keeps_a_prefix_or_is_refused() -> None:
    """Cut at any byte, with and without zeros behind, a log is a whole prefix; below the watermark it
    is refused."""
    golden = Golden(24)
    for length, room in itertools.product(range(SEGMENT_HEADER_BYTES, golden.ends[-1] + 1), (0, 200)):
        data = golden.data[:length] + bytes(room)
        scan = scan_segment(data, HEADER, 1, last=True)
        whole = sum(end <= length for end in golden.ends)
        if whole and scan.end < length and not any(golden.data[scan.end : length]):
            continue  # what was cut off began with zeros: nothing tells it from room
        verdict = evaluate_signs(scan.signs).verdict
        assert scan.last == whole
        if whole == 0:
            assert verdict is Verdict.CORRUPT  # the snapshot was on the disk before the file had its name
        elif length in golden.ends:
            assert verdict is Verdict.CLEAN
        else:
            assert verdict is Verdict.TORN
        vouched = evaluate_signs(scan_segment(data, HEADER, whole + 1, last=True).signs).verdict
        assert vouched is Verdict.CORRUPT, f"{length} bytes: acknowledged records are gone"


def test_every_flipped_bit_of_the_header_refuses_the_segment() -> None:
    """The header tells whose log it is; a damaged one is never believed."""
    header = segment.pack_segment_header(HEADER)
    for bit in range(len(header) * 8):
        damaged = bytearray(header)
        damaged[bit // 8] ^= 1 << bit % 8
        assert isinstance(segment.unpack_segment_header(damaged), Corrupt), f"bit {bit}"


def test_a_hole_in_the_last_batches_is_torn_where_nothing_was_synced() -> None:
    """With ``interval`` a disk may have written a later batch and not an earlier one: legal (etcd #6378)."""
    golden = Golden(always=False)
    data = bytearray(golden.data)
    data[golden.ends[9] + 5] ^= 1
    assert evaluate_signs(scan_segment(bytes(data), HEADER, 10, last=True).signs).name == "TORN"
    assert evaluate_signs(scan_segment(bytes(data), HEADER, 11, last=True).signs).name == "LOST_RECORD"


def test_what_a_later_version_wrote_is_refused_and_never_cut() -> None:
    """A whole record of another version is no write that was cut short, however much of the log the watermark knows:
    going back to this version would lose what was answered 201. One whose body is not whole is torn like any other."""
    golden = Golden(24)
    for first in range(1, 24):  # records from this one on are of version 3
        data = bytearray(golden.data)
        for start, end in itertools.pairwise(golden.ends[first - 1 :]):
            data[start + 4] = 3
            data[start + 88 : start + 92] = crc32c(data[start : start + 88]).to_bytes(4, "little")
            assert b"%04d" % (golden.record_at(start)) in data[start:end]
        scan = scan_segment(bytes(data), HEADER, 1, last=True)
        assert evaluate_signs(scan.signs).name == "LATER"
        assert scan.last == first
        assert "a record of version 3, this program reads versions 1 to 2; a later version of Syncbrok" in scan.problem
    data[golden.ends[-1] - 1] ^= 1
    assert evaluate_signs(scan_segment(bytes(data), HEADER, 1, last=True).signs).name == "TORN"


def test_zeros_in_the_middle_are_damage() -> None:
    """A hole of zeros with acknowledged records behind it is corruption, not the end."""
    golden = Golden()
    data = bytearray(golden.data)
    data[golden.ends[9] : golden.ends[20]] = bytes(golden.ends[20] - golden.ends[9])
    assert evaluate_signs(scan_segment(bytes(data), HEADER, 0, last=True).signs).name == "BEFORE_VALID"


def test_a_record_inside_a_torn_message_says_nothing() -> None:
    """A message may contain a piece of a log; where its own header is whole its content is passed over."""
    inner = codec.encode(message(KEY, 99), batch=99, synced_through=98)
    outer = codec.encode(message(KEY, 3, content=inner), batch=2, synced_through=2)
    before = codec.encode(SegmentOpened(1, START_US, (), (), (), ())) + codec.encode(message(KEY, 2), batch=1)
    torn = outer[:-1] + b"\xff"
    data = segment.pack_segment_header(HEADER) + before + torn + bytes(100)
    assert evaluate_signs(scan_segment(data, HEADER, 0, last=True).signs).name == "TORN"
