"""Messages read in one pass are what reading them one by one gives, and damage ends the pass.

Broken by hand to see these fail: a body whose checksum is not compared, flags read from the record before, a key cut
off a byte too early.
"""

import random
from dataclasses import dataclass

from syncbrok.log.codec import Decoded, decode, encode_batch
from syncbrok.log.neighbours import plain_neighbours
from syncbrok.model.facts import Fact, Outcome, Outcomes, Published, Reason, Row
from syncbrok.model.message import ParentFailure, Scope
from syncbrok.model.names import MessageId


@dataclass
class Records:
    facts: list[Fact]
    data: bytes
    starts: list[int]


def message(dice: random.Random, sequence: int, *, extras: bool) -> Published:
    keyed = dice.random() < 0.3
    return Published(
        sequence,
        dice.randrange(1 << 50),
        MessageId(dice.randbytes(16)),
        dice.randrange(1 << 32),
        dice.randrange(1 << 60),
        dice.randrange(1 << 32),
        dice.choice(list(Scope)),
        dice.choice(list(ParentFailure)),
        tuple(MessageId(dice.randbytes(16)) for _ in range(dice.choice((0, 0, 0, 1, 3)))),
        "a key" if extras and dice.random() < 0.5 else "",
        dice.choice(("k", "naïve", "\udc80" * 9)) if keyed else "",
        dice.randbytes(16) if keyed else b"",
        0,
        dice.randrange(1, 1 << 50) if extras else 0,
        dice.choice(("", "text/plain", "naïve/ty\udc80pe")),
        (("X-Trace", "é"),) if extras and dice.random() < 0.5 else (),
        dice.randbytes(dice.choice((0, 5, 200, 5_000))),
    )


def records(dice: random.Random, count: int, *, plain: bool = False) -> Records:
    facts: list[Fact] = []
    for sequence in range(10, 10 + count):
        kind = 0.0 if plain else dice.random()
        if kind < 0.8:
            facts.append(message(dice, sequence, extras=False))
        elif kind < 0.9:
            facts.append(message(dice, sequence, extras=True))
        else:
            row = Row(3, 1, 1, Outcome.DELIVERED, Reason.NONE, 200, 5, 0, 4, 7)
            facts.append(Outcomes(sequence, 5, (row,)))
    encoded = encode_batch(facts, batch=3, synced_through=2)
    return Records(facts, encoded.data, [0, *encoded.ends[:-1]])


def test_a_pass_reads_what_single_looks_read(seed: int) -> None:
    """DESIGN 4: a record is what the specification says, however it is read; anything that is not a plain message, with
    or without an idempotency key, ends the pass right before it."""
    dice = random.Random(seed)
    for _ in range(200):
        written = records(dice, dice.randrange(1, 30))
        first = dice.randrange(len(written.facts))
        count = dice.randrange(1, 40)
        found: list[Published] = []
        at = plain_neighbours(written.data, written.starts[first], 10 + first, count, found)
        expected = []
        for fact in written.facts[first : first + count]:
            if not isinstance(fact, Published) or fact.expires_us:
                break
            expected.append(fact)
        assert found == expected
        assert [type(one) for one in found] == [Published] * len(found)
        assert at == [*written.starts, len(written.data)][first + len(found)]


def test_every_damaged_byte_is_noticed(seed: int) -> None:
    """DESIGN 4: both checksums of every record are verified, so that a record that rots is never delivered."""
    dice = random.Random(seed)
    written = records(dice, 4, plain=True)
    for at in range(len(written.data)):
        data = bytearray(written.data)
        data[at] ^= 1 << dice.randrange(8)
        found: list[Published] = []
        stop = plain_neighbours(bytes(data), 0, 10, 4, found)
        damaged = sum(1 for start in written.starts if start <= at) - 1
        assert found == written.facts[:damaged]
        assert stop == written.starts[damaged]
        assert not isinstance(decode(bytes(data), stop), Decoded)


def test_a_record_of_another_sequence_or_cut_short_ends_it() -> None:
    """What stands at a place must be what the index says stands there, and whole."""
    written = records(random.Random(1), 5, plain=True)
    found: list[Published] = []
    assert plain_neighbours(written.data, 0, 11, 5, found) == 0
    assert not found
    assert plain_neighbours(written.data[:-1], 0, 10, 9, found) == written.starts[4]
    assert len(found) == 4
