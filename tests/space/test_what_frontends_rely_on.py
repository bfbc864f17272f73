"""What every frontend relies on, asked of the Space and of the one in memory that tests of frontends stand on: receipts
of the channels, reports of the view, and errors. ``tests.support.space.fake_space`` may refuse and break when it is
told to; left alone it must answer as the Space does whose subscriber takes nothing.

Broken by hand, in the one in memory, to see these fail: a key known by its content alone; a key used twice in a unit; a
page of every queue's messages; a second declaration that says it created; a publish to a subscriber that is not there.
"""

import asyncio
import inspect
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from syncbrok.frontends.over_http.requests.time_slices import at_once as run_at_once
from syncbrok.model.errors import (
    Conflict,
    IdempotencyConflict,
    Malformed,
    SyncbrokError,
    UnknownMessage,
    UnknownParent,
    UnknownQueue,
    UnknownSubscriber,
)
from syncbrok.model.file_entry import key_hashes
from syncbrok.model.message import Message, ParentFailure, QueueSettings, RetryPolicy, SubscriberSettings
from syncbrok.model.names import MessageId, QueueName, SubscriberId, make_message_id
from syncbrok.space import channels
from syncbrok.space.channels import (
    Accepted,
    Bound,
    Cancel,
    Channels,
    Declared,
    DeclareQueue,
    FromFile,
    Planned,
    Publish,
    Replay,
    ReplayPlan,
    Subscribe,
)
from syncbrok.space.queries.view import View
from tests.support.polling import eventually
from tests.support.space.fake_space import FakeSpace
from tests.support.space.spaces import running_space

Q, OTHER, NOWHERE = QueueName("orders"), QueueName("bills"), QueueName("nowhere")
HOLDS = SubscriberSettings("http://127.0.0.1:1/", name=SubscriberId("holds"), paused=True)
ASKED = (Publish, DeclareQueue, Subscribe, Cancel, Replay)
"""the commands that are asked here, of both"""
ANSWERS = (Accepted, Bound, Declared, Planned, ReplayPlan, FromFile, Channels)
_OF_CHANNELS = {one for one in vars(channels).values() if getattr(one, "__module__", "") == channels.__name__}
COMMANDS = {one for one in _OF_CHANNELS if isinstance(one, type) and hasattr(one, "_fields")}.difference(ANSWERS)
NEVER_ISSUED = make_message_id(1_700_000_000_000, 99, bytes(16))
SOON_S = 60


class Space(NamedTuple):
    """What a frontend is given; ``view`` is a ``View``, or keeps its promises."""

    channels: Channels
    view: Any

    async def publish(self, queue: QueueName, *messages: Message, only: SubscriberId | None = None) -> Accepted:
        accepted: Accepted = await self.channels.messages.put(Publish.of(queue, messages, only))
        return accepted


@pytest.fixture(params=["real", "in memory"])
async def space(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Space]:
    """With two queues, each with one subscriber that takes nothing."""
    if request.param == "real":
        async with running_space(tmp_path) as running:
            yield await _declared(Space(running.space.channels, running.view))
    else:
        fake = FakeSpace()
        yield await _declared(Space(fake.channels, fake))


async def _declared(made: Space) -> Space:
    for queue in (Q, OTHER):
        await made.channels.queues.put(DeclareQueue(queue, QueueSettings()))
        await made.channels.subscribers.put(Subscribe(queue, HOLDS))
    return made


async def refused(receipt: "asyncio.Future[Any]", kind: type[SyncbrokError]) -> SyncbrokError:
    with pytest.raises(kind) as caught:
        await receipt
    assert type(caught.value) is kind
    return caught.value


# -- queues and subscribers -------------------------------------------------------------------------------------------


async def test_a_queue_declared_again_alike_is_unchanged(space: Space) -> None:
    """INTERFACES 3: 201 for a new queue, 200 for one with the same settings, 409 for others."""
    put = space.channels.queues.put
    assert await put(DeclareQueue(QueueName("new"), QueueSettings())) == Declared("created", "new")
    assert await put(DeclareQueue(QueueName("new"), QueueSettings())) == Declared("unchanged", "new")
    other = replace(QueueSettings(), retry=RetryPolicy((1.0,), 0.0))
    await refused(put(DeclareQueue(QueueName("new"), other)), Conflict)
    assert space.view.queue("new").settings == QueueSettings()


async def test_queues_come_in_pages_by_name(space: Space) -> None:
    """INTERFACES 3, paging: ``next`` is given back as ``after``, and there is none with the last page."""
    await space.channels.queues.put(DeclareQueue(QueueName("later"), QueueSettings()))
    seen: list[str] = []
    after: str | None = None
    for _ in range(9):
        page, after = space.view.queues(after, 2)
        seen += [one.name for one in page]
        if after is None:
            break
    assert seen == ["bills", "later", "orders"]
    assert [one.name for one in space.view.queues(None, 9, "R")[0]] == ["later", "orders"]
    page, after = space.view.queues(None, 1, "r", lambda name: name != "later")
    assert ([one.name for one in page], after) == (["orders"], None)


async def test_a_subscriber_is_known_by_its_name_else_its_endpoint(space: Space) -> None:
    """RULES 18: identity; alike again is unchanged, otherwise a conflict, and nothing has changed."""
    put = space.channels.subscribers.put
    named = SubscriberSettings("http://127.0.0.1:2/", name=SubscriberId("billing"))
    unnamed = SubscriberSettings("http://127.0.0.1:3/")
    assert await put(Subscribe(Q, named)) == Declared("created", "billing")
    assert await put(Subscribe(Q, named)) == Declared("unchanged", "billing")
    declared: Declared = await put(Subscribe(Q, unnamed))
    assert declared.what == "created"
    assert await put(Subscribe(Q, unnamed)) == Declared("unchanged", declared.id)
    await refused(put(Subscribe(Q, replace(named, window=3))), Conflict)
    await refused(put(Subscribe(NOWHERE, named)), UnknownQueue)
    shown = space.view.subscriber(Q, "billing")
    assert (shown.id, shown.queue, shown.state) == ("billing", Q, "active")
    assert shown.settings.endpoint == "http://127.0.0.1:2/"
    assert shown.settings.window == SubscriberSettings("http://x/").window
    assert space.view.subscriber(Q, "holds").state == "paused"
    assert space.view.queue(Q).subscribers == 3


async def test_subscribers_come_in_pages_by_id(space: Space) -> None:
    """INTERFACES 3, paging; a queue lists its own."""
    for name in ("zebra", "ant"):
        await space.channels.subscribers.put(
            Subscribe(Q, SubscriberSettings(f"http://127.0.0.1:2/{name}", name=SubscriberId(name)))
        )
    page, after = space.view.subscribers(Q, None, 2)
    assert ([one.id for one in page], after) == (["ant", "holds"], "holds")
    page, after = space.view.subscribers(Q, after, 2)
    assert ([one.id for one in page], after) == (["zebra"], None)
    assert [one.id for one in space.view.subscribers(OTHER, None, 9)[0]] == ["holds"]
    assert [one.id for one in space.view.subscribers(Q, None, 9, "NT")[0]] == ["ant"]
    page, after = space.view.subscribers(Q, None, 1, "a")
    assert ([one.id for one in page], after) == (["ant"], "ant")
    assert [one.id for one in space.view.subscribers(Q, after, 9, "a")[0]] == ["zebra"]


async def test_an_entry_of_a_file_is_applied_when_it_has_changed(space: Space) -> None:
    """RULES 18: by its hash; of one that has changed the keys that the file says otherwise, and never a conflict."""
    name, once, twice = QueueName("filed"), RetryPolicy((1.0,), 0.0), RetryPolicy((2.0,), 0.0)
    declared, slower = replace(QueueSettings(), retry=once), replace(QueueSettings(), retry=twice)

    async def apply(settings: QueueSettings, hash_: str, **keys: str) -> Declared:
        return await space.channels.queues.put(DeclareQueue(name, settings, FromFile(hash_, keys)))

    assert await apply(declared, "a", retry="1") == Declared("created", name)
    assert await apply(slower, "a", retry="2") == Declared("unchanged", name)
    assert space.view.queue(name).settings == declared
    assert await apply(slower, "b", retry="2") == Declared("changed", name)
    assert await apply(declared, "c", retry="2") == Declared("unchanged", name)
    assert space.view.queue(name).settings == slower


async def test_a_subscriber_of_a_file_is_applied_when_it_has_changed(space: Space) -> None:
    """RULES 18: as a queue; another secret is a change too, and a queue that is not there an error."""
    settings = SubscriberSettings("http://127.0.0.1:2/", name=SubscriberId("filed"))
    secret, other = (f"whsec_{b64encode(bytes([n]) * 24).decode()}" for n in (1, 2))

    async def apply(queue: QueueName, window: int, secret: str, hash_: str) -> Declared:
        said = FromFile(hash_, key_hashes({"window": window}, secret))
        item = Subscribe(queue, replace(settings, window=window), secret, None, said)
        return await space.channels.subscribers.put(item)

    assert await apply(Q, 5, secret, "a") == Declared("created", "filed")
    assert await apply(Q, 6, other, "a") == Declared("unchanged", "filed")
    assert space.view.subscriber(Q, "filed").settings.window == 5
    assert await apply(Q, 6, secret, "b") == Declared("changed", "filed")
    assert space.view.subscriber(Q, "filed").settings.window == 6
    assert await apply(Q, 6, other, "c") == Declared("changed", "filed")
    with pytest.raises(UnknownQueue):
        await apply(NOWHERE, 5, secret, "a")


async def test_what_is_not_there_is_said_by_its_error(space: Space) -> None:
    """INTERFACES 3: 404 for a queue, a subscriber, a message that is not there, whatever is asked of it."""
    view = space.view
    for ask in (view.queue, lambda name: view.subscribers(name, None, 9), lambda name: view.subscriber(name, "holds")):
        with pytest.raises(UnknownQueue) as caught:
            ask("nowhere")
        assert caught.value.members["queue"] == "nowhere"
    with pytest.raises(UnknownSubscriber):
        view.subscriber(Q, "nobody")
    for asking in (view.messages("nowhere", 0, 9, None), view.dead_letters("nowhere", 0, 9)):
        with pytest.raises(UnknownQueue):
            await asking
    for asking in (view.message(NEVER_ISSUED), view.content(NEVER_ISSUED), view.tree(NEVER_ISSUED, "up", 9)):
        with pytest.raises(UnknownMessage):
            await asking
    with pytest.raises(UnknownMessage):
        await view.wait((NEVER_ISSUED,), SOON_S)
    await refused(space.channels.messages.put(Publish.bare(NOWHERE, "", b"x")), UnknownQueue)
    await refused(space.channels.messages.put(Cancel(NEVER_ISSUED)), UnknownMessage)
    await refused(space.channels.messages.put(Replay(id=NEVER_ISSUED)), UnknownMessage)


# -- publishing -------------------------------------------------------------------------------------------------------


async def test_a_receipt_has_a_place_for_each_message(space: Space) -> None:
    """INTERFACES 3: ids, sequences and parents of a unit stand in the order of its messages, and ``#n`` is an id."""
    first = (await space.publish(OTHER, Message(b"elsewhere"))).ids[0]
    receipt = await space.publish(Q, Message(b"a"), Message(b"b", parents=(0, first)), Message(b"c"))
    assert (len(receipt.ids), len(set(receipt.ids)), receipt.sync) == (3, 3, "always")
    assert receipt.sequences == tuple(range(receipt.first, receipt.first + 3))
    assert receipt.new == (True, True, True)
    assert dict(receipt.parents) == {1: (receipt.ids[0], first)}
    for id_, sequence, content in zip(receipt.ids, receipt.sequences, (b"a", b"b", b"c"), strict=True):
        report = await space.view.message(id_)
        assert (report.id, report.sequence, report.queue) == (id_, sequence, Q)
        assert (await space.view.content(id_)).content == content


async def test_a_message_is_shown_as_it_was_published(space: Space) -> None:
    """INTERFACES 3, message: every attribute comes back as it was given."""
    parent = (await space.publish(Q, Message(b"p"))).ids[0]
    given = Message(
        b'{"a": 1}', "application/json", (parent,), "k", "once", ParentFailure.HOLD, headers=(("traceparent", "00-1"),)
    )
    (id_,) = (await space.publish(Q, given)).ids
    shown = await space.view.message(id_)
    assert (shown.content_type, shown.content_bytes, shown.parents) == ("application/json", 8, (parent,))
    assert (shown.key, shown.idempotency_key, shown.headers) == ("k", "once", (("traceparent", "00-1"),))
    assert (shown.scope, shown.parent_failure) == ("all", "hold")
    assert (await space.view.content(id_)).content_type == "application/json"


async def test_a_message_says_where_it_stands(space: Space) -> None:
    """RULES 9: it is pending, waits for a parent, or for its time; the same by id, by sequence, and in a row."""
    first = await space.publish(Q, Message(b"p"))
    rest = await space.publish(Q, Message(b"child", parents=first.ids), Message(b"late", delay_us=SOON_S * 1_000_000))
    ids, sequences = (*first.ids, *rest.ids), (*first.sequences, *rest.sequences)
    states = ["pending", "waiting", "scheduled"]
    assert [(await space.view.message(id_)).state for id_ in ids] == states
    assert [space.view.message_state(sequence) for sequence in sequences] == states
    assert space.view.message_states(rest.first, 2) == states[1:]
    assert (await space.view.message(rest.ids[0])).blocked_by == first.ids


async def test_a_unit_is_kept_whole_or_not_at_all(space: Space) -> None:
    """RULES 5: an unknown parent refuses all lines, and the error names the one, counted from 0."""
    before = await space.view.messages(Q, 0, 9, None)
    unit = Publish.of(Q, (Message(b"a"), Message(b"b", parents=(NEVER_ISSUED,))))
    error = await refused(space.channels.messages.put(unit), UnknownParent)
    assert error.members["line"] == 1
    assert await space.view.messages(Q, 0, 9, None) == before
    await refused(space.channels.messages.put(Publish.of(Q, ())), Malformed)


async def test_a_key_that_was_used_answers_the_first_message(space: Space) -> None:
    """RULES 4: same key, queue and content: the first id and sequence, and what is new beside it has the next."""
    once = Message(b"x", idempotency_key="once")
    first = await space.publish(Q, once)
    again = await space.publish(Q, Message(b"new"), once)
    assert (again.ids[1], again.sequences[1], dict(again.known)) == (first.ids[0], first.first, {1: first.first})
    assert (again.new, again.sequences[0]) == ((True, False), again.first)
    elsewhere = await space.publish(OTHER, once)
    assert elsewhere.new == (True,)


async def test_a_key_twice_in_a_unit_is_one_message(space: Space) -> None:
    """RULES 4: the second line is known by the first."""
    once = Message(b"x", idempotency_key="once")
    receipt = await space.publish(Q, once, once, Message(b"y"))
    assert (receipt.new, receipt.ids[0] == receipt.ids[1]) == ((True, False, True), True)
    assert receipt.sequences == (receipt.first, receipt.first, receipt.first + 1)
    keyed = Publish(Q, "", (b"a", b"b"), 2, keys=("one", "two"))
    assert (await space.channels.messages.put(keyed)).new == (True, True)
    assert (await space.channels.messages.put(keyed)).new == (False, False)


@pytest.mark.parametrize(
    "other",
    [Message(b"y"), Message(b"x", "text/plain"), Message(b"x", key="k"), Message(b"x", headers=(("ce-id", "1"),)),
     Message(b"x", parent_failure=ParentFailure.HOLD)],
)  # fmt: skip
async def test_a_key_used_for_something_else_is_a_conflict(space: Space, other: Message) -> None:
    """RULES 4: the fingerprint covers body, content type, headers and settings; the line is named."""
    await space.publish(Q, Message(b"x", idempotency_key="once"))
    unit = Publish.of(Q, (Message(b"new"), other._replace(idempotency_key="once")))
    error = await refused(space.channels.messages.put(unit), IdempotencyConflict)
    assert error.members["line"] == 1


async def test_a_publish_to_one_names_one_that_is_there(space: Space) -> None:
    """INTERFACES 3, test: a message to one subscriber alone."""
    unit = Publish.of(Q, (Message(b"x"),), SubscriberId("nobody"))
    await refused(space.channels.messages.put(unit), UnknownSubscriber)
    assert (await space.publish(Q, Message(b"x"), only=SubscriberId("holds"))).new == (True,)


async def test_a_listener_is_told_later_and_of_each(space: Space) -> None:
    """DESIGN 3: units of one message go in without a future; their listener hears of each, never within the call."""
    heard: list[tuple[Any, object]] = []

    class Listener:
        def accepted(self, units: Any, publishers: Any, receipt: Accepted) -> None:
            assert len(units) == len(publishers) == len(receipt.ids)
            heard.extend(zip(publishers, receipt.ids, strict=True))

        def refused(self, publishers: Any, why: BaseException) -> None:
            heard.extend((one, type(why)) for one in publishers)

    for token, queue in (("a", Q), ("b", NOWHERE), ("c", Q)):
        space.channels.messages.put_shared(Publish.bare(queue, "", token.encode()), token, Listener())
    assert heard == []
    await eventually(lambda: len(heard) == 3, "all are told")
    told = dict(heard)
    assert told["b"] is UnknownQueue
    for token in "ac":
        found = told[token]
        assert isinstance(found, bytes)
        assert (await space.view.content(MessageId(found))).content == token.encode()


# -- reading ----------------------------------------------------------------------------------------------------------


async def test_a_queue_is_read_in_pages(space: Space) -> None:
    """INTERFACES 3, paging: its own messages, in the order accepted; with a state, those that are in it."""
    ids = [(await space.publish(Q, Message(b"%d" % n))).ids[0] for n in range(3)]
    await space.publish(OTHER, Message(b"elsewhere"))
    child = (await space.publish(Q, Message(b"child", parents=(ids[0],)))).ids[0]
    page = await space.view.messages(Q, 0, 3, None)
    assert [one.id for one in page.items] == ids
    assert page.next == page.items[-1].sequence
    page = await space.view.messages(Q, page.next, 3, None)
    assert ([one.id for one in page.items], page.next) == ([child], None)
    assert [one.id for one in (await space.view.messages(Q, 0, 9, "waiting")).items] == [child]
    with pytest.raises(Malformed):
        await space.view.messages(Q, 0, 9, "lost in thought")


async def test_a_queue_names_what_waits_longest(space: Space) -> None:
    """INTERFACES 3, queues: the oldest that has not ended, by its id; a queue where nothing waits has none."""
    ids = [(await space.publish(Q, Message(b"%d" % n))).ids[0] for n in range(2)]
    assert await space.channels.messages.put(Cancel(ids[0])) == 1
    queues, _ = space.view.queues(None, 9)
    assert [(one.name, one.waiting) for one in queues] == [("bills", 0), ("orders", 1)]
    assert await space.view.oldest_waiting(queues) == {"orders": ids[1]}


async def test_a_message_is_found_by_its_keys(space: Space) -> None:
    """INTERFACES 3: by key, idempotency key or both; the newest first, page by page."""
    ids = [(await space.publish(Q, Message(b"", key="k", idempotency_key=f"i{n}"))).ids[0] for n in range(3)]
    await space.publish(Q, Message(b""))
    assert [one.id for one in await space.view.find("k", None, 9)] == ids[::-1]
    assert [one.id for one in await space.view.find(None, "i1", 9)] == [ids[1]]
    assert [one.id for one in await space.view.find("k", "i2", 9)] == [ids[2]]
    assert await space.view.find("k", "else", 9) == ()
    page = await space.view.find_page("k", None, None, 2)
    assert [one.id for one in page.items] == ids[:0:-1]
    page = await space.view.find_page("k", None, page.next, 2)
    assert ([one.id for one in page.items], page.next) == ([ids[0]], None)


async def test_a_tree_begins_with_the_message_itself(space: Space) -> None:
    """INTERFACES 3, tree: nearest first, up to the parents or down to the children, so many edges away."""
    root = (await space.publish(Q, Message(b"r"))).ids[0]
    child = (await space.publish(OTHER, Message(b"c", parents=(root,)))).ids[0]
    grandchild = (await space.publish(Q, Message(b"g", parents=(child,)))).ids[0]
    down = await space.view.tree(root, "down", 9)
    assert [(one.id, one.distance, one.queue) for one in down.nodes] == [
        (root, 0, Q),
        (child, 1, OTHER),
        (grandchild, 2, Q),
    ]
    up = await space.view.tree(grandchild, "up", 1)
    assert [(one.id, one.distance) for one in up.nodes] == [(grandchild, 0), (child, 1)]
    assert (down.truncated, up.truncated) == (False, True)


async def test_a_wait_that_is_over_says_so(space: Space) -> None:
    """RULES 8: False when the time is over, and the message goes its way."""
    (id_,) = (await space.publish(Q, Message(b"x"))).ids
    assert await space.view.wait((id_,), 0.01) is False
    assert (await space.view.message(id_)).state == "pending"


async def test_a_cancel_and_a_replay_say_what_they_did(space: Space) -> None:
    """RULES 21, 22: a cancel ends what was not delivered; a replay that is only planned has no number."""
    (id_,) = (await space.publish(Q, Message(b"x"))).ids
    assert await space.channels.messages.put(Cancel(id_)) == 1
    assert (await space.view.message(id_)).state == "dropped"
    plan: ReplayPlan = await space.channels.messages.put(Replay(id=id_, descendants=True, dry_run=True))
    assert (plan.number, plan.messages, plan.order) == (0, 1, ((id_, (SubscriberId("holds"),)),))
    plan = await space.channels.messages.put(Replay(id=id_, descendants=True))
    assert plan.number > 0


async def test_figures_are_the_same_at_once_and_in_steps(space: Space) -> None:
    """INTERFACES 3, metrics: what is told in steps is what is told at once."""
    await space.publish(Q, Message(b"x"))
    at_once = space.view.statistics()
    found = run_at_once(space.view.statistics_in_steps())
    assert (at_once.state, space.view.state, space.view.ready) == ("serving", "serving", True)
    assert [one.name for one in at_once.queues] == [one.name for one in found.queues]
    assert sorted(one.name for one in found.queues) == ["bills", "orders"]
    assert found.log.sync == "always"


@pytest.mark.parametrize("kind", sorted(COMMANDS.difference(ASKED), key=str), ids=lambda kind: kind.__name__)
async def test_the_one_in_memory_answers_nothing_that_is_not_asked_here(kind: Any) -> None:
    """What it made of another command would be compared with nothing: a test that puts one to it breaks."""
    with pytest.raises(NotImplementedError):
        await FakeSpace().put(tuple.__new__(kind, (None,) * len(kind._fields)))


def test_the_one_in_memory_is_asked_as_the_view_is() -> None:
    """A stand-in that takes other arguments than the real one proves nothing."""
    shared = {name for name in vars(View) if not name.startswith("_")} & set(vars(FakeSpace))
    assert len(shared) > 15
    for name in shared - {"ready", "state"}:
        real, fake = (inspect.signature(getattr(of, name)).parameters.values() for of in (View, FakeSpace))
        assert [(one.kind, one.default) for one in real] == [(one.kind, one.default) for one in fake], name
