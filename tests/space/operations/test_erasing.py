"""Erasing (RULES 32), through the Space and over HTTP: at once for whoever asks, in time on the disk."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from syncbrok.log.offline.verify import Finding, verify
from syncbrok.model.errors import ContentErased
from syncbrok.model.names import id_text, sequence_of
from syncbrok.space.channels import EraseMessage
from tests.support.http.space import HttpSpace, MakeHttpSpace
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, REFUSED, Clock, forget_checkpoints, running_space

SECRET = b"of-ann-alone-" * 9
ONCE = {"Idempotency-Key": "once-of-ann", "Syncbrok-Key": "key-of-ann", "Syncbrok-Forward-X-Ann": "header-of-ann"}
WRITTEN = (b"of-ann-alone", b"once-of-ann", b"key-of-ann", b"header-of-ann", b"500-for-ann")


@pytest.fixture
async def made(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[HttpSpace]:
    """Queue q with subscriber a, who takes all."""
    async with http_space(tmp_path) as made:
        await made.space.queue("q", subscribers=["a"])
        yield made


def left(directory: Path) -> list[tuple[str, bytes]]:
    """What stands of hers in any file."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return [(path.name, one) for path in files for one in WRITTEN if one in path.read_bytes()]


async def test_it_is_gone_from_every_way_out_at_once(made: HttpSpace) -> None:
    """RULES 32, INTERFACES 3: after ``DELETE .../content`` the content is 410 ``erased``, the message is shown without
    headers and keys, found by neither, nobody who catches up gets it, a replay passes it over and counts it; its id and
    its end stay, and its idempotency key repeated answers it. Erasing again changes nothing."""
    published = await made.api.publish("q", SECRET, ONCE)
    id_ = published.json()["id"]
    other = (await made.api.publish("q", b"another")).json()["id"]
    path = f"/v1/messages/{id_}"
    await eventually(lambda: made.space.view.subscriber("q", "a").delivered == 2, "both were delivered")
    assert (await made.api.get(f"{path}/content")).body == SECRET
    for _ in range(2):
        reply = await made.api.delete(f"{path}/content")
        assert (reply.status, reply.json()) == (200, {"id": id_, "dropped": 0})
    (await made.api.get(f"{path}/content")).problem(410, "erased")
    shown = (await made.api.get(path)).json()
    assert (shown["erased"], shown["state"], shown["content_bytes"]) == (True, "complete", 0)
    assert (shown["headers"], shown["key"], shown["idempotency_key"]) == ({}, None, None)
    assert [one["erased"] for one in (await made.api.get("/v1/queues/q/messages")).json()["messages"]] == [True, False]
    for asked in ("key=key-of-ann", "idempotency_key=once-of-ann"):
        assert (await made.api.get(f"/v1/messages?{asked}")).json()["messages"] == []
    again = await made.api.publish("q", SECRET, ONCE)
    assert (again.status, again.json()["id"]) == (200, id_)
    (await made.api.publish("q", b"other content", ONCE)).problem(409, "idempotency-conflict")
    plan = (await made.api.post(f"{path}/replay", {})).json()
    assert (plan["messages"], plan["erased"], plan["replay"]) == (0, 1, None)
    made.consumer.seen.clear()
    await made.space.subscribe("q", "late", start="beginning")
    await eventually(lambda: (b"another", "late") in made.consumer.seen, "the other one came")
    assert made.consumer.seen == [(b"another", "late")]
    assert (await made.api.get(f"/v1/messages/{other}/content")).body == b"another"
    unknown = "01890000-0000-8000-8000-000000000000"
    (await made.api.delete(f"/v1/messages/{unknown}/content")).problem(404, "unknown-message")


async def test_what_has_not_ended_is_erased_by_force_only(made: HttpSpace) -> None:
    """RULES 32: 409 while a delivery is open, and nothing has changed; with ``force`` it ends dropped, reason
    ``erased``, its child follows its policy, and an attempt that was out changes nothing."""
    made.consumer.answer = lambda _: None
    parent = await made.space.publish("q", SECRET)
    child = await made.space.publish("q", b"child", parent)
    await eventually(lambda: len(made.consumer.held) == 1, "it is out")
    path = f"/v1/messages/{id_text(parent)}"
    (await made.api.delete(f"{path}/content")).problem(409, "conflict")
    assert (await made.api.get(f"{path}/content")).body == SECRET
    assert (await made.api.delete(f"{path}/content?force=true")).json() == {"id": id_text(parent), "dropped": 1}
    (await made.api.get(f"{path}/content")).problem(410, "erased")
    made.consumer.release(ACKNOWLEDGED)
    await made.space.ended(parent, child)
    assert await made.space.states(parent, child) == ["dropped", "dead"]
    (delivery,) = (await made.api.get(path)).json()["deliveries"]
    assert (delivery["state"], delivery["reason"]) == ("dropped", "erased")
    assert made.consumer.contents == [SECRET]


async def test_what_is_answered_later_is_written_nowhere(tmp_path: Path) -> None:
    """RULES 32: an attempt that was out when its message was erased ends with a record, without what was answered."""
    async with running_space(tmp_path) as running:
        await running.queue("q", subscribers=["a"])
        running.consumer.answer = lambda _: None
        id_ = await running.publish("q", SECRET)
        await eventually(lambda: len(running.consumer.held) == 1, "it is out")
        await running.put(EraseMessage(id_, force=True))
        running.consumer.release(REFUSED._replace(detail=b"500-for-ann"))
        rows = running.space._journal.rows_of
        await eventually(lambda: any(row.attempt for _, row in rows(sequence_of(id_))), "it is recorded")
    assert b"500-for-ann" not in [what for _, what in left(tmp_path)]


async def test_it_is_off_the_disk_in_time(tmp_path: Path) -> None:
    """RULES 32: half of ``erase_within`` after it was erased, and not before, its segment is written anew, rolled first
    where it was written to: nothing of it is left in any file, checkpoints too, and the log is whole. A start from that
    log, with and without a checkpoint, knows it as erased and its key as used; one in between goes on."""
    clock = Clock()
    async with running_space(tmp_path, clock_us=clock) as running:
        await running.queue("q", subscribers=["a"])
        running.consumer.answer = lambda it: REFUSED._replace(
            detail=b"500-for-ann" if it.message.content == SECRET else b"no"
        )
        keyed = {"idempotency_key": "once-of-ann", "key": "key-of-ann", "headers": (("X-Ann", "header-of-ann"),)}
        id_ = await running.publish("q", SECRET, **keyed)
        await running.publish("q", b"another")
        await eventually(lambda: running.view.subscriber("q", "a").dead_letters == 2, "both died")
        await running.put(EraseMessage(id_))
        (letter, _) = (await running.view.dead_letters("q", 0, 9)).items
        assert letter.detail == b""
        assert await running.space._erasures.erase_due() == 0
    assert left(tmp_path)
    for forgets in (False, True):
        if forgets:
            forget_checkpoints(tmp_path)
        async with running_space(tmp_path, clock_us=clock) as running:
            with pytest.raises(ContentErased):
                await running.view.content(id_)
            assert await running.publish("q", SECRET, **keyed) == id_
            assert (await running.view.message(id_)).erased
    clock.forward(43_300.0)
    for forgets in (False, True):
        if forgets:
            forget_checkpoints(tmp_path)
        async with running_space(tmp_path, clock_us=clock) as running:
            assert await running.space._erasures.erase_due() == 1
            with pytest.raises(ContentErased):
                await running.view.content(id_)
            assert await running.publish("q", SECRET, **keyed) == id_
            assert await running.space._erasures.erase_due() == 0
        assert left(tmp_path) == []
        assert [met for met in verify(tmp_path) if isinstance(met, Finding)] == []
