"""What every journal promises of messages that are erased (``Erasure`` of ``syncbrok.model.journal``, RULES 32)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncbrok.model.facts import Outcome, Outcomes, Reason, Row
from tests.log.test_journal_port import append, publish, told
from tests.support.log.journal_places import PLACES, Place, placed
from tests.support.log.journals import START_US, append_snapshot


@pytest.fixture(params=list(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with placed(request.param, tmp_path) as made:
        yield made


def test_what_is_hidden_is_told_as_erased_by_every_question(place: Place) -> None:
    """Port, hide (RULES 32): from that moment no method tells content, headers or keys of the message, nor what its
    subscribers answered; ids, parents and its place in the queue are told as before. Others are as they were."""
    journal = place.open()
    append_snapshot(journal)
    fields: dict[str, Any] = {"headers": (("X-A", "b"),), "key": "k", "content": b"c" * 60}
    one, other = publish(journal, 2, **fields)
    (keyed,) = publish(journal, 1, **{**fields, "idempotency_key": "once", "fingerprint": b"f" * 16})
    row = Row(one.sequence, 1, 1, Outcome.DEAD, Reason.STATUS, 500, START_US, 0, 0, 1, b"no")
    rows = (row, row._replace(message=other.sequence))
    append(journal, Outcomes(journal.next_sequence, START_US, rows))
    for hides in (False, True):
        if hides:
            journal.hide([one.sequence, keyed.sequence])
        told_one, told_other = journal.read_many([one.sequence, other.sequence])
        assert told_other == other
        assert told_one is not None
        assert told_one.erased == hides
        assert (told_one.content, told_one.headers) == ((b"", ()) if hides else (one.content, one.headers))
        assert (told_one.id, told_one.queue, told_one.parents) == (one.id, one.queue, one.parents)
        assert journal.cached(other.sequence) == other
        assert (journal.cached(one.sequence) is None) == hides
        assert (journal.cached_many([one.sequence, other.sequence])[0] is None) == hides
        assert [row.detail for _, row in journal.rows_of(one.sequence)] == [b"" if hides else b"no"]
        assert [row.detail for _, row in journal.rows_of(other.sequence)] == [b"no"]
        assert (
            journal.with_key("k", 1, 9) == [other.sequence] if hides else [keyed.sequence, other.sequence, one.sequence]
        )
        assert journal.with_idempotency_key("once", 1, 0) == [keyed.sequence]
        assert journal.kind_of(one.sequence) == "message"
        assert journal.queue_sequences(1, 0, 9) == [one.sequence, other.sequence, keyed.sequence]
        assert any(getattr(fact, "headers", ()) and fact.sequence == one.sequence for fact in journal.facts()) != hides


def test_what_is_erased_is_so_after_a_restart_and_the_log_is_whole(place: Place) -> None:
    """Port, erase (RULES 32): the facts are the same, with the same sequences, without the content; in a section that
    is written to it waits for the next one. Nothing is damaged, and a repeated key is known."""
    journal = place.open()
    append_snapshot(journal)
    fields: dict[str, Any] = {"key": "k", "content": b"c" * 60, "idempotency_key": "once", "fingerprint": b"f" * 16}
    one, other = publish(journal, 2, **fields)
    row = Row(one.sequence, 1, 1, Outcome.DEAD, Reason.STATUS, 500, START_US, 0, 0, 1, b"no")
    append(journal, Outcomes(journal.next_sequence, START_US, (row,)))
    gone = [one.sequence]
    journal.hide(gone)
    assert journal.erase_waits_for_snapshot(gone, journal.durable_sequence)
    assert journal.erase(gone) == 0
    append_snapshot(journal)
    assert not journal.erase_waits_for_snapshot(gone, journal.durable_sequence)
    before = told(journal)
    sections = [(section.first, section.last, section.bytes) for section in journal.sections()]
    assert journal.erase(gone) == 1
    assert journal.erase(gone) == 0
    for opened in range(2):
        assert [(section.first, section.last, section.bytes) for section in journal.sections()] == sections
        assert [fact.sequence for fact in told(journal)] == [fact.sequence for fact in before]
        told_one, told_other = journal.read_many([one.sequence, other.sequence])
        assert told_one is not None
        assert (told_one.erased, told_one.content, told_other) == (True, b"", other)
        assert journal.with_idempotency_key("once", 1, 0) == [other.sequence, one.sequence]
        assert journal.with_key("k", 1, 9) == [other.sequence]
        assert [row.detail for _, row in journal.rows_of(one.sequence)] == [b""]
        for section in journal.sections()[:-1]:
            journal.check(section)
        assert (dict(journal.damages), dict(journal.damaged)) == ({}, {})
        if not opened:
            journal.close()
            journal = place.open()
