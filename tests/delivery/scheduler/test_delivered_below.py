"""What had been delivered below a message is known from few numbers, as if each delivery had been kept."""

import random

from syncbrok.delivery.scheduler.delivered_below import DeliveredBelow


def test_it_says_what_a_full_list_says() -> None:
    """Ended out of order, delivered or not, some delivered late by a replay: the answer is that of the whole list, for
    each message that is out."""
    for seed in range(200):
        chance = random.Random(seed)
        known, delivered, out, dead, newest = DeliveredBelow(), {0}, set[int](), [0], 0
        for _ in range(120):
            step = chance.random()
            if step < 0.45 or not out:
                newest += chance.choice((1, 1, 2, 5_000))
                out.add(newest)
            elif step < 0.85:
                ended = chance.choice(sorted(out))
                out.discard(ended)
                if chance.random() < 0.8:
                    delivered.add(ended)
                    known.delivered((ended,))
                else:
                    dead.append(ended)
            elif len(dead) > 1:
                delivered.add(dead[-1])
                known.delivered((dead.pop(),))
            if chance.random() < 0.05:
                known = DeliveredBelow.load(known.numbers(), known.above())
            if chance.random() < 0.7:
                known.advance(min(out, default=newest + 1) - 1)
            for sequence in out:
                assert known.below(sequence).previous == max(one for one in delivered if one < sequence), seed


def test_what_is_mended_below_names_nothing_above_it() -> None:
    """RULES 24: a message that nobody was to get any more, and that a replay has mended behind what has ended since,
    is never sent with a number above its own: its receiver would look for what cannot have come."""
    known = DeliveredBelow()
    known.delivered((18,))
    known.delivered((25,))
    known.advance(25)
    assert known.below(26) == (25, 25)
    assert known.below(19) == (0, 18)


def test_in_order_it_keeps_nothing() -> None:
    """A subscriber that gets all in order costs no more after a million messages than after one."""
    known = DeliveredBelow()
    for sequence in range(1, 10_000):
        assert known.below(sequence) == (sequence - 1, sequence - 1)
        known.delivered((sequence,))
        known.advance(sequence)
    assert len(known) == 0
