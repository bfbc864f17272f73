"""What a node does about its sealed segments while it runs (CLUSTER, Failures "replicas differ")."""

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cluster.membership import NodeReport
from syncbrok.cluster.peers import PeerSegments
from syncbrok.cluster.segment_care import differences
from syncbrok.log.segments.sealed_segments import SealedSegment


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
