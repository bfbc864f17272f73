"""The registry of queues and subscribers: changed by facts only, the same way live and on recovery."""

import pytest

from syncbrok.model.errors import UnknownQueue, UnknownSubscriber
from syncbrok.model.facts import FileApplied, QueueDeleted, QueueSet, SubscriberDeleted, SubscriberSet
from syncbrok.model.message import QueueSettings, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.space.state.registry import Registry, subscriber_id

A = SubscriberSettings("http://127.0.0.1:1/")
FACTS = (
    QueueSet(1, 10, 1, QueueName("orders"), QueueSettings(timeout_s=3.0)),
    QueueSet(2, 20, 2, QueueName("bills"), QueueSettings()),
    SubscriberSet(3, 30, 1, 1, SubscriberId("a"), 3, A),
    SubscriberSet(4, 40, 2, 2, SubscriberId("b"), 4, SubscriberSettings("http://127.0.0.1:2/", timeout_s=1.0)),
    FileApplied(5, 50, "orders", "h1"),
    FileApplied(6, 60, "orders/a", "h2"),
)


def registry(*facts) -> Registry:
    made = Registry()
    for fact in facts:
        made.apply(fact)
    return made


def test_what_was_declared_is_found_by_name_and_by_number():
    """A queue and its subscribers are found by name, and by the number that records carry."""
    space = registry(*FACTS)
    assert space.names() == ["bills", "orders"]
    assert space.queue("orders").number == 1
    assert [s.id for s in space.subscribers(1)] == ["a"]
    assert space.subscriber("bills", "b").number == 2
    assert space.destination(1) == (space.subscriber("orders", "a"), "orders", 3.0)
    assert space.destination(2).timeout_s == 1.0
    with pytest.raises(UnknownQueue):
        space.queue("nowhere")
    with pytest.raises(UnknownSubscriber):
        space.subscriber("orders", "b")


def test_a_changed_queue_reaches_the_subscribers_that_follow_it():
    """RULES 3: timeouts are read at each attempt; a subscriber without its own follows its queue's."""
    space = registry(*FACTS, QueueSet(7, 70, 1, QueueName("orders"), QueueSettings(timeout_s=9.0)))
    assert space.destination(1).timeout_s == 9.0
    assert space.applied == {"orders": "h1", "orders/a": "h2"}


def test_a_deleted_queue_takes_its_subscribers_and_leaves_its_name():
    """Numbers are never used again, and reports about old messages still say whose they were."""
    space = registry(*FACTS, QueueDeleted(7, 70, 1), SubscriberDeleted(8, 80, 2))
    assert space.names() == ["bills"]
    assert space.subscriber_numbered(1) is None
    assert (space.queue_name(1), space.subscriber_id(1), space.subscriber_id(2)) == ("orders", "a", "b")
    assert (space.last_queue_number, space.last_subscriber_number) == (2, 2)


def test_a_queue_made_anew_takes_its_subscribers_from_the_file_again():
    """RULES 18: what was applied to a queue that is gone is forgotten when one of its name is made anew."""
    space = registry(*FACTS, QueueDeleted(7, 70, 1))
    assert space.applied["orders/a"] == "h2"
    space.apply(QueueSet(8, 80, 3, QueueName("orders"), QueueSettings()))
    assert space.applied == {"orders": "h1"}


def test_a_snapshot_is_the_whole_registry():
    """A segment can be read alone: its first record holds everything declared, and the numbers given last."""
    space = registry(*FACTS, QueueDeleted(7, 70, 2))
    opened = space.snapshot(9, 90)
    alone = registry(opened)
    assert alone.snapshot(9, 90) == opened
    assert (alone.last_queue_number, alone.last_subscriber_number) == (2, 2)
    behind = registry(*FACTS)
    behind.apply(opened)
    assert behind.snapshot(9, 90) == opened
    assert behind.names() == ["orders"]


def test_identity_is_the_name_else_the_endpoint():
    """RULES 18: the id of a subscriber without a name follows from its endpoint alone."""
    assert subscriber_id(SubscriberSettings("http://x/", name="billing")) == "billing"
    assert subscriber_id(SubscriberSettings("http://x/")) == subscriber_id(SubscriberSettings("http://x/", window=3))
    assert subscriber_id(SubscriberSettings("http://x/")) != subscriber_id(SubscriberSettings("http://y/"))
