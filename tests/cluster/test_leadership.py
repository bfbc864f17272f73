"""What a leader counts of its appends and claims, that being fenced is remembered, and what ends a doubt about it.

Broken by hand to see these fail: a fencing that is counted for each append; one that is counted in memory alone; a
doubt that never ends; one that an append ends which was sent before it.
"""

from pathlib import Path

import pytest

from syncbrok.cluster.election import Due, Election, LeaseTimes
from syncbrok.cluster.engine import Fate
from syncbrok.cluster.fencings import Fencings
from syncbrok.cluster.leadership import Fenced, Leadership
from syncbrok.cluster.stream_messages import AppendNames, StreamKind, StreamMessage
from tests.support.cluster.memory_engine import MemoryEngine

CLAIM = StreamMessage(StreamKind.CLAIM, 0, "", node="a", url="http://a")
BEAT = StreamMessage(StreamKind.BEAT, 0, "", node="a")


def candidate(engine: MemoryEngine, directory: Path) -> Leadership:
    """A node that is to claim."""
    times = LeaseTimes.of(2.0)
    election = Election(times, 1, lambda: 0.0, 0)
    assert election.due(times.patience_us + times.jitter_us) is Due.CLAIM
    return Leadership(engine, election, AppendNames("a", "r1"), CLAIM, lambda: 1, Fencings(directory).note)


def leading(engine: MemoryEngine, directory: Path) -> Leadership:
    made = candidate(engine, directory)
    assert made.claim()
    return made


def passed(engine: MemoryEngine) -> None:
    """Another one appends."""
    engine.messages.append(StreamMessage(StreamKind.BEAT, len(engine.messages) + 1, "b.r1.1", node="b"))


def test_being_fenced_is_remembered(tmp_path: Path) -> None:
    """CLUSTER, Metrics: ``fenced_total`` counts processes, and the next one tells it: this one ends at once."""
    for times in (1, 2):
        engine = MemoryEngine(times)
        leadership = leading(engine, tmp_path)
        passed(engine)
        for _ in range(2):
            with pytest.raises(Fenced):
                leadership.append(BEAT)
        assert Fencings(tmp_path).count == times
    (tmp_path / "fenced").write_text("what?")
    assert Fencings(tmp_path).count == 0


def test_claims_are_counted_by_their_end(tmp_path: Path) -> None:
    """``claims_total{won}``."""
    engine = MemoryEngine(1)
    leadership = candidate(engine, tmp_path)
    passed(engine)
    assert not leadership.claim()
    assert (leadership.statistics().claims_won, leadership.statistics().claims_lost) == (0, 1)
    assert leading(MemoryEngine(2), tmp_path).statistics().claims_won == 1


def test_what_was_not_answered_is_counted_by_what_stood_there(tmp_path: Path) -> None:
    """``append_unknown_total{found}``: each try whose answer did not say that it was stored is one of the two."""
    engine = MemoryEngine(3)
    leadership = leading(engine, tmp_path)
    engine.unsure = 99
    tries = engine.tries
    for _ in range(6):
        leadership.append(BEAT)
    told = leadership.statistics()
    assert told.found > 0 < told.not_found
    answered = 6 - told.found
    assert told.found + told.not_found + answered == engine.tries - tries


def test_a_doubt_ends_with_the_next_append(tmp_path: Path) -> None:
    """RULES, 409: an endpoint that names a later epoch is believed until this node has appended since; then nobody
    leads later, and a still later epoch is another question. An append that was sent before says nothing."""

    class Slow(MemoryEngine):
        """Answers what was appended once somebody has doubted."""

        def try_append(self, message: StreamMessage, last: int, timeout_s: float) -> tuple[Fate, int]:
            answer = super().try_append(message, last, timeout_s)
            if message.kind is StreamKind.BEAT and not asked:
                asked.append(leadership.doubt(99))
            return answer

    asked: list[bool] = []
    leadership = leading(Slow(4), tmp_path)
    leadership.append(BEAT)
    assert asked == [True]
    assert leadership.doubt(99), "that one was on its way already"
    leadership.append(BEAT)
    assert not leadership.doubt(99)
    assert not leadership.doubt(98)
    assert leadership.doubt(100)
    leadership.append(BEAT)
    assert not leadership.doubt(100)
