"""``GET /v1/subscribers``: subscribers of all queues by how they stand (INTERFACES 3)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from syncbrok.delivery.handler import AttemptResult, Delivery
from syncbrok.model.facts import Reason
from syncbrok.model.message import BreakerPolicy, QueueSettings, RetryPolicy
from tests.support.http.space import HttpSpace, MakeHttpSpace
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, GONE

PATIENT = QueueSettings(retry=RetryPolicy((86_400.0,), 0.0))
ONCE = BreakerPolicy(1, 1.0, 1, (600.0, 600.0))
ANSWERS = {"down": AttemptResult(Reason.STATUS, 503), "far": AttemptResult(Reason.CONNECT), "gone": GONE}
ANSWERS["fails"] = ANSWERS["down"]
PATH = "/v1/subscribers"


def answer(delivery: Delivery) -> AttemptResult:
    """By the name of the subscriber."""
    return ANSWERS.get(delivery.to.subscriber.id, ACKNOWLEDGED)


@pytest.fixture
async def made(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[HttpSpace]:
    """Queues q and r; a subscriber of each kind, named by how it answers."""
    async with http_space(tmp_path) as made:
        made.consumer.answer = answer
        for queue in ("q", "r"):
            await made.space.queue(queue, PATIENT)
        await made.space.subscribe("q", "down", breaker=ONCE)
        await made.space.subscribe("q", "fails", breaker=None)
        await made.space.subscribe("q", "gone", breaker=None)
        await made.space.subscribe("r", "rests", breaker=None, paused=True)
        await made.space.subscribe("r", "well", breaker=None)
        yield made


async def names(made: HttpSpace, query: str) -> list[str]:
    """Queue and id of those that are listed."""
    reply = await made.api.get(f"{PATH}?{query}")
    assert reply.status == 200, reply
    return [f"{one['queue']}/{one['id']}" for one in reply.json()["subscribers"]]


async def test_subscribers_are_listed_by_how_they_stand(made: HttpSpace) -> None:
    """INTERFACES 3: by state, by a breaker, and all that need somebody, in whatever queue; a part of either name
    narrows it; the broker says since when a breaker is open, after how many failures, and when it probes."""
    await made.space.publish("q", b"x")
    await eventually(lambda: made.space.view.subscriber("q", "gone").state == "disabled", "gone is disabled")
    await eventually(lambda: made.space.view.subscriber("q", "down").breaker == "open", "its breaker is open")
    await eventually(lambda: made.space.view.subscriber("q", "fails").retrying == 1, "fails has failed")
    assert await names(made, "state=open") == ["q/down"]
    assert await names(made, "state=failing") == ["q/down", "q/fails"]
    assert await names(made, "state=disabled") == ["q/gone"]
    assert await names(made, "state=paused") == ["r/rests"]
    assert await names(made, "state=probing") == []
    assert await names(made, "state=ill") == ["q/down", "q/fails", "q/gone", "r/rests"]
    assert await names(made, "state=active") == ["q/down", "q/fails", "r/well"]
    assert await names(made, "") == ["q/down", "q/fails", "q/gone", "r/rests", "r/well"]
    assert await names(made, "text=R") == ["r/rests", "r/well"]
    assert await names(made, "text=ON") == ["q/gone"]
    (shown,) = (await made.api.get(f"{PATH}?state=open")).json()["subscribers"]
    figures = shown["statistics"]
    assert (figures["breaker_failing"], figures["breaker_origin"]) == (1, None)
    assert figures["failing_since"] <= figures["breaker_since"] < figures["next_probe_at"]


async def test_who_waits_for_the_breaker_of_its_origin_needs_somebody(made: HttpSpace) -> None:
    """RULES 29: one that has failed nothing itself is held back with its origin; it is among those to look after, on
    the overview as well, with the origin's name."""
    policy = BreakerPolicy(1_000, 1.0, 1_000)
    await made.space.subscribe("r", "far", breaker=policy)
    assert await names(made, "state=open") == []
    for _ in range(10):
        await made.space.publish("r", b"x")
    await eventually(lambda: made.space.view.subscriber("r", "far").breaker == "open", "the origin's breaker is open")
    await made.space.subscribe("r", "quiet", breaker=policy)
    assert "r/quiet" in await names(made, "state=ill")
    shown = {one["id"]: one for one in (await made.api.get(f"{PATH}?state=open")).json()["subscribers"]}
    quiet: Any = shown["quiet"]["statistics"]
    assert quiet["failing_since"] is None
    assert quiet["breaker_origin"] == "test://None:0"
    assert quiet["breaker_since"] is not None


async def test_all_are_reached_page_by_page(made: HttpSpace) -> None:
    """INTERFACES 3: in the order of queue and id, each once, whatever a queue is called; a wrong cursor is refused."""
    await made.space.queue("a b%2F&", subscribers=["z", "y.1"])
    everyone = await names(made, "")
    found: list[str] = []
    after = ""
    while True:
        page = (await made.api.get(f"{PATH}?limit=2{after}")).json()
        found += [f"{one['queue']}/{one['id']}" for one in page["subscribers"]]
        if page["next"] is None:
            break
        after = f"&after={quote(page['next'], safe='')}"
    assert found == everyone
    assert len(everyone) == 7
    (await made.api.get(f"{PATH}?after=nowhere")).problem(400, "malformed")
    (await made.api.get(f"{PATH}?state=odd")).problem(400, "malformed")
