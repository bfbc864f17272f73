"""The named readers of the log as a table, and as a file (``space/state/log_readers.py``)."""

import pytest

from syncbrok.model import limits
from syncbrok.model.errors import Conflict, UnknownReader
from syncbrok.space.state.log_readers import LogReader, LogReaderTable, decode, encode

S = 1_000_000
ONE = LogReader("warehouse", 7, hold=True, heard_us=50 * S)


def test_what_was_written_is_read_and_nothing_else() -> None:
    """A file with any byte changed, or cut short, is refused: a sequence that is wrong would let go what is unread."""
    readers = [ONE, LogReader("é-1", 0, hold=False, heard_us=0)]
    whole = encode(readers)
    assert decode(whole) == readers
    assert decode(encode([])) == []
    for at in range(len(whole)):
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        for wrong in (flipped, whole[:at]):
            with pytest.raises(ValueError, match=r"checksum|as Syncbrok writes it"):
                decode(wrong)


def test_the_slowest_that_holds_is_waited_for_and_for_so_long_only() -> None:
    """RULES 38: retention keeps what is behind the slowest reader that asks for it. One that is silent for too long
    holds nothing until it speaks again; the time in which the broker was down is no silence."""
    table = LogReaderTable([ONE._replace(heard_us=1)], hold_us=10 * S, opened_us=100 * S)
    table.put(LogReader("slow", 3, hold=False, heard_us=100 * S))
    assert table.held_after(109 * S) == 7, "heard at 1 us, and down since"
    assert table.held_after(110 * S) is None
    table.put(LogReader("slow", 3, hold=True, heard_us=110 * S))
    table.put(ONE._replace(heard_us=111 * S))
    assert table.held_after(112 * S) == 3
    assert table.held_after(120 * S) == 7, "the slow one was silent for ten seconds"
    assert [one.name for one in table.readers] == ["slow", "warehouse"]


def test_there_are_so_many_and_no_more() -> None:
    """RULES 38: a new one is refused where there are as many as may be; one that is known goes on, and one that goes
    makes room."""
    table = LogReaderTable([], hold_us=S, opened_us=0)
    for number in range(limits.log_readers_max):
        table.put(LogReader(f"r{number}", 0, hold=False, heard_us=0))
    with pytest.raises(Conflict, match=r"64 readers, as many as may be"):
        table.put(ONE)
    table.put(LogReader("r0", 5, hold=False, heard_us=0))
    assert table.remove("r1").name == "r1"
    table.put(ONE)
    with pytest.raises(UnknownReader, match="no reader 'r1'"):
        table.remove("r1")
