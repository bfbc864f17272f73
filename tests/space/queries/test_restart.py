"""What the view tells comes from the log: it is the same after a restart."""

import asyncio
from pathlib import Path
from typing import Any

from syncbrok.model.errors import UnknownMessage
from syncbrok.model.message import ParentFailure, QueueSettings, RetryPolicy
from syncbrok.model.names import MessageId
from tests.support.space.spaces import ACKNOWLEDGED, GONE, REFUSED, Consumer, Running, running_space

PATIENT = QueueSettings(retry=RetryPolicy((3_600.0,), 0.0))


async def everything(running: Running, ids: list[MessageId]) -> dict[str, Any]:
    """All that is told about these messages."""
    view = running.view
    return {
        "messages": [await view.message(id_) for id_ in ids],
        "contents": [await view.content(id_) for id_ in ids],
        "trees": [await view.tree(id_, way, 9) for id_ in ids for way in ("up", "down")],
        "pages": [await view.messages(queue, 0, 100, None) for queue in ("customers", "cards")],
        "found": [await view.find("k", None, 9), await view.find(None, "once", 9)],
        "dead": await view.dead_letters("cards", 0, 100),
        "stuck": await view.stuck(9),
    }


async def attempts_failed(running: Running, count: int) -> None:
    """Once so many attempts have failed and that is in the log."""
    async with asyncio.timeout(10):
        async for event in running.view.events("customers", 0):
            count -= event.kind == "failed"
            if count == 0:
                return


async def test_a_restart_changes_nothing_that_is_told(tmp_path: Path) -> None:
    """Attempts, states, reasons, trees, dead letters and why messages wait are told alike by the next broker."""
    consumer = Consumer(lambda d: {b"b": REFUSED, b"g": GONE}.get(d.message.content[:1], ACKNOWLEDGED))
    async with running_space(tmp_path, consumer) as running:
        await running.queue("customers", PATIENT, ["crm", "mail"])
        await running.queue("cards", PATIENT, ["billing"])
        stuck = await running.publish("customers", b"bad")
        child = await running.publish("cards", b"child", stuck, key="k")
        grandchild = await running.publish("cards", b"grandchild", child, stuck)
        fine = await running.publish("customers", b"fine", idempotency_key="once", content_type="text/plain")
        await running.ended(fine)
        dead = await running.publish("cards", b"gone")
        held = await running.publish("customers", b"held", dead, parent_failure=ParentFailure.HOLD)
        cascade = await running.publish("customers", b"cascade", dead)
        await running.ended(dead, cascade)
        ids = [stuck, child, grandchild, fine, dead, held, cascade]

        await attempts_failed(running, 2)
        before = await everything(running, ids)

    async with running_space(tmp_path, consumer) as running:
        after = await everything(running, ids)
        for name in before:
            assert after[name] == before[name], name

    assert [letter.reason for letter in before["dead"].items] == ["gone"]
    assert "crm has failed once" in before["messages"][0].waits_for
    assert "is held for parent" in before["messages"][5].waits_for


async def test_an_id_of_another_log_is_unknown(tmp_path: Path) -> None:
    """Ids are checked against the log that issued them, not only against their form."""
    async with running_space(tmp_path / "one") as running:
        await running.queue("q")
        id_ = await running.publish("q", b"x")
    async with running_space(tmp_path / "two") as running:
        try:
            await running.view.message(id_)
        except UnknownMessage:
            return
        raise AssertionError("it was found")
