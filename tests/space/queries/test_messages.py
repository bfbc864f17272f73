"""A message as people read it: its deliveries, its attempts, and why it is not on its way."""

import pytest

from syncbrok.delivery.handler import AttemptResult
from syncbrok.model.errors import Gone, Lost, Malformed, UnknownMessage, UnknownQueue
from syncbrok.model.facts import Outcome, Reason
from syncbrok.model.message import ParentFailure, Scope
from syncbrok.model.names import id_text, make_message_id
from syncbrok.space.reports import Content
from tests.support.delivery.factlog import BROKEN, KEY, OK
from tests.support.space.viewed_log import ViewedLog


@pytest.fixture
def log() -> ViewedLog:
    """Queue q1 with subscribers s1 and s2, queue q2 with s3."""
    log = ViewedLog()
    log.queue(1)
    log.queue(2)
    log.subscriber(1, 1)
    log.subscriber(2, 1)
    log.subscriber(3, 2)
    return log


async def waits_for(log: ViewedLog, sequence: int) -> str:
    return (await log.view.message(log.id(sequence))).waits_for


async def test_a_message_tells_every_attempt(log: ViewedLog) -> None:
    """GET of a message shows each delivery with its attempts, oldest first, and when the next one is due."""
    log.fields = {"content": b"12345", "content_type": "text/plain", "headers": (("ce-type", "a"),)}
    message = log.publish(1)
    log.pump(lambda attempt: OK if attempt.subscriber == 1 else AttemptResult(Reason.STATUS, 503, detail=b"busy"))

    report = await log.view.message(log.id(message))

    assert (report.id, report.queue, report.state) == (log.id(message), "q1", "pending")
    assert (report.content_bytes, report.content_type, report.headers) == (5, "text/plain", (("ce-type", "a"),))
    first, second = report.deliveries
    assert (first.subscriber, first.state, len(first.attempts)) == ("s1", "delivered", 1)
    assert (second.subscriber, second.state, second.endpoint) == ("s2", "retrying", "http://s2/")
    assert [(row.attempt, row.status, row.detail) for row in second.attempts] == [(1, 503, b"busy")]
    assert second.next_attempt_us == log.now_us + 1_000_000
    assert await log.view.content(log.id(message)) == Content(b"12345", "text/plain")


async def test_one_row_of_a_cascade_stands_with_every_subscriber(log: ViewedLog) -> None:
    """A cascade writes one row a message; read, it is one end for each delivery that had not ended (RULES 20)."""
    parent = log.publish(2)
    child = log.publish(1, parent)
    log.pump(lambda _: AttemptResult(Reason.GONE, 410))

    report = await log.view.message(log.id(child))

    assert report.state == "dead"
    assert [(d.subscriber, d.state, d.reason) for d in report.deliveries] == [
        ("s1", "dead", "parent_failed"),
        ("s2", "dead", "parent_failed"),
    ]
    assert [[row.subscriber for row in d.attempts] for d in report.deliveries] == [[1], [2]]


async def test_a_cancel_keeps_what_was_delivered(log: ViewedLog) -> None:
    """A cancel ends what has not been delivered (RULES 22), and the report does not say it ended the rest."""
    message = log.publish(1)
    log.pump(lambda attempt: OK if attempt.subscriber == 1 else BROKEN)
    log.end_all(message, Outcome.DROPPED, Reason.CANCELLED)

    report = await log.view.message(log.id(message))

    assert [(d.subscriber, d.state, d.reason) for d in report.deliveries] == [
        ("s1", "delivered", ""),
        ("s2", "dropped", "cancelled"),
    ]


async def test_a_deleted_subscriber_keeps_its_story(log: ViewedLog) -> None:
    """What a subscriber was sent is told under its name after it is gone; what it was owed ended dropped (RULES 14)."""
    message = log.publish(1)
    log.pump(lambda attempt: OK if attempt.subscriber == 1 else BROKEN)
    log.unsubscribe(2)
    log.unsubscribe(1)
    log.pump()

    report = await log.view.message(log.id(message))

    assert [(d.subscriber, d.state, d.reason, d.endpoint) for d in report.deliveries] == [
        ("s1", "delivered", "", ""),
        ("s2", "dropped", "unsubscribed", ""),
    ]


async def test_who_did_not_count_does_not_by_being_deleted(log: ViewedLog) -> None:
    """RULES 3: a reader that comes only to take messages, such as a WebSocket without a group, counts as little once it
    has gone as before, whether it had taken its message or not."""
    log.subscriber(4, 1, counts=False)
    taken = log.publish(1)
    log.pump()
    owed = log.publish(1)
    log.unsubscribe(4)
    log.pump()

    for message, state in ((taken, "delivered"), (owed, "dropped")):
        deliveries = (await log.view.message(log.id(message))).deliveries
        assert [(d.subscriber, d.state, d.counted) for d in deliveries] == [
            ("s1", "delivered", True),
            ("s2", "delivered", True),
            ("s4", state, False),
        ]


async def test_what_a_deleted_subscriber_was_owed_is_told(log: ViewedLog) -> None:
    """RULES 14: a delivery that was never tried ends ``dropped`` too, and is shown; nothing is lost silently. One that
    had ended before, and one that the message did not count, are not."""
    early = log.publish(1)
    log.end_all(early, Outcome.DROPPED, Reason.CANCELLED)
    message = log.publish(1)
    log.unsubscribe(2)
    later = log.publish(1)
    log.now_us += 1
    log.end_all(message, Outcome.DROPPED, Reason.PURGED)

    async def told(sequence: int) -> list[tuple[str, str, str, bool]]:
        deliveries = (await log.view.message(log.id(sequence))).deliveries
        return [(d.subscriber, d.state, d.reason, d.counted) for d in deliveries]

    assert await told(early) == [("s1", "dropped", "cancelled", True), ("s2", "dropped", "cancelled", True)]
    assert await told(message) == [("s1", "dropped", "purged", True), ("s2", "dropped", "unsubscribed", True)]
    assert [name for name, *_ in await told(later)] == ["s1"]


async def test_a_damaged_record_is_lost_and_not_old(log: ViewedLog) -> None:
    """Nothing is lost silently: what the log names but cannot read is not said to be older than it is kept."""
    message = log.publish(1)
    log.journal.read_many = lambda sequences: [None for _ in sequences]  # type: ignore[method-assign]
    for read in (log.view.message, log.view.content):
        with pytest.raises(Lost, match="damaged"):
            await read(log.id(message))


async def test_an_id_of_another_broker_is_unknown(log: ViewedLog) -> None:
    """Only ids this log issued are messages of it; a fact that is no message has no id."""
    for stranger in (make_message_id(1, 6, b"x" * 16), make_message_id(1, 1, KEY), make_message_id(1, 10**9, KEY)):
        with pytest.raises(UnknownMessage):
            await log.view.message(stranger)


async def test_what_retention_dropped_is_gone(log: ViewedLog) -> None:
    """GET of a message whose segment was dropped answers gone, not unknown (RULES 2)."""
    message = log.publish(1)
    log.journal.trim_through(message)
    for read in (log.view.message, log.view.content):
        with pytest.raises(Gone):
            await read(log.id(message))
        with pytest.raises(UnknownMessage):
            await read(make_message_id(1, message, b"x" * 16))  # it never was, so it is not gone


async def test_it_says_which_subscriber_of_the_parent_is_failing(log: ViewedLog) -> None:
    """A waiting message names the parent, its queue, who fails there, how often, and when it is next tried."""
    parent = log.publish(2)
    child = log.publish(1, parent)
    log.pump(lambda _: BROKEN)
    log.later(1)
    log.pump(lambda _: BROKEN)

    report = await log.view.message(log.id(child))

    assert report.state == "waiting"
    assert report.blocked_by == (log.id(parent),)
    due = "22:13:22Z"  # a second after the second attempt at 22:13:21
    expected = f"waits for parent {id_text(log.id(parent))} in queue q2, which subscriber s3 has failed 2 times"
    assert report.waits_for == f"{expected}; next attempt {due}"
    assert [d.state for d in report.deliveries] == ["blocked", "blocked"]
    assert report.deliveries[0].blocked_by == (log.id(parent),)


async def test_it_names_the_root_of_a_long_line(log: ViewedLog) -> None:
    """Of a chain of waiting messages the one at its root is what an operator must mend."""
    first = last = log.publish(2)
    for _ in range(5):
        before, last = last, log.publish(1, last)
    log.pump(lambda _: BROKEN)

    words = await waits_for(log, last)

    assert f"parent {id_text(log.id(before))} in queue q1, which waits itself" in words
    assert f"at the root of it is {id_text(log.id(first))} in queue q2, which subscriber s3 has failed once" in words


async def test_it_counts_the_other_parents(log: ViewedLog) -> None:
    """With many parents one is explained and the others are counted."""
    parents = [log.publish(2) for _ in range(3)]
    child = log.publish(1, *parents)
    log.pump(lambda _: BROKEN)
    assert (await waits_for(log, child)).endswith("(and for 2 more)")


async def test_a_paused_subscriber_is_named(log: ViewedLog) -> None:
    """Paused subscribers still count (RULES 14): who waits for one is told that it is paused, not that it fails."""
    log.subscriber(3, 2, paused=True)
    parent = log.publish(2)
    child = log.publish(1, parent)
    log.pump()
    assert await waits_for(log, parent) == "subscriber s3 does not take: it is paused"
    assert (await waits_for(log, child)).endswith("in queue q2, which subscriber s3 does not take: it is paused")


async def test_a_held_message_names_what_must_be_replayed(log: ViewedLog) -> None:
    """``hold`` waits for a replay of the parent that ended badly (RULES 12): the words say so."""
    parent = log.publish(2)
    child = log.publish(1, parent, policy=ParentFailure.HOLD)
    log.pump(lambda _: AttemptResult(Reason.GONE, 410))
    report = await log.view.message(log.id(child))
    assert report.state == "held"
    name = id_text(log.id(parent))
    assert report.waits_for == f"is held for parent {name} in queue q2, which ended dead: replay it to go on"
    assert report.blocked_by == (log.id(parent),)


async def test_a_delay_is_named(log: ViewedLog) -> None:
    """A message with a time not before (RULES 7) says that time; of another day with its date."""
    soon = log.publish(1, delay_s=60)
    late = log.publish(1, delay_s=86_400)
    assert await waits_for(log, soon) == "is not due before 22:14:20Z"
    assert await waits_for(log, late) == "is not due before 2023-11-15T22:13:20Z"


async def test_a_key_is_named(log: ViewedLog) -> None:
    """A key edge orders only (RULES 6); who waits behind another message of the key is told of it."""
    first = log.publish(2, key="k")
    second = log.publish(2, key="k")
    log.pump(lambda _: BROKEN)
    words = await waits_for(log, second)
    assert words.startswith(f"waits for the message before it of key 'k', {id_text(log.id(first))} in queue q2")
    assert (await log.view.message(log.id(second))).blocked_by == (log.id(first),)


async def test_with_scope_same_one_subscriber_may_wait_alone(log: ViewedLog) -> None:
    """With scope ``same`` a child goes to who has had the parent; the other is told what it waits for (RULES 11)."""
    parent = log.publish(1, scope=Scope.SAME)
    child = log.publish(1, parent, scope=Scope.SAME)
    log.pump(lambda attempt: BROKEN if attempt.subscriber == 2 else OK)
    report = await log.view.message(log.id(child))
    assert [(d.state, d.blocked_by) for d in report.deliveries] == [("delivered", ()), ("blocked", (log.id(parent),))]


async def test_what_is_on_its_way_or_ended_waits_for_nothing(log: ViewedLog) -> None:
    """No words where there is nothing to explain."""
    message = log.publish(1)
    log.take()
    assert await waits_for(log, message) == ""
    for attempt in list(log.out):
        log.answer(attempt)
    log.commit()
    assert (await log.view.message(log.id(message))).state == "complete"
    assert await waits_for(log, message) == ""


async def test_a_queue_is_read_from_any_point(log: ViewedLog) -> None:
    """Pages follow the log, each message once, until ``next`` is None."""
    published = [log.publish(1) for _ in range(7)]
    log.publish(2)
    found: list[int] = []
    after: int | None = 0
    while after is not None:
        page = await log.view.messages("q1", after, 3, None)
        assert len(page.items) <= 3
        found += [report.sequence for report in page.items]
        after = page.next
    assert found == published
    assert [d.subscriber for d in page.items[0].deliveries] == ["s1", "s2"]


@pytest.mark.parametrize("state", ["pending", "waiting", "complete", "dead"])
async def test_a_state_filters_a_queue(log: ViewedLog, state: str) -> None:
    """``?state=`` finds exactly the messages in that state, over pages."""
    for _ in range(30):
        parent = log.publish(2)
        log.publish(2, parent)
    log.pump(lambda a: (OK, BROKEN, AttemptResult(Reason.GONE, 410))[a.message // 2 % 3])
    expected = [s for s, found in log.states().items() if found == state]
    found, after = [], 0
    while after is not None:
        page = await log.view.messages("q2", after, 4, state)
        found += [report.sequence for report in page.items]
        assert {report.state for report in page.items} <= {state}
        after = page.next
    assert expected
    assert found == expected


async def test_a_state_that_cannot_be_is_refused(log: ViewedLog) -> None:
    """A typing mistake in a filter is an error, not an empty list."""
    with pytest.raises(Malformed, match="pendign"):
        await log.view.messages("q1", 0, 10, "pendign")
    with pytest.raises(UnknownQueue):
        await log.view.messages("nowhere", 0, 10, None)


async def test_messages_are_found_by_key(log: ViewedLog) -> None:
    """``?key=`` and ``?idempotency_key=`` find what has exactly that key, newest first; a sidecar knows hashes only."""
    one = log.publish(1, key="a")
    log.publish(1, key="b")
    two = log.publish(2, key="a")
    log.fields = {"idempotency_key": "order-1"}
    three = log.publish(1)
    log.fields = {"idempotency_key": "order-2"}
    log.publish(1)
    assert [r.sequence for r in await log.view.find("a", None, 10)] == [two, one]
    assert [r.sequence for r in await log.view.find(None, "order-1", 10)] == [three]
    assert await log.view.find("a", "order-1", 10) == ()


async def test_what_is_found_by_key_comes_in_pages(log: ViewedLog) -> None:
    """INTERFACES 3: lists take ``after`` and answer ``next``; newest first, so the next page is the older ones. Pages
    show each message once, and the last one says that it is."""
    wanted = [log.publish(1 + number % 2, key="a" if number % 3 else "b") for number in range(9)]
    by_key = [sequence for number, sequence in enumerate(wanted) if number % 3]
    by_idempotency_key = []
    for queue in (1, 2, 1, 2):
        log.fields = {"idempotency_key": "once"}
        by_idempotency_key.append(log.publish(queue))
    for key, idempotency_key, expected in (("a", None, by_key), (None, "once", by_idempotency_key)):
        for limit in (1, 2, 3, 4, 6, 10):
            found: list[int] = []
            before = None
            for _ in range(20):
                page = await log.view.find_page(key, idempotency_key, before, limit)
                found += [report.sequence for report in page.items]
                assert len(page.items) <= limit
                before = page.next
                if before is None:
                    break
            assert found == expected[::-1]
