"""Puts a node's files right before its log is opened: segments that are missing, cut or unreadable, and those that the
stream has forgotten while the node was away, come from its peers.

    the stream   ................ [S .. end]      what the engine still holds begins with the roll S
    a peer       [O .. ) ... [ .. S-1] [S ..      sealed segments; the log begins with O by now
    here         [... gap ...] [ .. open          gaps, and an end before S

A node that lacks nothing asks nobody. Of a copy everything is verified: length, header, log, seal, checksum. The open
segment here must be the beginning of its sealed copy: if it is not, the replicas differ and nothing is changed. What
stood before O is dropped, as retention has done elsewhere.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from syncbrok.cluster.membership import NodeReport
from syncbrok.cluster.peers import PeerSegments
from syncbrok.log.recovery import gaps
from syncbrok.log.recovery.gaps import LogEnds, Span
from syncbrok.log.segments import files
from syncbrok.log.segments.directory_lock import DirectoryLock
from syncbrok.log.segments.sealed_segments import SealedSegment, begins_with, check_copy
from syncbrok.log.segments.segment import SegmentHeader, segment_path
from syncbrok.model.errors import LogCorrupt, LogDiverged
from syncbrok.model.journal import LogIdentity

_log = logging.getLogger(__name__)
_TOLD_MAX: Final = 4


class Holders(Protocol):
    """The questions to the peers that stand here (``peers.Peers``)."""

    def ask(self) -> list[PeerSegments]: ...

    def fetch(self, node: NodeReport, wanted: SealedSegment, path: Path) -> None: ...


class Lack(NamedTuple):
    """A part of the log that a node still lacks. ``peers``: those that were asked. ``fatal``: the log cannot go on
    without it; else it is damage, and the rules of damage say what a start makes of it."""

    spans: tuple[Span, ...]
    peers: tuple[PeerSegments, ...]
    fatal: bool

    def describe(self) -> str:
        """In words."""
        spans = ", ".join(f"{one.first} to {one.last}" for one in self.spans[:_TOLD_MAX])
        more = f" and {len(self.spans) - _TOLD_MAX} more spans" if len(self.spans) > _TOLD_MAX else ""
        asked = "; ".join(one.describe() for one in self.peers) or "no other node was heard"
        return f"this node lacks the records {spans}{more} of the log, and no peer has them: {asked}"


class Held(NamedTuple):
    """The segments that the peers hold together. ``oldest``: the log begins with this record by now, as one says that
    has it open; 0 where nobody does."""

    by_first: Mapping[int, SealedSegment]
    oldest: int

    def within(self, span: Span) -> list[SealedSegment] | None:
        """The segments that fill ``span`` but for what has been dropped elsewhere; None where some are missing. Raises
        ``LogDiverged`` where theirs begin elsewhere than those here."""
        found: list[SealedSegment] = []
        at = max(span.first, self.oldest)
        while at <= span.last:
            one = self.by_first.get(at)
            if one is None:
                return None
            if one.last > span.last:
                what = (
                    f"their segment {one.first} to {one.last} does not fit where {span.first} to {span.last} is missing"
                )
                raise LogDiverged(f"the replicas differ: {what} here. Nothing was changed")
            found.append(one)
            at = one.last + 1
        return found


def held_by(peers: Sequence[PeerSegments]) -> Held:
    """Where two tell otherwise of the same place the first one counts: the leader."""
    by_first: dict[int, SealedSegment] = {}
    for peer in peers:
        for one in peer.segments:
            by_first.setdefault(one.first, one)
    return Held(by_first, max((peer.node.first for peer in peers), default=0))


class Healing:
    """``directory`` holds the log of this ``identity``, or nothing. ``now_us``: the wall clock. ``stream_is_cut``: the
    stream is purged although what it forgets is still part of the log (``keep`` is a size)."""

    def __init__(
        self,
        directory: Path,
        identity: LogIdentity,
        peers: Holders,
        now_us: Callable[[], int],
        *,
        stream_is_cut: bool,
    ) -> None:
        self._stream_is_cut = stream_is_cut
        self._directory = directory
        self._identity = identity
        self._peers = peers
        self._now_us = now_us

    def heal(self, beginning: int) -> Lack | None:
        """Fetch what is missing. ``beginning``: the first record that the stream holds, which opens a segment; 0 where
        it holds none. What is still missing; None where nothing is. Raises ``LogDiverged`` where what is here is not
        what the peers have, ``LogLocked``, ``LogCorrupt``, ``LogFull``, ``LogFailed`` and ``OSError``."""
        with DirectoryLock(self._directory):
            ends = gaps.find_ends(self._directory)
            behind = self._behind(ends, beginning)
            spans = (*ends.gaps, *([behind] if behind else ()))
            if not spans:
                return None
            peers = self._peers.ask()
            held = held_by(peers)
            if not behind:  # what is dropped elsewhere and not yet here the stream says
                held = held._replace(oldest=min(held.oldest, ends.last_base))
            if behind and self._begins_with(beginning, held):
                gaps.leave(self._directory, self._now_us())
                return None
            fatal = behind is not None
            for span in spans:
                wanted = held.within(span) if held.oldest or span.first > 1 else None
                if wanted is None or not all(self._fetch(one, peers, ends) for one in wanted):
                    return Lack(spans, tuple(peers), fatal)
            self._finish(ends, held, spans, behind)
            return None

    def refetch(self, first: int) -> bool:
        """Fetch the segment that begins with ``first`` again, which cannot be read here; whether a peer had it. Raises
        as ``heal``."""
        with DirectoryLock(self._directory):
            return self.fetch_again(first)

    def fetch_again(self, first: int) -> bool:
        """As ``refetch``, of a log that this process has open; it is to look at the segment again then."""
        peers = self._peers.ask()
        found = next((one for peer in peers for one in peer.segments if one.first == first), None)
        return found is not None and self._fetch(found, peers, None)

    def _behind(self, ends: LogEnds, beginning: int) -> Span | None:
        """The records that are missing between the end of the files and the beginning of the stream: from the open
        segment on, whose rest the stream does not hold."""
        if beginning <= max(1, ends.last_base):
            return None
        if not ends.last_base:
            if gaps.left_over(self._directory) >= beginning:
                return None  # it had more than segments that are gone by now: the start says so
            return Span(1, beginning - 1)
        if ends.sealed is not None:
            last = ends.sealed.last
            return Span(last + 1, beginning - 1) if last + 1 < beginning else None
        try:
            last, _ = gaps.last_record(self._directory, ends)
        except LogCorrupt:
            last = 0
        return Span(ends.last_base, beginning - 1) if last + 2 < beginning else None

    def _begins_with(self, beginning: int, held: Held) -> bool:
        """Whether the log begins with the stream by now, so that nothing of before it is kept anywhere. Where only
        retention purges the stream that is so unless a peer has something older."""
        if held.oldest:
            return held.oldest >= beginning
        return not self._stream_is_cut and all(first >= beginning for first in held.by_first)

    def _fetch(self, wanted: SealedSegment, peers: Sequence[PeerSegments], ends: LogEnds | None) -> bool:
        """Bring one segment here; whether a peer had it whole."""
        path = gaps.temporary(self._directory, wanted)
        of = SegmentHeader(self._identity.uuid, self._identity.id_key, wanted.first, 0)
        for peer in peers:
            if wanted not in peer.segments:
                continue
            told = {"file": wanted.name, "node": peer.node.node}
            try:
                with files.unfinished(path):
                    self._peers.fetch(peer.node, wanted, path)
                    check_copy(path, wanted, of)
                    self._check_open(path, wanted, ends)
                    gaps.put_in_place(self._directory, wanted)
            except _Differs:
                raise
            except (OSError, LogDiverged) as problem:
                _log.warning("syncbrok.cluster.segment_not_fetched", extra={**told, "detail": str(problem)})
                continue
            _log.warning("syncbrok.cluster.segment_fetched", extra={**told, "bytes": wanted.bytes})
            return True
        return False

    def _check_open(self, path: Path, wanted: SealedSegment, ends: LogEnds | None) -> None:
        """The open segment here goes on as the fetched one of its place."""
        if ends is None or ends.sealed is not None or ends.last_base != wanted.first:
            return
        try:
            _, end = gaps.last_record(self._directory, ends)
        except LogCorrupt:
            return  # nothing of it can be read
        if not begins_with(path, segment_path(self._directory, wanted.first), end):
            what = f"{wanted.name} here is not the beginning of that of the peers"
            raise _Differs(f"the replicas differ: {what}. Nothing was changed")

    def _finish(self, ends: LogEnds, held: Held, spans: Sequence[Span], behind: Span | None) -> None:
        """Say in the watermark where the log begins and ends now, if either has changed."""
        dropped = any(one.first < held.oldest for one in spans)
        if not behind and not dropped:
            return
        last = ends.sealed
        if behind:
            last = next(one for one in held.by_first.values() if one.last == behind.last)
        oldest = held.oldest if dropped else ends.oldest
        gaps.begin_at(self._directory, oldest, last, self._identity.uuid, self._now_us())


class _Differs(LogDiverged):
    """The log here and that of the peers are two histories."""


def sealed_base(damaged: LogCorrupt) -> int | None:
    """The base of the segment that the error is about; None where it is about none."""
    stem, _, suffix = str(damaged.members.get("file", "")).partition(".")
    return int(stem) if suffix == "log" and stem.isdecimal() else None
