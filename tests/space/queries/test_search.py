"""Finding messages by what they are, how they stand and what is in them (``GET /v1/messages``)."""

import pytest

from syncbrok.model.errors import Malformed, UnknownQueue, UnknownSubscriber
from syncbrok.model.facts import Outcome, Reason
from syncbrok.model.names import key_digest
from syncbrok.space.channels import Bound
from syncbrok.space.queries.search import Sought
from tests.support.delivery.factlog import BROKEN, OK
from tests.support.space.viewed_log import ViewedLog, log_of_two_queues


async def found(log: ViewedLog, limit: int = 100, **sought: object) -> list[int]:
    """Sequences on all pages, each asked for with ``next`` of the one before."""
    seen: list[int] = []
    position: int | None = 0
    while position is not None:
        page = await log.view.search(Sought(**sought), position, limit)  # type: ignore[arg-type]
        assert len(page.items) <= limit
        seen += [one.sequence for one in page.items]
        position = page.next
    return seen


@pytest.fixture
def log() -> ViewedLog:
    return log_of_two_queues()


def with_fields(log: ViewedLog, queue: int = 1, **fields: object) -> int:
    log.fields = fields
    return log.publish(queue)


async def test_all_that_is_said_must_be_true(log: ViewedLog) -> None:
    """INTERFACES 3: queue, state, key, time and text narrow each other; newest first, or the oldest."""
    one, other = with_fields(log, key="k"), with_fields(log, 2, key="k")
    log.later(5)
    third, fourth = with_fields(log, key="k", content=b"Grand Total"), with_fields(log)
    log.pump(lambda attempt: BROKEN if attempt.message == fourth else OK)
    assert await found(log, queue="q1") == [fourth, third, one]
    assert await found(log, queue="q1", newest_first=False) == [one, third, fourth]
    assert await found(log, key="k", since=Bound(one)) == [third, other, one]
    assert await found(log, key="k", since=Bound(one), newest_first=False) == [one, other, third]
    assert await found(log, 1, key="k", newest_first=False) == [one, other, third]
    assert await found(log, key="k", until=Bound(third), newest_first=False) == [one, other]
    assert await found(log, key="k", since=Bound(other), newest_first=False) == [other, third]
    assert await found(log, key="k", queue="q1") == [third, one]
    assert await found(log, key="k", queue="q1", text="total") == [third]
    assert await found(log, state="complete", queue="q1") == [third, one]
    assert await found(log, state="pending") == [fourth]
    began_us = log.facts[third - 1].time_us
    assert await found(log, since=Bound(time_us=began_us)) == [fourth, third]
    assert await found(log, until=Bound(time_us=began_us)) == [other, one]
    assert await found(log, since=Bound(other), until=Bound(fourth)) == [third, other]
    assert await found(log, since=Bound(time_us=began_us), until=Bound(third)) == []
    assert await found(log, queue="q2", text="total") == []


async def test_text_is_looked_for_where_it_says(log: ViewedLog) -> None:
    """INTERFACES 3: the id, the key, the content type, names and values of headers, the content; ASCII letters in
    either case, all else byte for byte; never across two of them. The idempotency key is none of these."""
    one = with_fields(
        log,
        key="Order-7",
        idempotency_key="secretive",
        content_type="text/x-Special",
        headers=(("x-shop", "Köln"),),
        content=b"x" * 300_000 + "Straße 5".encode() + bytes([0, 255]),
    )
    with_fields(log, content=b"other")
    for text in ("order-7", "ORDER", "x-special", "X-Shop", "k\u00f6ln", "STRA\u00dfe 5", "x\u0073", "\u00dfE 5\0"):
        assert await found(log, text=text) == [one], text
    for text in ("K\u00d6LN", "secretive", "order-7text", "x-shopk", "stra\u00dfe 6"):
        assert await found(log, text=text) == [], text
    assert await found(log, text=(await log.view.message(log.id(one))).id.hex()[-12:]) == [one]
    straddling = with_fields(log, content=b"x" * (256 * 1024 - 2) + b"needle")
    assert await found(log, text="NEEDLE") == [straddling], "also where it stands across two pieces"


async def test_what_is_erased_is_not_found_by_what_it_was(log: ViewedLog) -> None:
    """RULES 32: neither by its text nor by its key; by its id it is."""
    one = with_fields(log, key="k1", idempotency_key="i1", headers=(("x-a", "header"),), content=b"content")
    log.pump(lambda _: OK)
    assert await found(log, text="content") == await found(log, text="header") == [one]
    log.journal.hide({one})
    for sought in ({"text": "content"}, {"text": "header"}, {"text": "k1"}, {"key": "k1", "queue": "q1"}):
        assert await found(log, **sought) == []
    assert await found(log, idempotency_key="i1", queue="q1") == []
    for sought in (
        {"key": key_digest("k1", log.journal.id_key)},
        {"idempotency_key": key_digest("i1", log.journal.id_key)},
    ):
        assert await found(log, **sought) == [], "nor by what stands in the place of a key"
    assert await found(log, queue="q1", state="complete") == [one]


async def test_a_delivery_is_found_by_how_it_stands_there(log: ViewedLog) -> None:
    """INTERFACES 3: with ``subscriber`` state and reason are those of its delivery, else of the message, and the reason
    of any delivery."""
    log.subscriber(2, 1)
    good, dead, filtered, cancelled = (log.publish(1) for _ in range(4))
    log.pump(lambda attempt: BROKEN if (attempt.message, attempt.subscriber) == (dead, 1) else OK)
    waiting = log.publish(1, dead)
    log.later(10)
    log.pump(lambda attempt: BROKEN if (attempt.message, attempt.subscriber) == (dead, 1) else OK)
    at_one = {"queue": "q1", "subscriber": "s1"}
    assert await found(log, **at_one, state="dead") == [waiting, dead]
    assert await found(log, **at_one, state="dead", reason="parent_failed") == [waiting]
    assert await found(log, queue="q1", subscriber="s2", state="dead") == [waiting]
    assert await found(log, **at_one, state="delivered") == [cancelled, filtered, good]
    assert await found(log, **at_one) == [waiting, cancelled, filtered, dead, good]
    assert await found(log, state="dead") == [waiting, dead]
    assert await found(log, reason="parent_failed") == [waiting]
    assert await found(log, reason="status") == [dead]
    ended = log.publish(1)
    log.end_all(ended, Outcome.DROPPED, Reason.CANCELLED)
    assert await found(log, **at_one, reason="cancelled") == await found(log, reason="cancelled") == [ended]
    assert await found(log, **at_one, state="dropped", text="nothing like it") == []


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_go_on_while_messages_come(log: ViewedLog, newest_first: bool) -> None:
    """INTERFACES 3: ``next`` is a place in the log: none is missed and none comes twice, whatever is published between
    two pages; a page ends with what was looked at when its time is over."""
    made = [with_fields(log, content=b"word %d" % (at % 7)) for at in range(300)]
    wanted = [one for at, one in enumerate(made) if at % 7 == 3]
    seen: list[int] = []
    position: int | None = 0
    while position is not None:
        page = await log.view.search(Sought(text="word 3", newest_first=newest_first), position, 5)
        seen += [one.sequence for one in page.items]
        position = page.next
        with_fields(log, content=b"2")
    assert seen == (wanted[::-1] if newest_first else wanted)


async def test_only_queues_that_may_be_seen_are_looked_at(log: ViewedLog) -> None:
    """INTERFACES 1: for a narrowed token the others are as if they were not there, also behind a key."""
    mine = with_fields(log, key="k", content=b"word")
    with_fields(log, 2, key="k", content=b"word")
    for sought in (Sought(text="word"), Sought(key="k", text="word"), Sought(state="pending"), Sought(since=Bound(1))):
        page = await log.view.search(sought, 0, 9, lambda queue: queue == "q1")
        assert [one.sequence for one in page.items] == [mine], sought


async def test_what_cannot_be_is_refused(log: ViewedLog) -> None:
    """INTERFACES 3: a state that a message cannot have, a subscriber without its queue, and what is not there."""
    for sought, error in (
        (Sought(state="retrying"), Malformed),
        (Sought(queue="q1", subscriber="s1", state="held"), Malformed),
        (Sought(subscriber="s1"), Malformed),
        (Sought(queue="q9"), UnknownQueue),
        (Sought(queue="q1", subscriber="s9"), UnknownSubscriber),
    ):
        with pytest.raises(error):
            await log.view.search(sought, 0, 9)
