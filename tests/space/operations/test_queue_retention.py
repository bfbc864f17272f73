"""A queue keeps what has ended only so long (RULES 37): through the Space and over HTTP, and over restarts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from syncbrok.log.offline.verify import Finding, verify
from syncbrok.model.errors import ContentErased, PastRetention
from syncbrok.model.message import ParentFailure, QueueSettings, RetryPolicy
from syncbrok.model.names import MessageId, QueueName, id_text, parse_message_id, sequence_of
from syncbrok.space.channels import ChangeQueue, Unsubscribe
from tests.support.http.space import HttpSpace, MakeHttpSpace
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, REFUSED, Clock, Running, forget_checkpoints, running_space

HOUR_S = 3_600.0
ONCE = RetryPolicy((), 0.0)
WHOLE = QueueSettings(retry=ONCE, retention_s=HOUR_S)
CONTENT = QueueSettings(retry=ONCE, erase_after_s=HOUR_S)
SECRET = b"of-ann-alone-" * 9


async def erase_due(running: Running) -> int:
    return await running.space._queue_retention.erase_due()


async def said(running: Running, *ids: MessageId) -> list[str]:
    """Of each: ``whole``, ``erased`` or ``past``."""
    words = []
    for id_ in ids:
        try:
            await running.view.content(id_)
        except ContentErased:
            words.append("erased")
        except PastRetention:
            words.append("past")
        else:
            words.append("whole")
    return words


def holding(directory: Path) -> list[str]:
    """The files that have something of hers."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return [path.name for path in files if SECRET[:13] in path.read_bytes()]


@pytest.fixture
async def made(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[HttpSpace]:
    async with http_space(tmp_path) as made:
        yield made


async def test_past_its_retention_a_message_is_gone_from_every_way_out(made: HttpSpace) -> None:
    """RULES 37, INTERFACES 3: 410 ``past-retention`` for the message, its content, its tree and what is asked of it;
    lists, the search and the stream pass it over; ``GET /v1/log/erased`` names it; its child stays, and its idempotency
    key repeated answers its id. The setting is changed by PATCH, and works on what is there."""
    await made.space.queue("q", subscribers=["a"])
    parent = (await made.api.publish("q", SECRET, {"Idempotency-Key": "once", "Syncbrok-Key": "k"})).json()["id"]
    child = (await made.api.publish("q", b"child", {"Syncbrok-Parent": parent})).json()["id"]
    await eventually(lambda: made.space.view.subscriber("q", "a").delivered == 2, "both were delivered")
    assert (await made.api.get("/v1/queues/q")).json()["retention"] is None
    changed = await made.api.patch("/v1/queues/q", {"retention": "1s", "erase_after": "1d"})
    assert (changed.status, changed.json()["retention"], changed.json()["erase_after"]) == (200, "1s", "1d")
    is_past = made.space.space._state.erasures.is_past
    both = [sequence_of(parse_message_id(one)) for one in (parent, child)]
    await eventually(lambda: all(map(is_past, both)), "they are past it")
    for path in (parent, f"{parent}/content", f"{parent}/tree", f"{parent}/critical-path"):
        (await made.api.get(f"/v1/messages/{path}")).problem(410, "past-retention")
    for path in ("queues/q/messages", "messages?queue=q", "messages?key=k", "messages?idempotency_key=once"):
        assert (await made.api.get(f"/v1/{path}")).json()["messages"] == []
    assert (await made.api.get("/v1/queues/q/subscribers/a/deliveries")).json()["deliveries"] == []
    listed = (await made.api.get("/v1/log/erased")).json()["erased"]
    assert [one for fact in listed for one in fact["ids"]] == [parent, child]
    again = await made.api.publish("q", SECRET, {"Idempotency-Key": "once", "Syncbrok-Key": "k"})
    assert (again.status, again.json()["id"]) == (200, parent)
    (await made.api.post(f"/v1/messages/{parent}/replay", {})).problem(410, "past-retention")
    later = await made.api.publish("q", b"later", {"Syncbrok-Parent": parent})
    assert later.status == 201


async def test_what_has_not_ended_is_left_alone_until_it_ends(tmp_path: Path) -> None:
    """RULES 37: the time counts from the end, not from acceptance: what is out or blocked stays. A dead letter and what
    failed through it have ended; how stays known."""
    clock = Clock()
    async with running_space(tmp_path, clock_us=clock) as running:
        await running.queue("q", CONTENT, subscribers=["a", "b"])
        running.consumer.answer = lambda it: REFUSED if it.to.subscriber.id == "a" else None
        slow = await running.publish("q", SECRET)
        child = await running.publish("q", SECRET, slow)
        await eventually(lambda: len(running.consumer.held) == 1, "it is out")
        clock.forward(2 * HOUR_S)
        assert await erase_due(running) == 0
        running.consumer.answer = lambda _: REFUSED
        running.consumer.release()
        await running.ended(slow, child)
        clock.forward(HOUR_S - 60)
        assert (await erase_due(running), await said(running, slow, child)) == (0, ["whole", "whole"])
        clock.forward(120)
        assert (await erase_due(running), await said(running, slow, child)) == (2, ["erased", "erased"])
        assert (await running.view.message(slow)).state == "dead"
        assert await erase_due(running) == 0


async def test_a_deleted_subscriber_ends_what_waited_for_it(tmp_path: Path) -> None:
    """RULES 37: no row says so, and the time counts from the deletion."""
    clock = Clock()
    async with running_space(tmp_path, clock_us=clock) as running:
        await running.queue("q", WHOLE, subscribers=["a"])
        await running.subscribe("q", "b", paused=True)
        waits = await running.publish("q", SECRET)
        await eventually(lambda: running.view.subscriber("q", "a").delivered == 1, "one had it")
        clock.forward(2 * HOUR_S)
        await running.put(Unsubscribe(QueueName("q"), "b"))
        await running.ended(waits)
        clock.forward(HOUR_S / 2)
        assert (await erase_due(running), await said(running, waits)) == (0, ["whole"])
        clock.forward(HOUR_S)
        assert (await erase_due(running), await said(running, waits)) == (1, ["past"])


async def test_it_goes_on_over_restarts(tmp_path: Path) -> None:
    """RULES 37: what was erased stays erased with and without a checkpoint, what became due meanwhile is erased, what
    is young stays, each once; off the disk as RULES 32 says, and the log verifies. A queue without the setting keeps
    all, and one whose setting is taken away no longer erases."""
    clock = Clock()
    async with running_space(tmp_path, clock_us=clock) as running:
        await running.queue("q", WHOLE)
        await running.queue("c", CONTENT, subscribers=["a"])
        await running.queue("other")
        old = [await running.publish("q", SECRET), await running.publish("c", SECRET)]
        other = await running.publish("other", b"another")
        await running.ended(*old, other)
        clock.forward(HOUR_S + 1)
        assert await erase_due(running) == 2
        new = [await running.publish("q", SECRET), await running.publish("c", SECRET)]
        await running.ended(*new)
    for forgets in (False, True):
        if forgets:
            forget_checkpoints(tmp_path)
        async with running_space(tmp_path, clock_us=clock) as running:
            assert await erase_due(running) == 0
            assert await said(running, *old, *new, other) == ["past", "erased", "whole", "whole", "whole"]
    clock.forward(HOUR_S + 1)
    async with running_space(tmp_path, clock_us=clock) as running:
        await erase_due(running)
        assert await said(running, *old, *new, other) == ["past", "erased", "past", "erased", "whole"]
        await running.put(ChangeQueue(QueueName("q"), {"retention_s": None}))
        kept = await running.publish("q", b"kept")
        clock.forward(43_300.0)
        assert await erase_due(running) == 0
        assert await said(running, kept) == ["whole"]
        assert await running.space._erasures.erase_due() == 4
    assert holding(tmp_path) == []
    assert [met for met in verify(tmp_path) if isinstance(met, Finding)] == []
    async with running_space(tmp_path, clock_us=clock) as running:
        assert await said(running, *old, *new, other) == ["past", "erased", "past", "erased", "whole"]
        assert id_text(old[0]) in [
            id_text(one) for fact in (await running.view.erased(0, 9)).items for one in fact.messages
        ]


async def test_a_message_says_itself_how_long_its_content_is_kept(made: HttpSpace) -> None:
    """RULES 37, INTERFACES 3: ``Syncbrok-Erase-After``, ``erase_after`` in a line of a batch and over a socket; shown
    with the message; a wrong one is 400; an idempotency key with another one is a conflict."""
    await made.space.queue("q", CONTENT)
    after = {"Syncbrok-Erase-After": "1", "Idempotency-Key": "once"}
    first = (await made.api.publish("q", SECRET, after)).json()["id"]
    lines = b'{"content": "of-ann-alone", "erase_after": "1s"}\n{"content": "kept", "erase_after": "2h"}\n'
    second, kept = (
        await made.api.post("/v1/queues/q/messages:batch", lines, {"Content-Type": "application/x-ndjson"})
    ).json()["ids"]
    shown = (await made.api.get(f"/v1/messages/{kept}")).json()
    assert (shown["erase_after"], shown["erased"]) == ("2h", False)
    again = await made.api.publish("q", SECRET, after | {"Syncbrok-Erase-After": "2"})
    again.problem(409, "idempotency-conflict")
    (await made.api.publish("q", b"x", {"Syncbrok-Erase-After": "0"})).problem(400, "bad-setting")
    holds, both = (
        made.space.space._state.erasures.holds,
        [sequence_of(parse_message_id(one)) for one in (first, second)],
    )
    await eventually(lambda: all(map(holds, both)), "they are erased")
    for id_ in (first, second):
        (await made.api.get(f"/v1/messages/{id_}/content")).problem(410, "erased")
    assert (await made.api.get(f"/v1/messages/{first}")).json()["erase_after"] == "1s"
    assert (await made.api.get(f"/v1/messages/{kept}/content")).body == b"kept"


async def test_its_own_time_goes_before_the_queues_and_over_restarts(tmp_path: Path) -> None:
    """RULES 37: shorter or longer than the queue's, in a queue without one, for one that ends later, with and
    without a checkpoint; the log verifies."""
    clock = Clock()
    hour_us = int(HOUR_S * 1e6)
    async with running_space(tmp_path, clock_us=clock) as running:
        await running.queue("q", CONTENT)
        await running.queue("other")
        await running.queue("late", subscribers=["a"])
        running.consumer.answer = lambda _: None
        ids = [
            await running.publish("q", SECRET, erase_after_us=hour_us // 2),
            await running.publish("q", SECRET, erase_after_us=3 * hour_us),
            await running.publish("q", SECRET),
            await running.publish("other", SECRET, erase_after_us=hour_us // 2, key="k"),
            await running.publish("other", SECRET),
            await running.publish("late", SECRET, erase_after_us=hour_us // 2),
        ]
        await eventually(lambda: len(running.consumer.held) == 1, "it is out")
        clock.forward(HOUR_S * 0.6)
        assert await erase_due(running) == 2
        wanted = ["erased", "whole", "whole", "erased", "whole", "whole"]
        assert await said(running, *ids) == wanted
    clock.forward(HOUR_S * 0.6)
    wanted[2] = "erased"
    for forgets in (False, True):
        if forgets:
            forget_checkpoints(tmp_path)
        async with running_space(tmp_path, clock_us=clock) as running:
            await running.space._queue_retention.erase_due()
            assert await said(running, *ids) == wanted
            await running.ended(ids[5])
    clock.forward(HOUR_S * 2)
    async with running_space(tmp_path, clock_us=clock) as running:
        await running.space._queue_retention.erase_due()
        assert await said(running, *ids) == ["erased"] * 4 + ["whole", "erased"]
        assert not running.space._state.own_times
    assert [met for met in verify(tmp_path) if isinstance(met, Finding)] == []


async def test_no_figure_counts_a_dead_letter_that_is_past(tmp_path: Path) -> None:
    """RULES 20, 37: of the queue and of each subscriber, whether a message died there or everywhere with its parent;
    a young one is counted, also after a restart. A child on hold for such a message stays."""
    clock = Clock()
    async with running_space(tmp_path, clock_us=clock) as running:
        await running.queue("q", WHOLE, subscribers=["a", "b"])
        await running.queue("held", QueueSettings(parent_failure=ParentFailure.HOLD), subscribers=["c"])
        running.consumer.answer = lambda it: REFUSED if it.to.subscriber.id == "a" else ACKNOWLEDGED
        parent = await running.publish("q", SECRET)
        child = await running.publish("q", SECRET, parent)
        held = await running.publish("held", SECRET, parent)
        await running.ended(parent, child)
        clock.forward(2 * HOUR_S)
        young = await running.publish("q", SECRET)
        await running.ended(young)
        assert dead_letters(running) == (4, 3, 1)
        assert await erase_due(running) == 2
        assert await said(running, parent, child, young) == ["past", "past", "whole"]
        assert dead_letters(running) == (1, 1, 0)
        assert await running.states(held) == ["held"]
    for forgets in (False, True):
        if forgets:
            forget_checkpoints(tmp_path)
        async with running_space(tmp_path, clock_us=clock) as running:
            assert dead_letters(running) == (1, 1, 0)
            (letter,) = (await running.view.dead_letters("q", 0, 9)).items
            assert letter.id == young
            assert await running.states(held) == ["held"]


def dead_letters(running: Running) -> tuple[int, int, int]:
    """Of queue q, and of its subscribers."""
    ofs = [running.view.subscriber("q", one).dead_letters for one in ("a", "b")]
    return running.view.queue("q").dead_letters, ofs[0], ofs[1]
