"""Pulling over HTTP: groups, leases, and what becomes of what is not answered.

Broken by hand to see these fail: a lease that outlives its time; one that answers for the next attempt; a client that
goes while it waits and takes its messages along; a group that begins at the end.
"""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from syncbrok.frontends.over_http.consuming import pull
from syncbrok.frontends.over_http.leases import Leases
from syncbrok.model import limits
from syncbrok.model.tokens import Token
from tests.support.http.api import Api, Reply, Serve
from tests.support.polling import eventually
from tests.support.space.spaces import Running, running_space
from tests.support.tcp.wire import services_of


@asynccontextmanager
async def pulled(served: Serve, directory: Path, **settings: Any) -> AsyncIterator[tuple[Api, Running]]:
    """The HTTP frontend with its pull routes over a running Space that has the queue ``orders``."""
    async with running_space(directory, drain_s=0.1) as running:
        services = services_of(running)
        leases = Leases(services.channels.subscribers, services.consumers, running.view.subscriber_number)
        async with served(running.space.channels, running.view, *pull.routes(leases)) as api:
            await api.post("/v1/queues", {"name": "orders", **settings})
            yield api, running


async def take(api: Api, **asked: Any) -> list[dict[str, Any]]:
    reply = await api.post("/v1/queues/orders/pull", asked)
    assert reply.status == 200, reply
    messages: list[dict[str, Any]] = reply.json()["messages"]
    return messages


async def test_what_is_pulled_and_acknowledged_is_delivered(tmp_path: Path, served: Serve) -> None:
    """INTERFACES 3: in the order accepted, what is text as text, and each message is lent to one of the group."""
    async with pulled(served, tmp_path) as (api, running):
        ids = [(await api.publish("orders", content)).json()["id"] for content in (b"one", b"two", b"\xff")]
        first = await take(api, max=2, wait=5)
        assert [message["content"] for message in first] == ["one", "two"]
        second = await take(api, wait=5)
        assert [base64.b64decode(message["content_base64"]) for message in second] == [b"\xff"]
        assert [message["id"] for message in first + second] == ids
        assert await take(api) == []
        for message in first + second:
            assert (await api.post(f"/v1/leases/{message['lease']}:ack")).json() == {"answered": 1, "over": []}
        states = [(await api.get(f"/v1/messages/{id_}")).json()["state"] for id_ in ids]
        await eventually(lambda: not running.view.queue("orders").waiting, "all of it is acknowledged")
        assert states[-1] in ("pending", "complete")


async def test_a_child_is_lent_after_its_parent_is_acknowledged(tmp_path: Path, served: Serve) -> None:
    """DESIGN 1, causal: a lease is not an acknowledgement."""
    async with pulled(served, tmp_path) as (api, _):
        parent = (await api.publish("orders", b"parent")).json()["id"]
        await api.publish("orders", b"child", {"Syncbrok-Parent": parent})
        (message,) = await take(api, wait=5)
        assert await take(api) == []
        waiting = asyncio.create_task(take(api, wait=10))
        await api.post(f"/v1/leases/{message['lease']}:ack")
        (child,) = await waiting
        assert (child["content"], child["parents"]) == ("child", [parent])


async def test_groups_each_get_every_message(tmp_path: Path, served: Serve) -> None:
    """INTERFACES 3: a group is a subscriber of its own, and begins where it is told."""
    async with pulled(served, tmp_path) as (api, _):
        await api.publish("orders", b"old")
        assert [m["content"] for m in await take(api, group="all", wait=5)] == ["old"]
        assert await take(api, group="new", start="now") == []
        await api.publish("orders", b"fresh")
        assert [m["content"] for m in await take(api, group="all", wait=5)] == ["fresh"]
        assert [m["content"] for m in await take(api, group="new", wait=5)] == ["fresh"]


async def test_a_lease_that_is_over_is_a_failed_attempt(tmp_path: Path, served: Serve) -> None:
    """RULES 9: the next who pulls gets the message with the next number, and the old lease answers for nothing."""
    async with pulled(served, tmp_path, retry=["0s", "0s"]) as (api, _):
        await api.publish("orders", b"slow")
        (first,) = await take(api, lease="1s", wait=5)
        (second,) = await take(api, wait=10)
        assert (first["attempt"], second["attempt"]) == (1, 2)
        (await api.post(f"/v1/leases/{first['lease']}:ack")).problem(410, "lease-over")
        (await api.post("/v1/leases/{1-3-1}:ack")).problem(400, "malformed")
        (await api.post(f"/v1/leases/{first['lease']}:extend", {"lease": "5s"})).problem(410, "lease-over")
        assert (await api.post("/v1/leases:ack", {"leases": [first["lease"], second["lease"]]})).json() == {
            "answered": 1,
            "over": [first["lease"]],
        }


async def test_a_lease_can_be_extended_and_refused(tmp_path: Path, served: Serve) -> None:
    """INTERFACES 3: extend keeps it, nack fails the attempt, with the reason kept, and the retry schedule of
    the queue says when it is lent again; a delay can only make it later."""
    async with pulled(served, tmp_path, retry=["0s"]) as (api, _):
        id_ = (await api.publish("orders", b"x")).json()["id"]
        (message,) = await take(api, lease="1s", wait=5)
        assert (await api.post(f"/v1/leases/{message['lease']}:extend", {"lease": "60s"})).status == 200
        assert await take(api, wait="1500ms") == []
        refused = await api.post(f"/v1/leases/{message['lease']}:nack", {"delay": "100ms", "reason": "busy"})
        assert refused.status == 200
        (again,) = await take(api, wait=5)
        assert again["attempt"] == 2
        (delivery,) = (await api.get(f"/v1/messages/{id_}")).json()["deliveries"]
        assert (delivery["attempts"][0]["reason"], delivery["attempts"][0]["detail"]) == ("nack", "busy")


async def test_a_mistake_among_many_leases_answers_none(tmp_path: Path, served: Serve) -> None:
    """CONTRIBUTING, errors: one name that cannot be read refuses all, whichever it is."""
    async with pulled(served, tmp_path) as (api, _):
        await api.publish("orders", b"x")
        (message,) = await take(api, wait=5)
        for names in ([message["lease"], "nonsense"], ["nonsense", message["lease"]]):
            (await api.post("/v1/leases:ack", {"leases": names})).problem(400, "malformed")
        assert (await api.post(f"/v1/leases/{message['lease']}:ack")).json()["answered"] == 1


async def test_who_goes_while_it_waits_takes_nothing_along(tmp_path: Path, served: Serve) -> None:
    """DESIGN 1, nothing lost: a request that is cut leaves what it was about to get to the next."""
    async with pulled(served, tmp_path, retry=[]) as (api, running):
        assert await take(api) == []
        state = running.space._state.scheduler.state
        for count in range(3):
            waiting = asyncio.create_task(take(api, wait=30))
            await eventually(lambda: state.cursors[1].window == 100 * (count + 1), "it waits")  # noqa: B023
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await api.publish("orders", b"kept")
        (message,) = await take(api, wait=5)
        assert message["attempt"] == 1


async def test_leases_do_not_survive_a_restart_but_messages_do(tmp_path: Path, served: Serve) -> None:
    """DESIGN 1, durable: what was lent and not acknowledged is lent again by the next process."""
    async with pulled(served, tmp_path) as (api, _):
        await api.publish("orders", b"x")
        (message,) = await take(api, wait=5)
    async with pulled(served, tmp_path) as (api, _):
        (await api.post(f"/v1/leases/{message['lease']}:ack")).problem(410, "lease-over")
        (again,) = await take(api, wait=5)
        assert again["id"] == message["id"]


@pytest.mark.parametrize(
    ("asked", "slug"),
    [
        ({"max": 0}, "bad-setting"),
        ({"max": True}, "bad-setting"),
        ({"wait": "2h"}, "bad-setting"),
        ({"lease": "1ms"}, "bad-setting"),
        ({"group": "../etc"}, "bad-name"),
        ({"group": 7}, "bad-setting"),
        ({"start": "soon"}, "bad-setting"),
        ({"limit": 5}, "bad-setting"),
    ],
)
async def test_mistakes_are_told_and_declare_nothing(
    tmp_path: Path, asked: dict[str, Any], slug: str, served: Serve
) -> None:
    """CONTRIBUTING, errors: a clear 400, and no group was made."""
    async with pulled(served, tmp_path) as (api, running):
        (await api.post("/v1/queues/orders/pull", asked)).problem(400, slug)
        assert running.view.subscribers("orders", None, 9) == ([], None)


async def test_what_is_not_there_is_told(tmp_path: Path, served: Serve) -> None:
    """INTERFACES 3: no such queue, a lease nobody named, a group's name that a webhook has."""
    async with pulled(served, tmp_path) as (api, running):
        (await api.post("/v1/queues/nothing/pull", {})).problem(404, "unknown-queue")
        (await api.post("/v1/leases/abc:ack")).problem(400, "malformed")
        (await api.post("/v1/leases:ack", {"leases": "all"})).problem(400, "bad-setting")
        await running.subscribe("orders", "hooked")
        (await api.post("/v1/queues/orders/pull", {"group": "hooked"})).problem(409, "conflict")


async def test_no_more_is_lent_than_there_are_leases(tmp_path: Path, served: Serve) -> None:
    """RULES 15; INTERFACES 3: where leases are used up a pull is refused with 429 and Retry-After, and nothing of it
    counts as an attempt; messages go to endpoints all the same, and pulls go on when leases are answered."""
    async with pulled(served, tmp_path) as (api, running):
        leases = running.space.budgets.leases
        leases.total, leases.reserve = 16, 2
        for number in range(20):
            await api.publish("orders", b"%d" % number)
        held = await take(api, max=20, wait=5)
        assert len(held) == 7, "half of what is no reserve"
        reply = await api.post("/v1/queues/orders/pull", {"wait": 0})
        assert (reply.status, reply.json()["type"].rpartition(":")[2]) == (429, "overloaded")
        assert reply.headers["Retry-After"] == "1"
        other = await take(api, max=20, wait=5, group="other")
        assert len(other) == 4, "half of what was left"
        await running.subscribe("orders", "endpoint")
        await api.publish("orders", b"more")
        await eventually(lambda: running.consumer.contents == [b"more"], "an endpoint gets it")
        await api.post("/v1/leases:ack", {"leases": [one["lease"] for one in held]})
        again = await take(api, max=20, wait=5)
        assert [one["content"] for one in again][:3] == ["7", "8", "9"]
        assert {one["attempt"] for one in again} == {1}


async def test_a_backlog_of_large_messages_is_pulled_to_its_end(tmp_path: Path, served: Serve) -> None:
    """RULES 15, room for content: the newest of a backlog are in memory and take all room there is for the group, the
    oldest are to be read and go out before them. A pull ends long before its 300; the next ones get the rest."""
    async with pulled(served, tmp_path) as (api, _):
        assert await take(api) == []  # the group is there before them
        for _ in range(100):
            await api.publish("orders", b"x" * limits.content_bytes_max)
        sequences: list[int] = []
        while len(sequences) < 100:
            some = [m["sequence"] for m in await take(api, max=300, wait=20, lease="12h")]
            assert some, f"nothing after {len(sequences)}"
            sequences += some
        assert sequences == sorted(sequences)


def token(name: str, *scopes: str) -> Token:
    return Token(name, hashlib.sha256(name.encode()).hexdigest(), frozenset(scopes))


async def test_a_lease_cannot_be_guessed(tmp_path: Path, served: Serve) -> None:
    """INTERFACES 3: what a lease is about is known to everybody who sees the log, and does not name it; one that was
    made up is over, as one of an older version or of another process is."""
    async with pulled(served, tmp_path) as (api, _):
        await api.publish("orders", b"payment")
        (message,) = await take(api, wait=5)
        known, _, tag = message["lease"].rpartition("-")
        assert len(tag) * 4 >= 64, "bits"
        guesses = [
            known,
            f"{known}-{'0' * len(tag)}",
            f"{known[:-1]}2-{tag}",
            f"{known}-{tag[:-1]}{int(tag[-1] == '0')}",
        ]
        assert (await api.post("/v1/leases:ack", {"leases": guesses})).json() == {"answered": 0, "over": guesses}
        for guess in guesses:
            for verb in ("ack", "nack", "extend"):
                (await api.post(f"/v1/leases/{guess}:{verb}")).problem(410, "lease-over")
        assert (await api.post(f"/v1/leases/{message['lease']}:ack")).status == 200


async def test_a_lease_belongs_to_who_took_it(tmp_path: Path, served: Serve) -> None:
    """INTERFACES 3: where there are tokens, a lease of another looks like one that is over; the name counts and not the
    token, and an admin may answer any. Once all tokens are taken away it is anybody's."""
    some = (token("one", "consume"), token("two", "consume"), token("root", "admin"), token("pub", "publish", "admin"))
    async with running_space(tmp_path, drain_s=0.1) as running:
        services = services_of(running)
        leases = Leases(services.channels.subscribers, services.consumers, running.view.subscriber_number)
        await running.queue("orders")
        async with served(running.space.channels, running.view, *pull.routes(leases), tokens=some) as api:

            async def ask(who: str, path: str, body: Any = None) -> Reply:
                return await api.post(path, body, {"Authorization": f"Bearer {who}"})

            for content in (b"a", b"b", b"c"):
                await api.post("/v1/queues/orders/messages", content, {"Authorization": "Bearer pub"})
            lent = (await ask("one", "/v1/queues/orders/pull", {"wait": 5})).json()["messages"]
            first, second, third = (message["lease"] for message in lent)
            for verb in ("ack", "nack", "extend"):
                (await ask("two", f"/v1/leases/{first}:{verb}")).problem(410, "lease-over")
                (await ask("pub", f"/v1/leases/{second}x:{verb}")).problem(400, "malformed")
            assert (await ask("two", "/v1/leases:ack", {"leases": [first, second]})).json()["answered"] == 0
            assert (await ask("root", f"/v1/leases/{first}:ack")).json()["answered"] == 1
            api.server.set_tokens((Token("one", hashlib.sha256(b"new").hexdigest(), frozenset({"consume"})),))
            assert (await ask("new", f"/v1/leases/{second}:ack")).json()["answered"] == 1
            (await ask("one", f"/v1/leases/{third}:ack")).problem(401, "unauthorized")
            api.server.set_tokens(())
            assert (await api.post(f"/v1/leases/{third}:ack")).json()["answered"] == 1
