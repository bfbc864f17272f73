"""INTERFACES 1, ``traces``: where a message stands in traces follows from ids alone."""

import pytest

from syncbrok.delivery.trace_context import TraceContexts, attempt_span, publish_span, read_traceparent, wait_span
from syncbrok.model.names import MessageId, make_message_id
from tests.support.delivery.endpoint import delivery, message, message_id

TIME_MS = 1_700_000_000_000


def unknown(_: int) -> MessageId | None:
    return None


def test_a_share_takes_so_many_trees() -> None:
    """The share of a thousand trees is what was asked for, and each smaller share is among the larger one."""
    ids = [make_message_id(TIME_MS + one, one, bytes(range(16))) for one in range(1, 1_001)]
    taken = {share: {one for one in ids if TraceContexts(share, unknown).recorded(one)} for share in (0.01, 0.25, 1.0)}
    assert len(taken[1.0]) == 1_000
    assert 200 <= len(taken[0.25]) <= 300
    assert len(taken[0.01]) <= 30
    assert taken[0.01] < taken[0.25] < taken[1.0]


def test_the_root_is_known_without_the_log() -> None:
    """Of a root, of a child of a root, of what is recent, and of what was read before; else it is not known, and no
    span is named."""
    root, parent = message_id(3), message_id(5)
    contexts = TraceContexts(1.0, {4: message_id(4)}.get)
    assert contexts.root_of(message()) == message().id
    assert contexts.root_of(message(parents=(root,))._replace(root=3)) == root
    assert contexts.root_of(message(parents=(parent,))._replace(root=4)) == message_id(4)
    deep = message(parents=(parent,))._replace(root=3)
    assert contexts.root_of(deep) is None
    assert contexts.traceparent(delivery(of=deep)) == ""
    contexts.note_root(3, root)
    assert contexts.root_of(deep) == root
    named = contexts.traceparent(delivery(of=deep, number=2))
    assert named == f"00-{root.hex()}-{attempt_span(deep.id, delivery().attempt.subscriber, 2).hex()}-01"


def test_spans_have_ids_of_their_own() -> None:
    """No two spans of a message have the same id, and each time the same one."""
    one = message_id(7)
    ids = [publish_span(one), attempt_span(one, 1, 1), attempt_span(one, 1, 11), attempt_span(one, 11, 1)]
    ids += [wait_span(one, 1, 1, "key"), wait_span(one, 1, 1, "delay"), publish_span(message_id(8))]
    assert len(set(ids)) == len(ids)
    assert publish_span(one) == publish_span(message_id(7))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", True),
        ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-comes", True),
        ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", False),
        ("00-00000000000000000000000000000000-b7ad6b7169203331-01", False),
        ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", False),
        ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", False),
        ("00-ab-cd-01", False),
        ("", False),
    ],
)
def test_a_publishers_header_is_read_as_w3c_says(text: str, *, found: bool) -> None:
    """W3C Trace Context: what is none is no link."""
    assert (read_traceparent(text) is not None) is found
