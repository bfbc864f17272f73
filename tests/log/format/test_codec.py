"""Facts as bytes: nothing is lost on the way there and back, and bytes that are no record are never taken for one."""

from dataclasses import fields, replace
from typing import get_args

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from syncbrok.log.format import codec, stream
from syncbrok.log.format.codec import Corrupt, Decoded, Header, Incomplete, Kind
from syncbrok.log.format.declaration_bodies import decode_body
from syncbrok.log.format.records import Record, SegmentOpened
from syncbrok.model.facts import (
    Carried,
    FileApplied,
    Outcome,
    Outcomes,
    Rearmed,
    RearmedEntry,
    Reason,
    Row,
    StoredMessage,
    SubscriberSet,
)
from syncbrok.model.message import ParentFailure, QueueSettings, Scope, SubscriberSettings
from syncbrok.model.names import SubscriberId, make_message_id
from tests.support.log.facts import QUEUE_FIELDS, STRATEGIES, SUBSCRIBER_FIELDS, facts

KEY = bytes(range(16))


def message(sequence: int, **changes: object) -> StoredMessage:
    """A bare message."""
    bare = StoredMessage(
        sequence=sequence,
        time_us=1_700_000_000_000_000 + sequence,
        id=make_message_id(1_700_000_000_000, sequence, KEY),
        queue=3,
        root=sequence,
        depth=0,
        scope=Scope.ALL,
        parent_failure=ParentFailure.FAIL,
        parents=(),
        key="",
        idempotency_key="",
        fingerprint=b"",
        due_us=0,
        expires_us=0,
        content_type="text/plain",
        headers=(),
        content=b"content %d" % sequence,
    )
    return bare._replace(**changes)


EVERYTHING = message(
    7,
    parents=(make_message_id(1, 2, KEY), make_message_id(1, 3, KEY)),
    key="customer-1",
    idempotency_key="once",
    fingerprint=KEY,
    due_us=5,
    expires_us=6,
    headers=(("x-a", "1"), ("x-b", "")),
    only=9,
    scope=Scope.SAME,
    parent_failure=ParentFailure.DELIVER,
)


def test_every_fact_has_a_strategy() -> None:
    """No fact is left out of the round trip below."""
    assert set(get_args(Record)) == set(STRATEGIES)


def test_every_setting_has_a_strategy() -> None:
    """No field of a setting is left out of the round trip below: what is not written would be lost at a restart."""
    assert {one.name for one in fields(QueueSettings)} == set(QUEUE_FIELDS)
    assert {one.name for one in fields(SubscriberSettings)} == set(SUBSCRIBER_FIELDS)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(facts, st.integers(0, 2**60), st.booleans())
@example(EVERYTHING, 1, True)
@example(message(1, headers=(("x", "\udcff"), ("y\0", ""))), 1, True)
def test_what_is_written_is_read(fact: Record, number: int, ends_unit: bool) -> None:
    """A record holds its fact, all of it, and says of the write what it was told."""
    data = codec.encode(fact, batch=number, synced_through=number + 1, ends_unit=ends_unit)
    found = codec.decode(b"before" + data + b"after", 6)
    assert isinstance(found, Decoded)
    assert (found.fact, found.end) == (fact, 6 + len(data))
    header = found.header
    assert (header.sequence, header.time_us) == (fact.sequence, fact.time_us)
    assert (header.batch, header.synced_through, header.ends_unit) == (number, number + 1, ends_unit)
    assert codec.decode(memoryview(data)) == codec.decode(data)


@settings(max_examples=200)
@given(st.lists(facts | st.builds(message, st.integers(1, 9)), max_size=5))
@example([message(1), message(2, parents=(KEY, KEY), scope=Scope.SAME, parent_failure=ParentFailure.HOLD), EVERYTHING])
def test_the_short_way_reads_the_same(many: list[Record]) -> None:
    """What a start reads fast is what ``decode`` reads; bytes that are no record end it with an answer."""
    data = b"123" + b"".join(codec.encode(fact) for fact in many)
    read = [codec.decode(codec.encode(fact), content=False) for fact in many]
    assert list(stream.facts(data, 3)) == [one.fact for one in read if isinstance(one, Decoded)]
    for broken in (data + bytes(5), data + bytes(500), data + codec.encode(message(1))[:-1]):
        *found, last = stream.facts(broken, 3)
        assert len(found) == len(many)
        assert isinstance(last, Corrupt)
        assert last.offset == len(data)


@given(facts)
def test_content_can_be_left_out(fact: Record) -> None:
    """Facts are read without contents where a start-up needs none of them."""
    found = codec.decode(codec.encode(fact), content=False)
    assert isinstance(found, Decoded)
    if isinstance(fact, StoredMessage):
        fact = fact._replace(content=b"")
    if isinstance(fact, Carried):
        fact = fact._replace(message=fact.message._replace(content=b""))
    assert found.fact == fact


def test_a_batch_is_its_records_one_after_the_other() -> None:
    """A write of many records holds the same bytes as many writes; units end where they were said to."""
    batch = [message(number) for number in range(1, 6)]
    together = codec.encode_batch(batch, batch=4, synced_through=9, unit_ends={1, 4})
    single = [codec.encode(one, batch=4, synced_through=9, ends_unit=one.sequence in (2, 5)) for one in batch]
    assert together.data == b"".join(single)
    assert together.ends == np.cumsum([len(one) for one in single]).tolist()


@pytest.mark.parametrize(
    "fact", [EVERYTHING, Outcomes(1, 2, (Row(1, 2, 3, Outcome.FAILED, Reason.NACK, 4, 5, 6, 7, 8, b"no"),))]
)
def test_no_damage_is_taken_for_a_record(fact: Record) -> None:
    """Every bit of a record flipped, and every end cut off, is noticed."""
    data = codec.encode(fact)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert isinstance(codec.decode(damaged), Corrupt), f"bit {bit}"
    for length in range(len(data)):
        found = codec.decode(data[:length])
        assert isinstance(found, Incomplete), f"cut to {length}"
        assert found.needed == (codec.HEADER_BYTES if length < codec.HEADER_BYTES else len(data))


@given(st.binary(max_size=300))
@example(bytes(200))
def test_any_bytes_have_an_answer(data: bytes) -> None:
    """Bytes that are no record are an answer, never an exception."""
    assert not isinstance(codec.decode(data), Decoded)


@settings(max_examples=200)
@given(st.sampled_from([*Kind, 0, 99]), st.integers(0, 0xFFFF), st.binary(max_size=200), st.integers(0, 9), st.data())
def test_a_body_of_another_program_has_an_answer(
    kind: int, flags: int, body: bytes, items: int, data: st.DataObject
) -> None:
    """A record whose checksums fit but whose body is not one of ours is answered too."""
    meta_bytes = data.draw(st.integers(0, len(body)))
    head = codec_head(0x5242_5953, 1, kind, flags, len(body), meta_bytes, items, body)
    assert isinstance(codec.decode(head + body), Decoded | Corrupt)


def codec_head(
    magic: int, version: int, kind: int, flags: int, body_bytes: int, meta_bytes: int, items: int, body: bytes
) -> bytes:
    from crc32c import crc32c

    head = np.zeros(1, codec.HEADER)
    head[["magic", "version", "kind", "flags", "body_bytes", "meta_bytes", "items", "body_crc"]] = (
        magic, version, kind, flags, body_bytes, meta_bytes, items, crc32c(body),
    )  # fmt: skip
    head["header_crc"] = crc32c(head.tobytes()[:-4])
    return head.tobytes()


def test_another_version_is_said_to_be_one() -> None:
    """A log of a later program is refused by its version, not called damaged."""
    head = codec_head(0x5242_5953, 3, 1, 0, 0, 0, 0, b"")
    found = codec.decode(head)
    assert isinstance(found, Corrupt)
    assert "version 3" in found.why


def test_what_an_older_program_would_misread_is_of_version_2() -> None:
    """It refuses such a log in words: it would let messages wait for who does not count, or mistake an end."""
    webhook = SubscriberSet(2, 1, 1, 1, SubscriberId("a"), 2, SubscriberSettings("http://a/"))
    reader = webhook._replace(settings=replace(webhook.settings, counts=False))
    opened = SegmentOpened(3, 1, (), (webhook,), (), ())
    row = Row(2, 1, 0, Outcome.DROPPED, Reason.PURGED, 0, 1, 0, 0, 0)
    entry = RearmedEntry(2, 1, (1,), (), (1,))
    for version, told in (
        (1, (webhook, opened, Outcomes(4, 1, (row,)), Rearmed(5, 1, 1, (entry,)))),
        (2, (reader, opened._replace(subscribers=(webhook, reader)))),
        (2, (Outcomes(4, 1, (row._replace(reason=Reason.RETENTION),)), Rearmed(5, 1, 1, (entry._replace(key="k"),)))),
    ):
        for fact in told:
            record = codec.encode(fact)
            assert record[4] == version, fact
            assert codec.decode(record).fact == fact


def test_a_replay_without_keys_is_written_as_ever() -> None:
    """The first version reads six values an entry and no seventh: a record of version 1 with more would be damage to
    it, or a torn write that it cuts off with all that stands behind. One for a single subscriber it reads rightly."""
    entry = RearmedEntry(2, 1, (1,), (), (1,))
    for subscriber in (0, 1):
        record = codec.encode(Rearmed(5, 1, 1, (entry, entry._replace(message=3)), subscriber))
        _, entries, *_ = orjson.loads(record[codec.HEADER_BYTES :])
        assert entries == [[2, 1, [1], [], [1], 0], [3, 1, [1], [], [1], 0]]
        assert codec.decode(record).fact == Rearmed(5, 1, 1, (entry, entry._replace(message=3)), subscriber)


def test_what_an_older_version_did_not_write_has_its_default() -> None:
    """A log of before opens: its records have neither hashes of a file's keys nor whom alone a replay is for."""
    said = orjson.dumps
    assert decode_body(FileApplied, 1, 2, said(["q", "hash"])) == FileApplied(1, 2, "q", "hash", None)
    assert decode_body(FileApplied, 1, 2, said(["q", "hash", {}])) == FileApplied(1, 2, "q", "hash", ())
    assert decode_body(Rearmed, 1, 2, said([7, []])) == Rearmed(1, 2, 7, (), 0)
    opened = {"queues": [], "subscribers": [], "applied": [[1, 2, "q", "hash"]], "bad": []}
    found = decode_body(SegmentOpened, 1, 2, said(opened))
    assert isinstance(found, SegmentOpened)
    assert found.applied == (FileApplied(1, 2, "q", "hash", None),)


def test_a_figure_beyond_its_field_does_not_stop_the_log() -> None:
    """What an endpoint or a clock makes up is cut to what the row holds; the outcome is kept."""
    row = Row(1, 2, 70_000, Outcome.FAILED, Reason.STATUS, 99_999, 5, 6, 7, -1, b"")
    found = codec.decode(codec.encode(Outcomes(1, 1, (row,))))
    assert isinstance(found, Decoded)
    assert isinstance(found.fact, Outcomes)
    assert found.fact.rows == (row._replace(attempt=65_535, status=65_535, latency_us=0),)


def test_numpy_sees_the_same_headers() -> None:
    """A whole segment's headers are gathered at once, from sparse offsets too."""
    batch: list[Record] = [message(number, content=bytes(number % 50)) for number in range(1, 701)]
    batch[10] = Outcomes(11, 0, ())
    data = b"xyz" + codec.encode_batch(batch, batch=1, synced_through=0).data
    offsets, end = codec.walk(data, 3, len(data))
    assert end == len(data)
    headers = codec.gather(data, offsets)
    assert headers["sequence"].tolist() == list(range(1, 701))
    for offset, seen in zip(offsets.tolist(), headers, strict=True):
        read = codec.read_header(data, offset)
        assert isinstance(read, Header)
        assert [field if isinstance(field, int) else bytes(field) for field in seen.tolist()] == list(read)
    for every in (1, 64, 256, 1000):
        assert codec.lockstep(data, offsets[::every], every, 700).tolist() == offsets.tolist()
    cut, stopped = codec.walk(data, 3, len(data) - 1)
    assert (len(cut), stopped) == (699, int(offsets[-1]))
    assert len(codec.gather(b"", np.empty(0, np.int64))) == 0
