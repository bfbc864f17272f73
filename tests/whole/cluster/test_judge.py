"""The judge of a cluster sees what it is for: each of its rules is shown a life that breaks it and nothing else."""

from dataclasses import replace

import pytest

from tests.support.cluster.judge import Attempt, ClusterLife, Isolated, Published, Stored, broken

MS = 1_000_000
EPOCH = 1 << 40
QUEUES = {"q": ("s", "t")}


def published(id_: str, *parents: str, key: str = "", node: str = "a", status: int = 201, at_ms: int = 0) -> Published:
    sent_ns = at_ms * MS
    return Published(key or id_, id_, "q", parents, f"of {id_}", node, status, sent_ns, sent_ns + MS)


def attempt(id_: str, subscriber: str, at_ms: int, *, well: bool = True, claim: int = 2, content: str = "") -> Attempt:
    return Attempt(subscriber, id_, EPOCH | claim, at_ms * MS, (at_ms + 1) * MS, well, content or f"of {id_}")


def stored(sequence: int, kind: str, claim: int = 2, first: int = 0, last: int = 0, n: str = "") -> Stored:
    epoch = EPOCH | claim if claim else 0
    return Stored(sequence, kind, epoch, n or f"a.r.{sequence}", first, last, 1, 1, b"%d" % first)


PARENT, CHILD = published("p"), published("c", "p", at_ms=1)
ATTEMPTS = [attempt("p", "s", 2), attempt("p", "t", 3), attempt("c", "s", 6), attempt("c", "t", 7)]
STREAM = [
    stored(1, "birth", 0),
    stored(2, "claim", 0),
    stored(3, "roll", 2, 1, 1),
    stored(4, "batch", 2, 2, 5),
    stored(5, "claim", 0),
    stored(6, "batch", 5, 6, 9),
]
LOGS = {"a": {"1.log": b"1 2 6"}, "b": {"1.log": b"1 2"}, "c": {}}


def life(attempts: list[Attempt] | None = None, *more: Published) -> ClusterLife:
    return ClusterLife(QUEUES, [PARENT, CHILD, *more], ATTEMPTS if attempts is None else attempts, [], STREAM, LOGS)


def of_stream(*stream: Stored) -> ClusterLife:
    return replace(life(), stream=list(stream))


def test_a_life_without_faults_is_well() -> None:
    """A judge that finds faults everywhere proves nothing either."""
    assert broken(life()) == []


@pytest.mark.parametrize(
    ("said", "judged"),
    [
        ("lost: c of q", life(ATTEMPTS[:3])),
        ("lost: p of q", life([attempt("p", "s", 2, well=False), *ATTEMPTS[1:]])),
        ("unasked: x", life([*ATTEMPTS, attempt("x", "s", 9)])),
        ("changed: c", life([*ATTEMPTS[:3], attempt("c", "t", 7, content="other")])),
        ("twice: key p is", life(None, published("d", key="p", status=200))),
        ("twice: c has the keys", life(None, published("c", "p", key="k"))),
        ("twice: key p was answered 201 2 times", life(None, PARENT)),
        ("p was acknowledged by t 2.0 ms later", life([*ATTEMPTS[:1], attempt("p", "t", 7), *ATTEMPTS[2:]])),
        ("nobody has seen its parent p", life(ATTEMPTS[2:])),
        ("late parent: c began at s", life([*ATTEMPTS, attempt("p", "t", 8, well=False)])),
        ("before s had acknowledged its parent p again", life([*ATTEMPTS, attempt("p", "s", 8)])),
        ("stored twice: a.r.4", of_stream(*STREAM[:4], stored(5, "beat", 2, n="a.r.4"))),
        ("stale append: batch a.r.6", of_stream(*STREAM[:5], stored(6, "batch", 2, 6, 9))),
        ("gap: batch at 6 begins with record 7, not 6", of_stream(*STREAM[:5], stored(6, "batch", 5, 7, 9))),
        (
            "torn: piece 2 of 2",
            of_stream(*STREAM[:4], stored(5, "claim", 0), stored(6, "batch", 5, 6, 9)._replace(piece=2, pieces=2)),
        ),
        ("replicas differ: 1.log of b", replace(life(), logs={**LOGS, "b": {"1.log": b"1 3"}})),
        ("not of the stream: 1 batches", replace(life(), logs={"a": {"1.log": b"1 2"}})),
    ],
)
def test_the_judge_sees_what_it_is_for(said: str, judged: ClusterLife) -> None:
    """DESIGN 1, durable and causal, of a cluster: whatever is lost, early, late, twice or not alike is named."""
    assert said in "\n".join(broken(judged))


def test_the_judge_sees_who_acknowledged_alone() -> None:
    """Of a node that was isolated only what was asked and answered meanwhile is its fault."""
    cut = [Isolated("a", 10 * MS, 20 * MS)]
    before, meanwhile = published("x", at_ms=9), published("y", at_ms=12)
    told = broken(replace(life(None, before, meanwhile, published("z", node="b", at_ms=12)), isolated=cut))
    assert [what for what in told if what.startswith("isolated")] == [
        "isolated: y was acknowledged by a, which reached nobody"
    ]
