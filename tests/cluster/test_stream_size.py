"""How much of the log the stream holds where ``keep`` is a size (CLUSTER, keep)."""

from pathlib import Path

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cluster.following import beginning_of
from syncbrok.cluster.membership import NodeReport
from syncbrok.cluster.stream_messages import EraseOrder, StreamKind, StreamMessage, log_name
from syncbrok.cluster.stream_size import StreamErasure, StreamSize, is_held
from tests.support.cluster.memory_engine import MemoryEngine
from tests.support.cluster.replicated_places import IDENTITY, HeldReplicated, take_over
from tests.support.log.journals import append_snapshot, message, opened


def begun(directory: Path) -> tuple[MemoryEngine, HeldReplicated]:
    """A stream that has just been made, and who leads."""
    engine = MemoryEngine(1)
    engine.messages = [StreamMessage(StreamKind.BIRTH, 0, "init", log=log_name(IDENTITY), generation=1, sequence=1)]
    journal: HeldReplicated = opened(HeldReplicated, directory, identity=IDENTITY)
    take_over(engine, journal)
    return engine, journal


def written(directory: Path, count: int) -> tuple[MemoryEngine, HeldReplicated, list[int]]:
    """The same with so many segments more, a message in each; where each of all begins."""
    engine, journal = begun(directory)
    for _ in range(count):
        append_snapshot(journal)
        journal.append(journal.prepare([message(journal.id_key, journal.next_sequence)]))
    return engine, journal, [one.first for one in journal.sections()]


def node(first: int, sequence: int) -> NodeReport:
    return NodeReport("b", "http://b", 1, "following", 0, sequence, first)


@pytest.mark.parametrize(
    ("others", "held"),
    [
        ((), False),
        ((node(1, 200),), True),
        ((node(100, 200),), True),
        ((node(101, 500),), False),
        ((node(1, 199),), False),
        ((node(0, 0), node(1, 199), node(1, 200)), True),
    ],
)
def test_a_segment_is_held_by_who_has_begun_the_next(others: tuple[NodeReport, ...], held: bool) -> None:
    """From 100 up to the roll 200, by one of the others; who has only begun there, or has not opened its log, does not
    count."""
    assert is_held(100, 200, others) is held


def test_the_stream_forgets_whole_segments_that_others_have(tmp_path: Path) -> None:
    """Oldest first, down to the size, never the one that is written to, and none that the leader alone has."""
    engine, journal = begun(tmp_path)
    append_snapshot(journal)
    for _ in range(4):
        journal.append(journal.prepare([message(journal.id_key, journal.next_sequence, content=bytes(10_000))]))
        append_snapshot(journal)
    firsts = [one.first for one in journal.sections()]
    others = [node(1, firsts[2])]
    whole = engine.state().bytes

    def kept(bytes_max: int) -> int:
        StreamSize(engine, bytes_max, journal.sections, lambda: others).keep()
        return firsts.index(beginning_of(engine))

    assert kept(whole) == 0
    assert kept(whole - 1) == 1
    assert kept(0) == 2, "the others have no more"
    others[0] = node(1, journal.next_sequence)
    assert kept(0) == 4
    assert kept(0) == 4
    journal.close()


def test_the_stream_forgets_what_was_erased_once_another_node_has_it(tmp_path: Path) -> None:
    """RULES 32: up to the roll, and no further; while nobody else has what would go it waits, but not for ever: erased
    is erased. Asked again it does nothing."""
    engine, journal, (_, second, third) = written(tmp_path, 3)
    journal.close()
    others, now_s = [node(1, second - 1)], [0.0]
    stream = StreamErasure(engine, lambda: others, 10.0, lambda: now_s[0])
    with pytest.raises(OSError, match="until another node has all before"):
        stream.forget(second)
    others[0] = node(1, second)
    for _ in range(2):
        stream.forget(second)
        assert beginning_of(engine) == second
    now_s[0] = 9.9
    for _ in range(2):
        with pytest.raises(OSError, match="until another node has all before"):
            stream.forget(third)
        now_s[0] += 9.9
    now_s[0] += 0.2
    stream.forget(third)
    assert beginning_of(engine) == third
    stream.forget(second)


def test_who_takes_over_waits_only_for_the_rest(tmp_path: Path) -> None:
    """RULES 32: a follower counts from when the stream has told it of the order, not from when it leads; an order that
    is repeated is none that is new."""
    engine, journal, (_, second) = written(tmp_path, 2)
    now_s = [0.0]
    stream = StreamErasure(engine, list, 10.0, lambda: now_s[0])
    journal.order_heard = stream.note_wanted
    for now_s[0] in (0.0, 8.0):
        journal.take_order(EraseOrder(first=second, through=second))
    journal.close()
    with pytest.raises(OSError, match="until another node has all before"):
        stream.forget(second)
    now_s[0] = 10.1
    stream.forget(second)
    assert beginning_of(engine) == second
