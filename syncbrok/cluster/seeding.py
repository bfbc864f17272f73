"""Puts a log that there is, in its directory, into a stream: what a single node has written goes on as a cluster, and
an engine that has lost its stream gets it back. The directory is only read, under its lock.

What goes into the stream is what a node would have appended: a message for each batch and each record that opens a
segment, byte for byte, without the seals, which each node makes. So the files of any node are the same again. The
secrets follow the birth, and each segment's beginning. What of it is archived stands behind the birth alone: whoever
leads first has read that, and says it again.

The birth says with which record the log that is put in ends: no node leads before it has read that far. Who is stopped
in between begins again, and goes on where the stream ends.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np

from syncbrok.cluster.archive_notes import archived_message
from syncbrok.cluster.birth import give_birth
from syncbrok.cluster.engine import Engine, EngineUnfit, Fate
from syncbrok.cluster.stream_messages import AppendNames, StreamKind, StreamMessage, log_name, pieces_of
from syncbrok.log.format.codec import Kind, gather, walk_verified
from syncbrok.log.offline import verify as checks
from syncbrok.log.reading.copies import read_copy
from syncbrok.log.recovery.recovery import scan_segment
from syncbrok.log.recovery.recovery_table import Verdict, evaluate_signs
from syncbrok.log.segments import segment, watermark
from syncbrok.log.segments.directory_lock import DirectoryLock
from syncbrok.log.segments.retention import Copy, copies
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES
from syncbrok.model import limits
from syncbrok.model.errors import LogCorrupt, LogDiverged
from syncbrok.model.journal import LogIdentity

_WINDOW: Final = 32
"""so many appends are out at a time: each names the message before it, so they stand in the stream in order"""
_WINDOW_BYTES: Final = 8 * limits.MIB
_TRY_S: Final = 10.0
_PATIENCE_S: Final = 60.0
_BYTES: Final = (StreamKind.BATCH, StreamKind.ROLL)


class Unseedable(LogDiverged):
    """A log that cannot be the beginning of a stream as it stands; the text says what to do."""

    slug = "unseedable"


class SeedProgress(NamedTuple):
    """``sequence``: the last record of the log that is in the stream."""

    sequence: int
    done_bytes: int


class SeedLog:
    """A log in its directory, which nobody changes meanwhile. Made by ``open``; ``close`` it."""

    def __init__(self, directory: Path, lock: DirectoryLock) -> None:
        self.directory = directory
        self._lock = lock
        mark = watermark.read(directory)
        oldest = mark.oldest if mark else 0
        bases = [base for base in segment.segment_bases(directory) if base >= oldest]
        if not bases:
            raise Unseedable(f"there is no log in {directory}")
        self._paths = [segment.segment_path(directory, base) for base in bases]
        self._durable = mark.durable if mark else 0
        header = segment.read_segment_header(self._paths[-1])
        self.identity = LogIdentity(header.uuid, header.id_key)
        self.bytes = sum(path.stat().st_size for path in self._paths)
        self._end, self.last = self._find_end(header)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Take the lock and find where the log ends. Raises ``LogLocked``, ``LogCorrupt``, ``OSError``, and
        ``Unseedable``."""
        if not directory.is_dir() or not segment.segment_bases(directory):
            raise Unseedable(f"there is no log in {directory}")
        lock = DirectoryLock(directory)
        try:
            return cls(directory, lock)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def secrets(self) -> bytes:
        """The file of secrets; empty where there is none. Raises ``OSError``."""
        try:
            return (self.directory / "secrets.json").read_bytes()
        except FileNotFoundError:
            return b""

    def archived(self) -> list[Copy]:
        """The copies that are noted of it. Raises ``OSError``."""
        names = {path.name for path in self._paths}
        return [one for one in dict.fromkeys(copies(self.directory)) if one.name in names]

    def verify(self, progress: Callable[[int, int], None]) -> None:
        """Check every byte, and that other nodes will take each batch. ``progress`` is told bytes done and bytes in
        all. Raises ``LogCorrupt``, ``Unseedable`` and ``OSError``."""
        for met in checks.verify(self.directory):
            if isinstance(met, checks.Progress):
                progress(met.done_bytes, met.total_bytes)
            elif not met.harmless:
                what = f"{met.file} at {met.offset}, sequence {met.sequence}: {met.what}"
                raise LogCorrupt(f"{what}; syncbrok log verify names all that is damaged")
        following, opening, written = 0, None, 0
        for message in self.messages():
            try:
                batch, _ = read_copy(message.body, following, opening, written)
            except LogDiverged as refused:
                what = f"{refused.detail}: a log that salvage has put together, say"
                raise Unseedable(f"{what}. Its last messages can be published again into a new one") from refused
            following, written = message.last + 1, batch.number
            opening = message.last + 2  # the seal's is between

    def messages(self, after: int = 0) -> Iterator[StreamMessage]:
        """The batches that end after this record of the log, in order. Raises ``LogCorrupt`` and ``OSError``."""
        bases = [int(path.stem) for path in self._paths]
        for at, path in enumerate(self._paths):
            is_last = path is self._paths[-1]
            if is_last or bases[at + 1] - 2 > after:
                for message in self._batches(path, self._end if is_last else None):
                    if message.last > after:
                        yield message

    def _batches(self, path: Path, end: int | None) -> Iterator[StreamMessage]:
        data = segment.read_segment(path, 0, end)
        offsets, stopped = walk_verified(data, SEGMENT_HEADER_BYTES, len(data))
        if stopped != len(data):
            raise segment.corrupt_error(path, stopped, 0, None, "a record is damaged")
        heads = gather(data, offsets)
        sequences, numbers, kinds = (heads[name].astype(np.int64) for name in ("sequence", "batch", "kind"))
        records = len(offsets) - (kinds[-1] == Kind.SEGMENT_SEALED)
        begins = np.flatnonzero(np.diff(numbers[:records], prepend=-1))
        ends = [*begins[1:].tolist(), records]
        places = [*offsets.tolist(), len(data)]
        for begin, stop in zip(begins.tolist(), ends, strict=True):
            kind = StreamKind.ROLL if kinds[begin] == Kind.SEGMENT_OPENED else StreamKind.BATCH
            body = data[places[begin] : places[stop]]
            first, last = int(sequences[begin]), int(sequences[stop - 1])
            yield StreamMessage(kind, 0, "", body, first=first, last=last, batch=int(numbers[begin]))

    def _find_end(self, header: segment.SegmentHeader) -> tuple[int, int]:
        """Where the log ends in its last segment, and with which record: as the next start would have it, which cuts
        off a write that was under way."""
        path = self._paths[-1]
        scan = scan_segment(segment.read_segment(path), header, self._durable, last=True)
        row = evaluate_signs(scan.signs)
        if row.verdict is Verdict.CORRUPT:
            raise segment.corrupt_error(path, scan.bad, scan.last + 1, None, f"{row.why} ({scan.problem})")
        if row.verdict is Verdict.SEALED:
            # Only where the disk was full at the roll. A node could not tell whether its stream has lost its end.
            what = f"the log in {self.directory} ends with a sealed segment"
            raise Unseedable(f"{what}: start a broker on it and stop it, which begins the next one")
        return scan.end, scan.last


def seed(
    engine: Engine,
    log: SeedLog,
    seal: Callable[[bytes], bytes],
    generation: int,
    run_name: str,
    progress: Callable[[SeedProgress], None],
) -> None:
    """Make the stream and put ``log`` into it, or the rest of it where that was begun before. ``seal`` seals the
    secrets; ``run_name`` names this run and no other. Raises ``EngineUnfit`` where the stream holds something else, or
    a node has begun to write to it; ``OSError`` where the engine does not answer; and what reading the log raises."""
    names = AppendNames("init", run_name)
    done = _begun(engine, log, generation)
    if done is None:
        give_birth(engine, log.identity, generation, names.next(), log.last)
        done = 0
    state = engine.state()
    writer = _Writer(engine, state.last)
    secrets = log.secrets()
    sealed = StreamMessage(StreamKind.VAULT, 0, "", seal(secrets)) if secrets else None
    if sealed is not None:
        writer.add(pieces_of(sealed, names))
    archived = log.archived()
    if archived:
        writer.add(pieces_of(archived_message(archived), names))
    bytes_done = 0
    for message in log.messages(done):
        if message.kind is StreamKind.ROLL:
            message = message._replace(log=log_name(log.identity), generation=generation)
        writer.add(pieces_of(message, names))
        if message.kind is StreamKind.ROLL and sealed is not None:
            writer.add(pieces_of(sealed, names))
        bytes_done += len(message.body)
        progress(SeedProgress(message.last, bytes_done))
    writer.flush()


def _begun(engine: Engine, log: SeedLog, generation: int) -> int | None:
    """The last record of the log that an earlier run has put into the stream; None where it has not begun. Raises
    ``EngineUnfit`` where the stream holds anything else."""
    state = engine.stream_state()
    if state is None or state.last == 0:
        return None
    birth = engine.from_leader(1)
    wanted = (StreamKind.BIRTH, log_name(log.identity), generation, log.last)
    if birth is None or (birth.kind, birth.log, birth.generation, birth.last) != wanted:
        raise EngineUnfit(f"the stream {engine.stream} holds another log already: nothing was changed")
    at = state.last
    while at > 1:
        found = engine.from_leader(at)
        if found is None or found.kind not in (*_BYTES, StreamKind.VAULT, StreamKind.NOTE):
            raise EngineUnfit(f"the stream {engine.stream} is written to by a node already: nothing was changed")
        if found.kind in _BYTES and found.last:
            return found.last
        at -= 1
    return 0


class _Writer:
    """Appends in windows, behind the message ``last`` of the stream."""

    def __init__(self, engine: Engine, last: int) -> None:
        self._engine = engine
        self._last = last
        self._window: list[StreamMessage] = []
        self._bytes = 0

    def add(self, messages: Sequence[StreamMessage]) -> None:
        for message in messages:
            self._window.append(message)
            self._bytes += len(message.body)
            if len(self._window) >= _WINDOW or self._bytes >= _WINDOW_BYTES:
                self.flush()

    def flush(self) -> None:
        """Returns once all are stored. What is not known to be is asked for, and appended again where it is not. Raises
        ``OSError`` after a minute without an answer."""
        silent_since_s = time.monotonic()
        while self._window:
            fates = self._engine.try_append_many(self._window, self._last, _TRY_S)
            self._took(next((at for at, fate in enumerate(fates) if fate is not Fate.STORED), len(fates)))
            try:
                while self._window and (found := self._engine.from_leader(self._last + 1)) is not None:
                    if found.n != self._window[0].n:
                        what = f"message {self._last + 1} of the stream {self._engine.stream} is another's"
                        raise EngineUnfit(f"{what}: a node writes to it; stop all nodes")
                    self._took(1)
                silent_since_s = time.monotonic()
            except OSError:
                if time.monotonic() - silent_since_s > _PATIENCE_S:
                    raise
        self._bytes = 0

    def _took(self, count: int) -> None:
        del self._window[:count]
        self._last += count
