"""The notes of what is archived of the log, as the nodes of a cluster have it: lines of the file ``archived`` beside
the segments of each (``log.segments.retention``), which stand in the stream as messages of the kind ``note``.

    a job, or the leader's own copying  -> leader: the stream, then its file  -> each follower: its file

A line says that the bytes of a sealed segment are somewhere else too. That is true on each node, whenever it is read.
So lines may come again and in any order. They are repeated behind each record that opens a segment, and by each new
leader: what a purge of the stream takes of them stands there once more, and a node that died between its append and its
file gets what it lacks.

A message without a line takes all of them back: for who has lost an archive. There the file of the leader goes first,
since a line that is missing costs another copy, and one too many costs the segment.
"""

import logging
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from syncbrok.cluster.stream_messages import StreamKind, StreamMessage
from syncbrok.log.segments import files, retention
from syncbrok.log.segments.retention import Copy
from syncbrok.log.segments.segment import segment_path
from syncbrok.model.errors import BadSetting, LogFull
from syncbrok.model.journal import Section

_log: Final = logging.getLogger(__name__)
_NAME: Final = re.compile(r"\d{20}\.log")


class ArchiveNotes:
    """The notes of the log in ``directory``. ``first_sequence``: what it begins with now. ``append`` puts a message
    into the stream and returns once it is stored; it is called by a leader only, and its errors come out of ``add``,
    ``forget`` and ``repeat``. ``make_room`` gives back what is kept for a full disk: a line lets segments go (RULES
    27); False where there is nothing. Each method may be called from any thread and blocks."""

    def __init__(
        self,
        directory: Path,
        first_sequence: Callable[[], int],
        append: Callable[[StreamMessage], object],
        make_room: Callable[[], bool],
    ) -> None:
        self._directory = directory
        self._first_sequence = first_sequence
        self._append = append
        self._make_room = make_room
        self._one = threading.Lock()
        """held from the look at the file to the append: a repetition must not overtake ``forget``"""

    def copies(self) -> list[Copy]:
        """The copies noted of segments that the log still has. Raises ``OSError``."""
        oldest = segment_path(Path(), self._first_sequence()).name
        return [one for one in dict.fromkeys(retention.copies(self._directory)) if one.name >= oldest]

    def add(self, copies: Iterable[Copy]) -> int:
        """Note these as the leader, once each; returns how many are new. On return they stand in the stream, and in the
        file here, fsynced. Raises ``LogFull`` or ``OSError`` where they may stand in the stream alone: asking again is
        safe."""
        with self._one:
            new = retention.not_noted(self._directory, copies)
            if new:
                self._append(archived_message(new))
                self._write(new)
            return len(new)

    def forget(self) -> None:
        """Take all back as the leader, here and then on the others. Raises ``OSError`` or ``LogFailed``; asking again
        is safe."""
        with self._one:
            retention.forget(self._directory)
            self._append(archived_message(()))

    def repeat(self) -> None:
        """Append once more, as the leader, all notes that the log still needs."""
        with self._one:
            try:
                copies = self.copies()
            except OSError as problem:  # the next segment does it
                _log.warning("syncbrok.cluster.archived_unread", extra={"detail": str(problem)})
                return
            if copies:
                self._append(archived_message(copies))

    def take(self, body: bytes) -> None:
        """Do, as a follower, as the message with this body says. Raises ``LogFull`` where there is no room, and
        ``OSError`` or ``LogFailed`` where lines cannot be taken back."""
        with self._one:
            if not body:
                retention.forget(self._directory)
                return
            try:
                told = retention.parse_lines(body.decode(errors="replace"))
                self._write(retention.not_noted(self._directory, told))
            except OSError as problem:
                # A file that its owner has taken from this user, say. What is missing keeps a segment and loses
                # nothing, and comes again.
                _log.error("syncbrok.cluster.archived_unwritten", extra={"detail": str(problem)})

    def _write(self, copies: Sequence[Copy]) -> None:
        if not copies:
            return
        try:
            retention.note(self._directory, copies)
        except OSError as problem:
            if problem.errno not in files.NO_ROOM:
                raise
            if not self._make_room():
                raise LogFull(f"no room to note what is archived: {problem}") from problem
            retention.note(self._directory, copies)


def archived_message(copies: Iterable[Copy]) -> StreamMessage:
    """The message of the stream that notes ``copies``; without one it takes all back."""
    return StreamMessage(StreamKind.NOTE, 0, "", "".join(f"{retention.line_of(one)}\n" for one in copies).encode())


def named_copies(lines: Iterable[str], sections: Sequence[Section]) -> list[Copy]:
    """The copies that a job asks the leader to note, as the ``lines`` say them; ``sections`` are those of the log. Of a
    segment that the log has no more nothing need be noted. Raises ``BadSetting`` for a line that is none of a job's, or
    of another log."""
    by_name = {segment_path(Path(), one.first).name: one for one in sections}
    oldest = min(by_name, default="")
    found: list[Copy] = []
    for line in lines:
        copy = retention.parse_line(line)
        if copy is None or not copy.place:
            raise BadSetting(f'expected "NAME BYTES CRC pipeline PLACE", as in the file archived, not {line[:100]!r}')
        section = by_name.get(copy.name)
        if section is None and _NAME.fullmatch(copy.name) and copy.name < oldest:
            continue
        if section is None or not section.sealed or section.bytes != copy.size:
            what = f"there is no sealed segment {copy.name[:40]!r} of {copy.size} bytes here"
            raise BadSetting(f"{what}: is it of another log, or still written to?")
        found.append(copy)
    return found
