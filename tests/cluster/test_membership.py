"""What nodes of a cluster tell each other of themselves, and what is to be said of that."""

import json
from collections.abc import Callable

import pytest

from syncbrok.cluster.membership import Membership, NodeReport, archives_differ, as_of


class Wire:
    """What is told is heard by all, this one too."""

    def __init__(self) -> None:
        self.all: list[Callable[[bytes], None]] = []

    def announce(self, told: bytes, subject: str) -> None:
        for one in self.all:
            one(told)

    def hear(self, heard: Callable[[bytes], None], subject: str) -> None:
        self.all.append(heard)


def report(node: str, archive: str = "") -> NodeReport:
    return NodeReport(node, f"http://{node}", 7, "following", 0, 5, 1, archive)


def test_what_is_told_is_heard_until_it_is_old() -> None:
    """CLUSTER, "GET /v1/cluster": who was heard lately is there, with all that it said; one of a version that says less
    too, and what no node says is passed over."""
    wire, now_s = Wire(), [0.0]
    membership = Membership(wire, lambda: now_s[0])
    membership.listen()
    membership.announce(report("b", "pipeline"))
    before = report("a")._asdict()
    for later in ("first", "archive"):
        del before[later]
    wire.announce(json.dumps(before).encode(), "nodes")
    wire.announce(b"[]", "nodes")
    assert membership.nodes() == [report("a")._replace(first=0), report("b", "pipeline")]
    now_s[0] = 6.0
    assert membership.nodes() == []


@pytest.mark.parametrize(
    ("archives", "told"),
    [
        (("pipeline", "pipeline", "pipeline"), ""),
        (("pipeline", "", "pipeline"), ""),
        (("leader", "nobody", "leader"), "a: leader, b: nobody, c: leader"),
    ],
)
def test_nodes_that_archive_otherwise_are_named(archives: tuple[str, ...], told: str) -> None:
    """The leader drops by its own setting: one that archives nothing would drop what others keep until it is
    archived."""
    assert archives_differ(report(*one) for one in zip("abc", archives, strict=True)) == told


def test_who_led_an_older_epoch_is_not_shown_as_a_leader() -> None:
    """CLUSTER, "GET /v1/cluster": a leader that was stopped is heard for a while after another one leads; one leads."""
    nodes = [
        report(name)._replace(role=role, epoch=epoch)
        for name, role, epoch in (("a", "leading", 3), ("b", "leading", 4), ("c", "following", 3))
    ]
    assert [one.role for one in as_of(4, nodes)] == ["fenced", "leading", "following"]
    assert as_of(3, nodes) == nodes
