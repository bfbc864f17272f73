"""A selection of messages is cancelled (RULES 22), through the Space and over HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from syncbrok.model.message import Message, QueueSettings, RetryPolicy
from syncbrok.model.names import MessageId, id_text
from tests.support.http.space import HttpSpace, MakeHttpSpace
from tests.support.polling import eventually
from tests.support.space.spaces import REFUSED

PATIENT = QueueSettings(retry=RetryPolicy((86_400.0,), 0.0))
PATH = "/v1/queues/q/cancel"
NEVER = "01890000-0000-8000-8000-000000000000"


@pytest.fixture
async def made(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[HttpSpace]:
    """Queue q, whose subscribers a and b refuse all but what begins with ``fine``."""
    async with http_space(tmp_path) as made:
        answer = made.consumer.answer
        made.consumer.answer = lambda one: answer(one) if one.message.content.startswith(b"fine") else REFUSED
        await made.space.queue("q", PATIENT, ["a", "b"])
        yield made


async def published(made: HttpSpace) -> list[MessageId]:
    """One that ends well, two that wait, and a child of the second."""
    running = made.space
    fine = await running.publish("q", b"fine")
    await running.ended(fine)
    first, second = await running.publish("q", b"first"), await running.publish("q", b"second")
    child = await running.publish("q", b"child", second)
    await eventually(lambda: running.view.subscriber("q", "b").retrying == 2, "both have failed at b")
    await eventually(lambda: running.view.subscriber("q", "a").retrying == 2, "and at a")
    return [fine, first, second, child]


def asked(*ids: MessageId, **more: Any) -> dict[str, Any]:
    return {"ids": list(map(id_text, ids)), **more}


async def test_a_selection_is_cancelled_after_a_dry_run(made: HttpSpace) -> None:
    """RULES 22, INTERFACES 3: the dry run counts and changes nothing; then those that wait end as dropped, with their
    reason; what had ended stays, and so do those that were not named. Asked again it finds nothing to do."""
    fine, first, second, child = await published(made)
    states = made.space.states
    for dry in (asked(fine, second, child, second, dry_run=True), asked(fine, second, child)):
        path = PATH if "dry_run" in dry else f"{PATH}?dry_run=true"
        assert (await made.api.post(path, dry)).json() == {"messages": 2, "dropped": 4, "dry_run": True}
    assert await states(fine, first, second, child) == ["complete", "pending", "pending", "waiting"]
    done = await made.api.post(PATH, asked(fine, second, child))
    assert (done.status, done.json()) == (200, {"messages": 2, "dropped": 4, "dry_run": False})
    assert await states(fine, first, second, child) == ["complete", "pending", "dropped", "dropped"]
    shown = await made.space.view.message(child)
    assert {one.reason for one in shown.deliveries} == {"cancelled"}, "not for its parent"
    again = (await made.api.post(PATH, asked(second, child))).json()
    assert again == {"messages": 0, "dropped": 0, "dry_run": False}


async def test_a_child_that_is_not_named_fails_with_its_parent(made: HttpSpace) -> None:
    """RULES 12, 22: a selection that has the parent alone; the child follows its rule for a parent that failed."""
    _, _, second, child = await published(made)
    assert (await made.api.post(PATH, asked(second))).json()["messages"] == 1
    await made.space.ended(child)
    assert await made.space.states(second, child) == ["dropped", "dead"]


async def test_many_are_cancelled_in_slices(made: HttpSpace) -> None:
    """RULES 22: some thousands, which go into several batches, each with who did it."""
    running = made.space
    await running.queue("many")
    await running.subscribe("many", "a", paused=True)
    ids = (await running.publish_all("many", *[Message(b"x") for _ in range(3_000)])).ids
    assert (await made.api.post("/v1/queues/many/cancel", asked(*ids))).json()["messages"] == len(ids)
    assert running.view.queue("many").waiting == 0
    assert set(await running.states(ids[0], ids[-1])) == {"dropped"}


async def test_a_wrong_selection_cancels_nothing(made: HttpSpace) -> None:
    """Bad input changes nothing: no ids, an id of another queue or of none, another member, an unknown queue."""
    ids = await published(made)
    await made.space.queue("other", PATIENT, ["c"])
    elsewhere = await made.space.publish("other", b"x")
    for wrong in ({}, {"ids": []}, {"ids": [1]}, asked(ids[1], elsewhere), asked(ids[1], force=True)):
        (await made.api.post(PATH, wrong)).problem(400, "bad-setting")
    (await made.api.post(PATH, {"ids": [id_text(ids[1]), NEVER]})).problem(400, "bad-setting")
    (await made.api.post("/v1/queues/nowhere/cancel", asked(ids[1]))).problem(404, "unknown-queue")
    assert await made.space.states(*ids) == ["complete", "pending", "pending", "waiting"]
