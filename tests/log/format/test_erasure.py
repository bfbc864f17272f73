"""What is erased is gone from a record, and all else about it stays: its place, its length, what refers to it."""

import random

import numpy as np
import pytest

from syncbrok.log.format.codec import Decoded, Kind, decode, encode, gather
from syncbrok.log.format.erasure import erased_message, erased_record, redacted
from syncbrok.log.format.stream import facts_or_runs
from syncbrok.log.index import columns
from syncbrok.model.facts import Carried, Messages, Outcome, Outcomes, Reason, Row, StoredMessage
from syncbrok.model.names import key_digest
from tests.support.log.journals import message
from tests.support.log.random_facts import KEY, START_US, RandomFacts


def read(record: bytes) -> Decoded:
    found = decode(record)
    assert isinstance(found, Decoded)
    assert found.end == len(record)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_an_erased_record_says_what_readers_are_told_meanwhile(seed: int) -> None:
    """RULES 32: a rewritten record has its length, sequence and batch, its checksums fit, it is of version 2, and says
    exactly what readers were told of it since it was erased. Done again it changes nothing."""
    facts = RandomFacts(random.Random(seed))
    for number in range(1, 60):
        for fact in (
            facts.message(number, START_US),
            facts.carried(number, START_US),
            facts.outcomes(number, START_US),
        ):
            record = encode(fact, batch=7, synced_through=3)
            match fact:
                case Outcomes():
                    own = {row.message for row in fact.rows[::2]}
                case Carried():
                    own = {fact.message.sequence}
                case _:
                    own = {fact.sequence}
            written = erased_record(record, own, KEY)
            before, after = read(record), read(written)
            assert after.fact == redacted(fact, own, KEY)
            assert len(written) == len(record)
            assert erased_record(written, own, KEY) == written
            assert erased_record(record, {0}, KEY) == record
            kept = ("kind", "body_bytes", "sequence", "batch", "synced_through", "time_us", "id", "root", "queue",
                    "depth", "items")  # fmt: skip
            assert [getattr(after.header, one) for one in kept] == [getattr(before.header, one) for one in kept]
            assert after.header.version == (1 if written == record else 2) or before.header.version == 2


def test_nothing_that_a_person_wrote_is_left_in_the_bytes() -> None:
    """RULES 32: content, headers, key, idempotency key and the details of answers are not in a rewritten record; the
    content type, the fingerprint and the parents are."""
    secret = message(
        KEY, 9, content=b"the-content" * 9, key="the-key-of-ann", idempotency_key="the-once-of-ann",
        fingerprint=b"f" * 16, headers=(("X-Ann", "the-header"),), parents=(b"p" * 16,), content_type="text/of-ann",
    )  # fmt: skip
    written = erased_record(encode(secret), {9}, KEY)
    for gone in (b"the-content", b"the-key", b"the-once", b"X-Ann", b"the-header"):
        assert gone not in written
    for kept in (b"text/of-ann", b"f" * 16, b"p" * 16):
        assert kept in written
    told = read(written).fact
    assert isinstance(told, StoredMessage)
    assert told.erased
    assert (told.key, told.idempotency_key) == (key_digest(secret.key, KEY), key_digest(secret.idempotency_key, KEY))
    row = Row(9, 1, 1, Outcome.DEAD, Reason.STATUS, 500, START_US, 0, 0, 1, b"no, Ann")
    answered = Outcomes(10, START_US, (row, row._replace(message=8, detail=b"no, Bob"), row))
    rewritten = erased_record(encode(answered), {9}, KEY)
    assert b"Ann" not in rewritten
    assert [one.detail for one in read(rewritten).fact.rows] == [b"", b"no, Bob", b""]  # type: ignore[union-attr]


def test_where_there_is_no_room_for_a_digest_the_key_goes() -> None:
    """RULES 32: a digest takes 22 bytes, of what key, headers and content leave; the idempotency key's comes first,
    since a repeated publish is known by it."""
    short = message(KEY, 9, content=b"", key="k", idempotency_key="i", fingerprint=b"f" * 16)
    for content, kept in ((b"", (False, False)), (b"x" * 20, (False, True)), (b"x" * 21, (False, True)),
                          (b"x" * 42, (True, True))):  # fmt: skip
        told = read(erased_record(encode(short._replace(content=content)), {9}, KEY)).fact
        assert isinstance(told, StoredMessage)
        assert (bool(told.key), bool(told.idempotency_key)) == kept
        assert told == erased_message(short._replace(content=content), KEY)


def test_an_index_of_rewritten_records_knows_digests_only() -> None:
    """RULES 32: the tables of a sidecar are made of the digests, so a key is not found by trying its hash; parents are
    found as before, and a start reads the same run of messages but for their keys."""
    plain = message(KEY, 9, key="ann", idempotency_key="once", content=b"x" * 90, parents=(message(KEY, 3).id,))
    record = encode(plain)
    written = erased_record(record, {9}, KEY)
    offsets = np.array([0], np.int64)
    before, after = columns.extract(record, offsets, 1), columns.extract(written, offsets, 1)
    assert before.keys[0].tolist() == [columns.text_hash("ann")]
    assert after.keys[0].tolist() == [columns.text_hash(key_digest("ann", KEY))]
    assert after.idempotency[0].tolist() == [columns.text_hash(key_digest("once", KEY))]
    assert [one.tolist() for one in after.edges] == [one.tolist() for one in before.edges]
    assert [one.tolist() for one in after.queues] == [one.tolist() for one in before.queues]
    (started,) = facts_or_runs(written, offsets, 0)
    assert gather(written, offsets)["kind"].tolist() == [Kind.MESSAGE]
    assert started == redacted(plain._replace(content=b""), {9}, KEY)._replace(  # type: ignore[union-attr]
        key=key_digest("ann", KEY), idempotency_key=key_digest("once", KEY)
    )
    assert not isinstance(started, Messages)
