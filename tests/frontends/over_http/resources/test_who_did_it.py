"""Each fact that somebody's management makes names the token (INTERFACES 1), and no token is told of others' names that
is for some queues only."""

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from syncbrok.cli.facts import FactNames, concerns
from syncbrok.frontends.from_yaml import apply_queues, read_queues_file
from syncbrok.model.facts import (
    Erased,
    Fact,
    JobChanged,
    Managed,
    QueueDeleted,
    QueueSet,
    SubscriberDeleted,
    SubscriberSet,
)
from syncbrok.model.names import parse_message_id, sequence_of
from syncbrok.model.tokens import ADMIN, PUBLISH, READ, Token, parse_scopes
from tests.support.http.space import ENDPOINT, ONCE, HttpSpace, MakeHttpSpace
from tests.support.log.segment_files import facts_in
from tests.support.polling import eventually
from tests.support.space.spaces import GONE, REFUSED

QUEUE = "/v1/queues/shop.q"
ONE = f"{QUEUE}/subscribers/a"
MANAGED = (QueueSet, QueueDeleted, SubscriberSet, SubscriberDeleted, Erased, Managed, JobChanged)


def token(name: str, scopes: Any) -> Token:
    return Token(name, sha256(name.encode()).hexdigest(), *parse_scopes(scopes))


TOKENS = (
    token("ops", [ADMIN, READ, PUBLISH]),
    token("shop", {ADMIN: ["shop.*"], READ: ["shop.*"]}),
)


def of(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


OPS, SHOP = of("ops"), of("shop")
WAITS = {"retry": ["1h"]}


@pytest.fixture
async def running(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[HttpSpace]:
    """Queue shop.q, whose subscriber a takes nothing; ops has declared both."""
    async with http_space(tmp_path, tokens=TOKENS) as made:
        made.consumer.answer = lambda _: REFUSED
        await made.api.post("/v1/queues", {"name": "shop.q", **WAITS}, OPS)
        await made.api.post(f"{QUEUE}/subscribers", {"endpoint": ENDPOINT, "name": "a"}, OPS)
        yield made


def told(directory: Path) -> list[tuple[str, str]]:
    """Kind and ``by`` of what was managed, as ``syncbrok log cat`` shows it."""
    names = FactNames()
    facts: list[Fact] = facts_in(directory)
    shown = [names.shown(one) for one in facts if isinstance(one, MANAGED)]  # type: ignore[arg-type]
    return [(str(one.get("action", one["kind"])), one["by"]) for one in shown]


async def published(running: HttpSpace) -> str:
    """Id of a message that has been tried, and waits."""
    before = running.space.view.subscriber("shop.q", "a").retrying
    id_: str = (await running.api.post(f"{QUEUE}/messages", b"x", OPS)).json()["id"]
    await eventually(lambda: running.space.view.subscriber("shop.q", "a").retrying > before, "it was tried")
    return id_


async def test_each_fact_of_an_action_names_the_token(running: HttpSpace, tmp_path: Path) -> None:
    """INTERFACES 1: queues and subscribers, what is cancelled, purged, erased and taken back; each names the token of
    its request, and its facts stand in one unit or behind the name."""
    api = running.api
    await api.request("PATCH", ONE, {"paused": True}, OPS)
    await api.request("PATCH", ONE, {"paused": False}, OPS)
    await api.request("PATCH", QUEUE, {"window": 7}, OPS)
    await api.post(f"{ONE}/rotate-secret", {}, SHOP)
    cancelled = await published(running)
    await api.request("DELETE", f"/v1/messages/{cancelled}", None, OPS)
    erased = await published(running)
    assert (await api.request("DELETE", f"/v1/messages/{erased}/content?force=true", None, OPS)).status == 200
    selected = await published(running)
    assert (await api.post(f"{QUEUE}/cancel", {"ids": [selected]}, SHOP)).json()["messages"] == 1
    await published(running)
    assert (await api.post(f"{QUEUE}/purge", {}, SHOP)).json()["dropped"] == 1
    await api.request("DELETE", ONE, None, OPS)
    await api.request("DELETE", QUEUE, None, OPS)
    assert told(tmp_path) == [
        ("queue_set", "ops"),
        ("subscriber_set", "ops"),
        ("subscriber_set", "ops"),
        ("subscriber_set", "ops"),
        ("queue_set", "ops"),
        ("subscriber_set", "shop"),
        ("cancel", "ops"),
        ("erased", "ops"),
        ("cancel", "shop"),
        ("purge", "shop"),
        ("subscriber_deleted", "ops"),
        ("queue_deleted", "ops"),
    ]
    about = [one for one in facts_in(tmp_path) if concerns(one, sequence_of(parse_message_id(cancelled)))]  # type: ignore[arg-type]
    assert [one.by for one in about if isinstance(one, Managed)] == ["ops"], (
        "of a cancel the message's own history has it"
    )


async def test_a_cancelled_job_names_both(running: HttpSpace, tmp_path: Path) -> None:
    """INTERFACES 1, RULES 34: who asked for the job, and who took it back; a token for some queues is told its own name
    alone."""
    api = running.api
    await api.request("PATCH", QUEUE, ONCE, OPS)
    await api.post(f"{QUEUE}/messages", b"x", OPS)
    await eventually(lambda: running.space.view.queue("shop.q").dead_letters == 1, "it died")
    await api.request("PATCH", QUEUE, WAITS, OPS)
    job = (await api.post(f"{ONE}/recover", {}, OPS)).json()
    await eventually(lambda: running.space.view.subscriber("shop.q", "a").retrying == 1, "it goes again")
    assert job["by"] == "ops"
    where = f"/v1/jobs/{job['id']}"
    assert (await api.get(where, SHOP)).json()["by"] is None
    over = (await api.request("DELETE", where, None, SHOP)).json()
    assert (over["state"], over["by"]) == ("cancelled", None)
    assert ("cancel_job", "shop") in told(tmp_path)


async def test_who_changed_it_last_is_shown_as_far_as_one_may_know(running: HttpSpace) -> None:
    """INTERFACES 1: of a queue and a subscriber, to whom sees all; a token for some queues is told its own name and no
    other's; what the broker does itself leaves the name."""
    api = running.api

    async def seen(headers: dict[str, str]) -> list[str | None]:
        (listed,) = (await api.get("/v1/queues", headers)).json()["queues"]
        (one,) = (await api.get(f"{QUEUE}/subscribers", headers)).json()["subscribers"]
        shown = [(await api.get(path, headers)).json()["statistics"]["changed_by"] for path in (QUEUE, ONE)]
        assert [listed["statistics"]["changed_by"], one["statistics"]["changed_by"]] == shown
        return shown

    assert (await seen(OPS), await seen(SHOP)) == (["ops", "ops"], [None, None])
    assert (await api.request("PATCH", ONE, {"window": 3}, SHOP)).json()["statistics"]["changed_by"] == "shop"
    assert (await seen(OPS), await seen(SHOP)) == (["ops", "shop"], [None, "shop"])
    running.consumer.answer = lambda _: GONE
    await api.post(f"{QUEUE}/messages", b"x", OPS)
    await eventually(lambda: running.space.view.subscriber("shop.q", "a").state == "disabled", "it is disabled")
    assert await seen(OPS) == ["ops", "shop"]


async def test_it_is_known_after_a_restart(tmp_path: Path, http_space: MakeHttpSpace) -> None:
    """INTERFACES 1: where no tokens are set it is ``local``, of what a bootstrap file says ``file``."""
    async with http_space(tmp_path / "log") as made:
        await made.api.post("/v1/queues", {"name": "by-hand"})
        file = tmp_path / "queues.yml"
        file.write_text("queues: {by-file: {subscribers: [{name: a, endpoint: 'http://127.0.0.1:1/'}]}}")
        await apply_queues(read_queues_file(file, {}), made.space.space.channels, lambda: ())
    async with http_space(tmp_path / "log") as again:
        shown = (await again.api.get("/v1/queues")).json()["queues"]
        assert {one["name"]: one["statistics"]["changed_by"] for one in shown} == {
            "by-hand": "local",
            "by-file": "file",
        }
        assert (await again.api.get("/v1/queues/by-file/subscribers/a")).json()["statistics"]["changed_by"] == "file"
