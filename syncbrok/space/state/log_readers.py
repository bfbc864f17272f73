"""The named readers of the log: programs that read it over the network and say how far they have come. Pure.

A reader may ask that retention keeps what it has not read. It is kept while the reader is heard of, and for so long
after that: a job that nobody runs any more must not fill the disk. What the broker was down counts as heard.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from syncbrok.model import limits
from syncbrok.model.errors import Conflict, UnknownReader

_VERSION: Final = 1


class LogReader(NamedTuple):
    """A named reader. ``sequence``: through where it has read, 0 for nothing; ``hold``: it asks that retention keeps
    the rest; ``heard_us``: when it spoke last."""

    name: str
    sequence: int
    hold: bool
    heard_us: int


class LogReaderTable:
    """The readers of one log. ``hold_us``: so long after it was heard a reader holds; ``opened_us``: since when the
    broker could hear."""

    def __init__(self, readers: Iterable[LogReader], hold_us: int, opened_us: int) -> None:
        self._readers = {one.name: one for one in readers}
        self._hold_us = hold_us
        self._since_us = dict.fromkeys(self._readers, opened_us)

    def __repr__(self) -> str:
        return f"<LogReaderTable of {len(self._readers)}>"

    @property
    def readers(self) -> list[LogReader]:
        """All of them, by name."""
        return [self._readers[name] for name in sorted(self._readers)]

    def get(self, name: str) -> LogReader | None:
        """The reader of this name."""
        return self._readers.get(name)

    def put(self, reader: LogReader) -> None:
        """Take in what a reader says. Raises ``Conflict`` where it is new and there are as many as may be."""
        if reader.name not in self._readers and len(self._readers) >= (most := limits.log_readers_max):
            what = f"there are {most} readers, as many as may be; delete some first (syncbrok readers list)"
            raise Conflict(what, readers_max=most)
        self._readers[reader.name] = reader
        self._since_us[reader.name] = reader.heard_us

    def remove(self, name: str) -> LogReader:
        """Forget a reader; what it was. Raises ``UnknownReader``."""
        if name not in self._readers:
            raise UnknownReader(f"there is no reader {name[:80]!r}", reader=name[:80])
        self._since_us.pop(name)
        return self._readers.pop(name)

    def is_holding(self, reader: LogReader, now_us: int) -> bool:
        """Whether retention keeps what this reader has not read."""
        return reader.hold and now_us - self._since_us[reader.name] < self._hold_us

    def held_after(self, now_us: int) -> int | None:
        """The sequence behind which retention keeps everything; None where no reader holds it."""
        return min((one.sequence for one in self._readers.values() if self.is_holding(one, now_us)), default=None)


def encode(readers: Iterable[LogReader]) -> bytes:
    """The file of these readers: a line of JSON, and its CRC-32C."""
    said = json.dumps({"version": _VERSION, "readers": [one._asdict() for one in readers]}).encode()
    return b"%b\n%08x\n" % (said, crc32c(said))


def decode(data: bytes) -> list[LogReader]:
    """The readers that ``encode`` was given. Raises ``ValueError`` saying what is wrong."""
    said, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % crc32c(said):
        raise ValueError("its checksum does not fit")
    try:
        return [_reader(one) for one in json.loads(said)["readers"]]
    except (KeyError, TypeError, ValueError) as problem:
        raise ValueError("it is not as Syncbrok writes it") from problem


def _reader(said: dict[str, Any]) -> LogReader:
    return LogReader(str(said["name"]), int(said["sequence"]), bool(said["hold"]), int(said["heard_us"]))
