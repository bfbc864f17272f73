"""What a node does about its sealed segments while it runs (CLUSTER, Failures "replicas differ")."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cluster.membership import NodeReport
from syncbrok.cluster.peers import PeerSegments
from syncbrok.cluster.segment_care import SegmentCare, differences
from syncbrok.log.journal import FileJournal
from syncbrok.log.segments.sealed_segments import SealedSegment
from tests.support.log.journals import append_snapshot, opened, publish


def peer(name: str, checksum: str, role: str = "following") -> PeerSegments:
    held = (SealedSegment(1, 9, 500, checksum),) if checksum else ()
    return PeerSegments(NodeReport(name, f"http://{name}", 1, role, 0, 20, 1), held)


@pytest.mark.parametrize(
    ("peers", "found"),
    [
        ((), []),
        ((peer("b", "mine"), peer("c", "mine", "leading")), []),
        ((peer("b", ""),), []),
        ((peer("b", "x"), peer("c", "x")), [True]),
        ((peer("b", "x"),), [False]),
        ((peer("b", "x", "leading"),), [True]),
        ((peer("b", "x", "leading"), peer("c", "mine")), [False]),
        ((peer("b", "x", "leading"), peer("c", "y")), [True]),
        ((peer("b", "x"), peer("c", "y")), [False]),
    ],
)
def test_who_differs(peers: tuple[PeerSegments, ...], found: list[bool]) -> None:
    """Two against one, whoever leads; of two the leader is believed. Where it cannot be told nobody stops: a cluster is
    not stopped by one rotten node."""
    own = [SealedSegment(1, 9, 500, "mine"), SealedSegment(10, 19, 500, "newer")]
    assert [one.is_mine for one in differences(own, peers)] == found


@pytest.mark.parametrize(("mine", "its", "refused"), [(0, 0, True), (9, 9, True), (9, 0, False), (None, None, False)])
def test_only_who_has_erased_as_much_is_compared(
    tmp_path: Path, mine: int | None, its: int | None, refused: bool
) -> None:
    """RULES 32: while some nodes have written segments anew and others have not, their checksums differ, and nobody is
    refused for it."""
    journal: FileJournal = opened(FileJournal, tmp_path)
    for _ in range(2):
        append_snapshot(journal)
        publish(journal)
    node = NodeReport("b", "http://b", 1, "leading", 0, 20, 1)
    last = journal.sections()[0].last
    theirs = PeerSegments(node, (SealedSegment(1, last, journal.sections()[0].bytes, "another"),), "", its)
    care_of: Any = SimpleNamespace(damages={}, erased_before=mine)
    refusals: list[str] = []
    peers: Any = SimpleNamespace(ask=lambda: [theirs])
    healing: Any = None
    care = SegmentCare(tmp_path, healing, peers, care_of, lambda: False, refusals.append, lambda: 0.0, lambda: 0)
    care.compare()
    assert bool(refusals) == refused
    journal.close()
