"""Looks after the sealed segments of a node while it runs: damage is mended from a peer, and what the peers hold is
compared with what is here. All of it blocks, in one thread, and waits for nothing else.

A node that leads reads its segments again anyway (``space.operations.scrub``) and sweeps up what retention dropped; one
that follows has that done here.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from syncbrok.cluster.healing import Healing, Holders
from syncbrok.cluster.peers import PeerSegments
from syncbrok.cluster.replicated_journal import ReplicatedJournal
from syncbrok.log.segments.sealed_segments import SealedSegment, sealed_segments
from syncbrok.model.errors import LogCorrupt, LogFailed, LogFull, LogUnreadable
from syncbrok.model.journal import Section

_log = logging.getLogger(__name__)

_COMPARE_EVERY_S: Final = 300.0
_AGAIN_S: Final = 5.0
_MEND_EVERY_S: Final = 60.0
_SWEEP_EVERY_S: Final = 60.0
_CHECK_EVERY_S: Final = 86_400.0


class Difference(NamedTuple):
    """A segment that is not the same everywhere. ``mine``: this node is the one that differs, as far as can be told."""

    mine: SealedSegment
    others: Mapping[str, str]
    """checksums by node"""
    is_mine: bool

    def describe(self) -> str:
        """In words."""
        told = ", ".join(f"{checksum} at {node}" for node, checksum in self.others.items())
        return f"the replicas differ: {self.mine.name} has the checksum {self.mine.checksum} here, {told}"


def differences(own: Sequence[SealedSegment], peers: Sequence[PeerSegments]) -> Iterator[Difference]:
    """The segments of ``own`` that a peer holds otherwise. This node is the one that differs where two others agree on
    something else, and where the leader has something else and nobody has the same as this one."""
    leaders = {peer.node.node for peer in peers if peer.node.role == "leading"}
    held = {peer.node.node: {one.first: one for one in peer.segments} for peer in peers}
    for mine in own:
        others = {node: some[mine.first] for node, some in held.items() if mine.first in some}
        other = {node: one for node, one in others.items() if one != mine}
        if other:
            agreeing = len(others) - len(other)
            alike = max(list(other.values()).count(one) for one in other.values())
            is_mine = alike > 1 or (not agreeing and bool(leaders & set(other)))
            yield Difference(mine, {node: one.checksum for node, one in other.items()}, is_mine)


class SegmentCare:
    """``follows``: whether this node does. ``refuse`` is told why this node may take part no longer. ``clock_s`` never
    goes back, ``now_us`` is the wall clock."""

    def __init__(
        self,
        directory: Path,
        healing: Healing,
        peers: Holders,
        journal: ReplicatedJournal,
        follows: Callable[[], bool],
        refuse: Callable[[str], None],
        clock_s: Callable[[], float],
        now_us: Callable[[], int],
    ) -> None:
        self._directory = directory
        self._healing = healing
        self._peers = peers
        self._journal = journal
        self._follows = follows
        self._refuse = refuse
        self._clock_s = clock_s
        self._now_us = now_us
        self._due_s: dict[object, float] = {}
        self._checked = 0
        self.differing = 0
        """segments that were met so far of which somebody holds something else"""
        self.mended = 0

    def step(self) -> None:
        """Do what is due now, once a second or so. What cannot be done now is tried again another time."""
        try:
            if self._follows():
                self._check_next()
                if self._is_due("sweep", _SWEEP_EVERY_S):
                    self._journal.sweep(self._now_us())
            self._mend()
            self._journal.erase_as_ordered()
            if self._is_due("compare", _COMPARE_EVERY_S):
                self.compare()
        except (OSError, LogCorrupt, LogFailed, LogFull, LogUnreadable) as problem:
            _log.warning("syncbrok.cluster.segments_not_looked_at", extra={"detail": str(problem)})

    def _is_due(self, what: object, every_s: float) -> bool:
        now_s = self._clock_s()
        if now_s < self._due_s.get(what, 0.0):
            return False
        self._due_s[what] = now_s + every_s
        return True

    def _check_next(self) -> None:
        """Read the next sealed segment against its seal; when all were, begin again a day later."""
        sealed = [one for one in self._journal.sections() if one.sealed]
        following = next((one for one in sealed if one.first > self._checked), None)
        if following is not None:
            self._journal.check(following)
            self._checked = following.first
        elif self._is_due("round", _CHECK_EVERY_S):
            self._checked = 0

    def _mend(self) -> None:
        """Fetch sealed segments again that are known to be damaged."""
        for first in list(self._journal.damages):
            section = self._sealed(first)
            if section is None or not self._is_due(first, _MEND_EVERY_S):
                continue
            if self._healing.fetch_again(first):
                self._journal.erase_again()
                self._journal.check(section)
                self.mended += first not in self._journal.damages
            else:
                self._journal.unmendable.add(first)  # until now nothing archived it

    def _sealed(self, first: int) -> Section | None:
        return next((one for one in self._journal.sections() if one.first == first and one.sealed), None)

    def compare(self) -> None:
        """Compare what is here with what the others hold, who have erased as much; soon again while no leader has said
        what that is."""
        erased = self._journal.erased_before
        peers = [one for one in self._peers.ask() if not one.problem and None is not one.erased_before == erased]
        if self._follows() and all(one.node.role != "leading" for one in peers):
            self._due_s["compare"] = self._clock_s() + _AGAIN_S
        damaged = set(self._journal.damages)
        own = [one for one in sealed_segments(self._directory) if one.first not in damaged]
        if self._journal.erased_before != erased:
            return  # meanwhile
        found = list(differences(own, peers))
        self.differing = max(self.differing, len(found))
        for one in found[:1]:
            _log.critical("syncbrok.cluster.replicas_differ", extra={"detail": one.describe(), "segments": len(found)})
        mine = next((one for one in found if one.is_mine), None)
        if mine is not None:
            self._refuse(f"{mine.describe()}. This node takes no part: move its directory away, and start it empty")
