"""Which messages of a queue are due to be erased (RULES 37): the line against a model that looks at each always."""

import os
import random

import pytest

from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Reason, Row
from syncbrok.space.operations.ageing import LEFT_MAX, Line, Met, ended_us

DELAY_US = 1_000


class Queue:
    """Messages as the model knows them: accepted and ended at, 0 for not yet."""

    def __init__(self) -> None:
        self.accepted: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.erased: dict[int, int] = {}

    def due(self, now_us: int) -> set[int]:
        return {one for one, at in self.ended.items() if one not in self.erased and at + DELAY_US <= now_us}

    def follow(self, line: Line, now_us: int, together: int, fails: bool = False) -> None:
        """As the duty does."""
        while True:
            piece = line.take(now_us)
            behind = [one for one in sorted(self.accepted) if one >= piece.first]
            inside = [one for one in behind if piece.last is None or one <= piece.last]
            some = inside[:together]
            met = [Met(one, self.accepted[one], self.ended.get(one, 0), one in self.erased) for one in some]
            due, goes_on = line.judge(piece, met, now_us, more=len(inside) > together)
            if fails:
                line.again(due, now_us + 1)
            else:
                self.erased.update(dict.fromkeys(due, now_us))
            if piece.last is None and not goes_on:
                return


@pytest.mark.parametrize("together", [3, 500])
def test_what_is_due_is_found_and_nothing_else(together: int) -> None:
    """RULES 37: whatever order messages end in, however many stay open and however the clock runs, each is erased at
    the first look at which it has ended for so long, and none before; some that could not be erased come again; and the
    line remembers no more than a few pieces."""
    seed = int(os.environ.get("SYNCBROK_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"SYNCBROK_TEST_SEED={seed}")
    chance = random.Random(seed)
    queue, line, now_us, sequence = Queue(), Line(DELAY_US), 1_000_000, 0
    for _ in range(300):
        for _ in range(chance.randrange(12)):
            sequence += chance.choice((1, 1, 1, 7))
            queue.accepted[sequence] = now_us
        open_ = [one for one in queue.accepted if one not in queue.ended]
        for one in chance.sample(open_, chance.randrange(len(open_) + 1) if chance.random() < 0.3 else 0):
            queue.ended[one] = now_us
        now_us += chance.choice((1, 10, 200, 1_500))
        due, before = queue.due(now_us), {*queue.erased}
        fails = chance.random() < 0.1
        queue.follow(line, now_us, together, fails)
        assert {*queue.erased} - before == (set() if fails else due)
        assert len(line.left) <= LEFT_MAX
        assert all(one.last < other.first for one, other in zip(line.left, line.left[1:], strict=False))
        now_us += 2
    assert queue.erased


def test_a_line_that_begins_anew_goes_on() -> None:
    """RULES 37: a start keeps nothing of the line, and erases the rest."""
    queue = Queue()
    for one in range(1, 9_000, 3):
        queue.accepted[one] = queue.ended[one] = one
    queue.follow(Line(DELAY_US), 5_000, 64)
    assert {*queue.erased} == {one for one in queue.accepted if one <= 4_000}
    line = Line(DELAY_US)
    queue.follow(line, 20_000, 64)
    assert queue.erased.keys() == queue.accepted.keys()
    assert (line.passed, list(line.left)) == (8_998, [])


def test_a_thousand_that_never_end_are_a_few_pieces() -> None:
    """RULES 37: every second of ten thousand messages stays open; nothing is kept for each, and all the others go."""
    queue, line = Queue(), Line(DELAY_US)
    for one in range(1, 10_001):
        queue.accepted[one] = 5
        if one % 2:
            queue.ended[one] = 5
    queue.follow(line, 5_000, 500)
    assert len(queue.erased) == 5_000
    assert len(line.left) <= LEFT_MAX
    for one in range(2, 10_001, 2):
        queue.ended[one] = 5_500
    queue.follow(line, 6_400, 500)
    assert len(queue.erased) == 5_000
    queue.follow(line, 7_000, 500)
    assert len(queue.erased) == 10_000


def row(subscriber: int, outcome: Outcome, time_us: int, attempt: int = 0, latency_us: int = 0) -> Row:
    return Row(1, subscriber, attempt, outcome, Reason.NONE, 0, time_us, 0, 0, latency_us)


@pytest.mark.parametrize(
    ("rows", "departed", "wanted"),
    [
        ([], [], 10),
        ([row(1, Outcome.DELIVERED, 20, 1, 5)], [], 25),
        ([row(1, Outcome.DELIVERED, 20, 1, 5), row(2, Outcome.DEAD, 90, 3, 1)], [], 91),
        ([row(1, Outcome.DELIVERED, 20, 1, 5)], [(1, 500)], 25),
        ([row(1, Outcome.FAILED, 20, 1, 5)], [(1, 500)], 500),
        ([row(1, Outcome.DELIVERED, 20, 1, 5)], [(2, 500)], 500),
        ([row(ALL_SUBSCRIBERS, Outcome.DROPPED, 60)], [(1, 500)], 60),
        ([row(1, Outcome.DEAD, 20, 1, 5), row(1, Outcome.DELIVERED, 700, 2, 9)], [], 709),
    ],
)
def test_when_a_message_has_ended(rows: list[Row], departed: list[tuple[int, int]], wanted: int) -> None:
    """RULES 37: its last end counts, of a replay too; a subscriber that was deleted ended what was open there; what
    nobody was to get ended when it was accepted."""
    assert ended_us(10, rows, departed) == wanted
