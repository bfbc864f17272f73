"""Reading messages over HTTP from a real Space; cancelling, replaying, dead letters (INTERFACES 3)."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from syncbrok.log.format.codec import HEADER_BYTES
from syncbrok.log.offline.salvage import salvage
from syncbrok.model.errors import Draining
from syncbrok.model.facts import Reason
from syncbrok.model.names import parse_message_id, sequence_of
from tests.support.http.api import Api
from tests.support.http.space import ENDPOINT, ONCE, HttpSpace, MakeHttpSpace
from tests.support.log.segment_files import flip, offsets
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, REFUSED

WAIT = {"Prefer": "wait=20"}
UNKNOWN = "01a1fba6-f093-8000-8000-000104aafc26"


@pytest.fixture
async def running(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[HttpSpace]:
    async with http_space(tmp_path) as made:
        assert (await made.api.post("/v1/queues", {"name": "orders", **ONCE})).status == 201
        given = {"name": "billing", "endpoint": ENDPOINT}
        assert (await made.api.post("/v1/queues/orders/subscribers", given)).status == 201
        yield made


@pytest.fixture
def api(running: HttpSpace) -> Api:
    return running.api


async def published(api: Api, content: bytes, **headers: str) -> str:
    reply = await api.publish("orders", content, {name.replace("_", "-"): value for name, value in headers.items()})
    assert reply.status in (200, 201), reply
    return str(reply.json()["id"])


async def shown(api: Api, id_: str) -> Any:
    reply = await api.get(f"/v1/messages/{id_}")
    assert reply.status == 200, reply
    return reply.json()


async def test_a_message_shows_its_attempts(running: HttpSpace) -> None:
    """INTERFACES 3: state, attempts with time, status, latency, outcome, reason and what was answered."""
    running.consumer.answer = lambda _: REFUSED._replace(detail=b"no \xff", latency_us=1_500)
    id_ = await published(running.api, b"{}", Content_Type="application/json", Syncbrok_Key="k", **WAIT)
    found = await shown(running.api, id_)
    (delivery,) = found.pop("deliveries")
    (attempt,) = delivery.pop("attempts")
    assert attempt.pop("time").endswith("Z")
    assert attempt == {
        "attempt": 1,
        "outcome": "dead",
        "status": 500,
        "latency_ms": 1.5,
        "reason": Reason.STATUS.name.lower(),
        "detail": "no \ufffd",
    }
    assert delivery == {
        "subscriber": "billing",
        "endpoint": ENDPOINT,
        "state": "dead",
        "counted": True,
        "reason": "status",
        "next_attempt_at": None,
        "blocked_by": [],
    }
    assert found.pop("accepted_at").endswith("Z")
    assert found.pop("root") == found.pop("sequence")
    assert found == {
        "id": id_,
        "queue": "orders",
        "state": "dead",
        "parents": [],
        "blocked_by": [],
        "waits_for": None,
        "key": "k",
        "idempotency_key": None,
        "scope": "all",
        "parent_failure": "fail",
        "deliver_at": None,
        "expires_at": None,
        "depth": 0,
        "content_type": "application/json",
        "content_bytes": 2,
        "headers": {},
        "erased": False,
        "erase_after": None,
    }


async def test_reads_after_the_end_of_the_space_say_so(running: HttpSpace) -> None:
    """INTERFACES 3: between the end of the Space and that of the server a read is a 503 to repeat, not a failure; also
    one that stood in line when the readers went."""
    api, space = running.api, running.space.space
    id_ = await published(api, b"x")
    await running.space.ended(running.consumer.deliveries[0].message.id)
    late: list[asyncio.Future[Any]] = []

    def hold() -> None:
        """Keep a reader until all are told to go, and what stands in line behind it has been taken out."""
        pause, until_s = threading.Event(), time.monotonic() + 30
        while not space._readers._threads._shutdown and time.monotonic() < until_s:
            pause.wait(0.005)
        pause.wait(0.05)

    async def close() -> None:
        """Called when all is written, just before the readers go."""
        late.extend(asyncio.ensure_future(space._readers(hold)) for _ in range(4))
        late.append(asyncio.ensure_future(running.space.view.message(parse_message_id(id_))))
        await asyncio.sleep(0)

    running.consumer.close = close  # type: ignore[method-assign]
    await space.drain()
    await eventually(lambda: space._closed, "the end of the Space")
    *_, read = await asyncio.gather(*late, return_exceptions=True)
    assert isinstance(read, Draining)
    for path in (f"/v1/messages/{id_}", f"/v1/messages/{id_}/content", "/v1/queues/orders/messages"):
        (await api.get(path)).problem(503, "draining")
    assert (await api.get("/v1/queues/orders")).status == 200, "memory answers all the same"


async def test_a_message_says_why_it_waits(running: HttpSpace) -> None:
    """INTERFACES 3: why it waits, in words and by id."""
    running.consumer.answer = lambda _: None
    parent = await published(running.api, b"parent")
    child = await published(running.api, b"child", Syncbrok_Parent=parent)
    later = await published(running.api, b"later", Syncbrok_Deliver_At="2999-01-01T00:00:00Z")
    found = await shown(running.api, child)
    assert (found["state"], found["blocked_by"]) == ("waiting", [parent])
    assert found["waits_for"]
    assert found["deliveries"][0]["blocked_by"] == [parent]
    (subscriber,) = (await running.api.get("/v1/queues/orders/subscribers")).json()["subscribers"]
    assert subscriber["statistics"]["blocked"] == 2, "the child and the later one"
    found = await shown(running.api, later)
    assert (found["state"], found["deliver_at"]) == ("scheduled", "2999-01-01T00:00:00.000000Z")
    assert (await shown(running.api, parent))["deliveries"][0]["state"] == "in_flight"


async def test_content_is_safe_to_look_at(running: HttpSpace) -> None:
    """The bytes under their own media type, which a browser must neither guess nor run in the broker's origin."""
    id_ = await published(running.api, b"<script>alert(1)</script>", Content_Type="text/html")
    reply = await running.api.get(f"/v1/messages/{id_}/content")
    assert (reply.body, reply.headers["Content-Type"]) == (b"<script>alert(1)</script>", "text/html")
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in reply.headers["Content-Security-Policy"]
    assert reply.headers["Content-Disposition"].startswith("attachment")
    plain = await published(running.api, b"\x00")
    reply = await running.api.get(f"/v1/messages/{plain}/content")
    assert (reply.body, reply.headers["Content-Type"]) == (b"\x00", "application/octet-stream")
    head = await running.api.request("HEAD", f"/v1/messages/{id_}/content")
    assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", "25")


async def test_a_tree_shows_what_hangs_together(running: HttpSpace) -> None:
    """INTERFACES 3: the causal graph, up or down, so many edges deep."""
    api = running.api
    top = await published(api, b"top")
    left, right = [await published(api, b"x", Syncbrok_Parent=top) for _ in range(2)]
    bottom = await published(api, b"bottom", Syncbrok_Parent=f"{left},{right}")
    down = (await api.get(f"/v1/messages/{top}/tree")).json()
    assert [(node["id"], node["distance"]) for node in down["nodes"]] == [(top, 0), (left, 1), (right, 1), (bottom, 2)]
    assert (down["direction"], down["truncated"], down["nodes"][3]["parents"]) == ("down", False, [left, right])
    up = (await api.get(f"/v1/messages/{bottom}/tree?direction=up&depth=1")).json()
    assert {node["id"] for node in up["nodes"]} == {bottom, left, right}
    assert up["depth"] == 1


async def test_a_queue_is_read_from_any_point(running: HttpSpace) -> None:
    """INTERFACES 3: ``after``, ``limit``, ``state``; pages join without gap or overlap."""
    api = running.api
    running.consumer.answer = lambda delivery: REFUSED if delivery.message.content == b"1" else ACKNOWLEDGED
    ids = [await published(api, b"%d" % n, **WAIT) for n in range(5)]
    path, found = "/v1/queues/orders/messages?limit=2", []
    while path:
        page = (await api.get(path)).json()
        assert len(page["messages"]) <= 2
        found += [one["id"] for one in page["messages"]]
        path = page["next"] and f"/v1/queues/orders/messages?limit=2&after={page['next']}"
    assert found == ids
    dead = (await api.get("/v1/queues/orders/messages?state=dead")).json()["messages"]
    assert [one["id"] for one in dead] == [ids[1]]
    assert dead[0]["deliveries"][0]["attempts"] == []
    (await api.get("/v1/queues/nothing/messages")).problem(404, "unknown-queue")


async def test_messages_are_found_by_what_is_in_them(running: HttpSpace) -> None:
    """INTERFACES 3: what is said of queue, text, state and time must all be true; ``next`` leads on; what says nothing,
    or what nobody can be, is refused."""
    api = running.api
    ids = [await published(api, b"%d Grand Total" % at) for at in range(5)]
    one = (await api.get(f"/v1/messages/{ids[2]}")).json()
    for asked, expected in (
        ("queue=orders", ids[::-1]),
        ("text=GRAND+total&order=asc", ids),
        ("queue=orders&text=3+grand", [ids[3]]),
        (f"text=grand&since={one['sequence']}&until={one['sequence'] + 1}", [ids[2]]),
        (f"text=grand&until={one['accepted_at']}", [ids[1], ids[0]]),
        (f"text=grand&since={one['accepted_at']}&order=asc", ids[2:]),
        ("queue=orders&text=nothing", []),
    ):
        found, position = [], ""
        while position is not None:
            page = (await api.get(f"/v1/messages?{asked}&limit=2{position}")).json()
            found += [one["id"] for one in page["messages"]]
            position = page["next"] and f"&after={page['next']}"
        assert found == expected, asked
    for asked in ("order=asc", "text=", "state=lost&queue=orders", "state=in_flight", "reason=bad", "subscriber=s",
                  f"text={'x' * 1025}"):  # fmt: skip
        (await api.get(f"/v1/messages?{asked}")).problem(400, "malformed")
    (await api.get("/v1/messages?since=yesterday")).problem(400, "bad-setting")
    (await api.get("/v1/messages?queue=nothing")).problem(404, "unknown-queue")
    (await api.get("/v1/messages?queue=orders&subscriber=nobody")).problem(404, "unknown-subscriber")


async def test_messages_are_found_by_key(running: HttpSpace) -> None:
    """INTERFACES 3: ``?key=`` and ``?idempotency_key=``, newest first."""
    api = running.api
    first = await published(api, b"1", Syncbrok_Key="caf\u00e9 1")
    second = await published(api, b"2", Syncbrok_Key="caf\u00e9 1", Idempotency_Key="i")
    found = (await api.get("/v1/messages?key=caf%C3%A9%201")).json()
    assert ([one["id"] for one in found["messages"]], found["next"]) == ([second, first], None)
    assert [one["id"] for one in (await api.get("/v1/messages?idempotency_key=i")).json()["messages"]] == [second]
    assert (await api.get("/v1/messages?key=none")).json()["messages"] == []
    third = await published(api, b"3", Syncbrok_Key="caf\u00e9 1")
    path = "/v1/messages?key=caf%C3%A9%201&limit=1"
    after, ids = "", []
    while True:
        page = (await api.get(path + after)).json()
        ids += [one["id"] for one in page["messages"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert ids == [third, second, first]
    (await api.get(path + "&after=x")).problem(400, "malformed")


async def test_a_message_is_cancelled(running: HttpSpace) -> None:
    """RULES 22: what has not been delivered ends as dropped."""
    api = running.api
    later = await published(api, b"later", Syncbrok_Delay="1h")
    assert (await api.delete(f"/v1/messages/{later}")).json() == {"id": later, "dropped": 1}
    assert (await shown(api, later))["state"] == "dropped"
    assert running.consumer.seen == []
    (await api.delete(f"/v1/messages/{UNKNOWN}")).problem(404, "unknown-message")


async def test_a_dead_letter_is_listed_and_replayed(running: HttpSpace) -> None:
    """RULES 20 and 21: what died, to whom and why; a dry run only plans; a replay goes in causal order."""
    api, consumer = running.api, running.consumer
    consumer.answer = lambda _: REFUSED._replace(detail=b"no")
    parent = await published(api, b"parent", **WAIT)
    child = await published(api, b"child", Syncbrok_Parent=parent, **WAIT)
    letters = (await api.get("/v1/queues/orders/dead-letters")).json()
    assert letters["next"] is None
    assert [(one["id"], one["subscriber"], one["reason"], one["status"]) for one in letters["dead_letters"]] == [
        (parent, "billing", "status", 500),
        (child, "billing", "parent_failed", None),
    ]
    assert (letters["dead_letters"][0]["attempts"], letters["dead_letters"][0]["detail"]) == (1, "no")
    assert len((await api.get("/v1/queues/orders/dead-letters?limit=1")).json()["dead_letters"]) == 1
    path = "/v1/queues/orders/dead-letters/replay"
    planned = (await api.post(path, {"dry_run": True})).json()
    order = [{"id": parent, "subscribers": ["billing"]}, {"id": child, "subscribers": ["billing"]}]
    assert (planned["dry_run"], planned["replay"], planned["messages"], planned["deliveries"]) == (True, None, 2, 2)
    assert planned["order"] == order
    assert consumer.contents == [b"parent"]
    consumer.answer = lambda _: ACKNOWLEDGED
    done = (await api.post(path)).json()
    assert (done["dry_run"], done["order"]) == (False, order)
    assert done["replay"]
    await eventually(lambda: consumer.contents == [b"parent", b"parent", b"child"], "both, in order")
    await eventually(lambda: running.space.view.queue("orders").dead_letters == 0, "no dead letter left")


async def test_dead_letters_are_read_from_either_end(running: HttpSpace) -> None:
    """RULES 20, INTERFACES 3: ``order=desc`` has the newest first; the pages have each letter once, what died with its
    parent too, and the other order is the reverse."""
    api = running.api
    running.consumer.answer = lambda _: REFUSED
    ids = [await published(api, b"%d" % number, **WAIT) for number in range(5)]
    ids.append(await published(api, b"child", Syncbrok_Parent=ids[0], **WAIT))
    path = "/v1/queues/orders/dead-letters"

    async def listed(order: str) -> list[str]:
        found: list[str] = []
        after = 0
        while after is not None:
            page = (await api.get(f"{path}?limit=2&order={order}&after={after}")).json()
            assert 1 <= len(page["dead_letters"]) <= 2
            found += [one["id"] for one in page["dead_letters"]]
            after = page["next"]
        return found

    assert await listed("asc") == ids
    assert await listed("desc") == ids[::-1]
    assert [one["id"] for one in (await api.get(path)).json()["dead_letters"]] == ids
    (await api.get(f"{path}?order=newest")).problem(400, "malformed")


async def test_a_message_is_replayed_to_one(running: HttpSpace) -> None:
    """INTERFACES 3: ``{"descendants": false, "subscriber": null, "dry_run": false}``; what cannot be is refused."""
    api = running.api
    await api.post("/v1/queues/orders/subscribers", {"name": "other", "endpoint": ENDPOINT + "other"})
    id_ = await published(api, b"x", **WAIT)
    running.consumer.seen.clear()
    path = f"/v1/messages/{id_}/replay"
    for wrong in ({"subscriber": 7}, {"descendants": "no"}, {"dry_run": 1}, {"to": "billing"}):
        (await api.post(path, wrong)).problem(400, "bad-setting")
    (await api.post(path, {"subscriber": "nobody"})).problem(404, "unknown-subscriber")
    for replay in (path, "/v1/queues/orders/dead-letters/replay"):
        (await api.post(f"{replay}?dry_run=true", {"dry_run": False})).problem(400, "malformed")
    assert (await api.post(f"{path}?dry_run=1")).json()["replay"] is None
    assert running.consumer.seen == []
    plan = (await api.post(path, {"subscriber": "other", "descendants": False, "dry_run": False})).json()
    assert (plan["order"], plan["left"]) == ([{"id": id_, "subscribers": ["other"]}], 0)
    await eventually(lambda: running.consumer.seen == [(b"x", "other")], "the replay")
    (await api.post(f"/v1/messages/{UNKNOWN}/replay", {})).problem(404, "unknown-message")


async def test_a_replay_leaves_what_was_delivered_and_what_is_others(running: HttpSpace) -> None:
    """RULES 21, INTERFACES 3: ``descendants`` is false unless said, on both routes; ``left`` counts the dead letters
    that a narrowed replay does not touch."""
    api, consumer = running.api, running.consumer
    await api.post("/v1/queues/orders/subscribers", {"name": "other", "endpoint": ENDPOINT + "other"})
    parent = await published(api, b"parent", **WAIT)
    await published(api, b"child", Syncbrok_Parent=parent, **WAIT)
    path = f"/v1/messages/{parent}/replay"
    assert (await api.post(path, {"dry_run": True})).json()["messages"] == 1
    assert (await api.post(path, {"descendants": True, "dry_run": True})).json()["messages"] == 2
    consumer.answer = lambda _: REFUSED
    dead = await published(api, b"dead", **WAIT)
    below = await published(api, b"below", Syncbrok_Parent=dead, **WAIT)
    for path in (f"/v1/messages/{dead}/replay", "/v1/queues/orders/dead-letters/replay"):
        plan = (await api.post(path, {"subscriber": "other", "dry_run": True})).json()
        assert plan["order"] == [{"id": id_, "subscribers": ["other"]} for id_ in (dead, below)]
        assert plan["left"] == 2
        assert (await api.post(path, {"dry_run": True})).json()["left"] == 0


async def test_what_was_owed_to_a_deleted_subscriber_is_shown(tmp_path: Path, http_space: MakeHttpSpace) -> None:
    """RULES 14: who is deleted while a message waits for it stands there as dropped, also after a restart."""
    async with http_space(tmp_path) as made:
        await made.api.post("/v1/queues", {"name": "orders"})
        given = {"name": "billing", "endpoint": ENDPOINT, "paused": True}
        await made.api.post("/v1/queues/orders/subscribers", given)
        id_ = await published(made.api, b"x")
        assert (await made.api.delete("/v1/queues/orders/subscribers/billing")).json() == {"dropped": 1}
        found = await shown(made.api, id_)
        (delivery,) = found["deliveries"]
        assert found["state"] == "complete"
        assert (delivery["subscriber"], delivery["state"], delivery["reason"]) == ("billing", "dropped", "unsubscribed")
    async with http_space(tmp_path) as made:
        assert (await shown(made.api, id_))["deliveries"] == [delivery]


@pytest.mark.parametrize("broken", [[1], [1, 2]], ids=["one", "two in a row"])
async def test_what_salvage_lost_is_not_said_to_be_old(
    tmp_path: Path, broken: list[int], http_space: MakeHttpSpace
) -> None:
    """Nothing is lost silently: a message in a gap that salvage left answers 410 and says that it was lost there, not
    that retention dropped it. Those beside it are read."""
    async with http_space(tmp_path / "old") as made:
        await made.api.post("/v1/queues", {"name": "orders", **ONCE})
        ids = [await published(made.api, b"%d" % number) for number in range(4)]
    (path,) = (tmp_path / "old").glob("*.log")
    where = offsets(path)
    for number in broken:
        flip(path, where[sequence_of(parse_message_id(ids[number]))] + HEADER_BYTES)
    assert salvage(tmp_path / "old", tmp_path / "new").lost_records == len(broken)
    async with http_space(tmp_path / "new") as made:
        for number, id_ in enumerate(ids):
            one = f"/v1/messages/{id_}"
            if number not in broken:
                assert (await made.api.get(f"{one}/content")).body == b"%d" % number
                continue
            answers = [await made.api.get(one), await made.api.get(f"{one}/content"), await made.api.get(f"{one}/tree")]
            answers.append(await made.api.get(f"{one}/critical-path"))
            for reply in (*answers, await made.api.post(f"{one}/replay"), await made.api.delete(one)):
                problem = reply.problem(410, "lost")
                assert "gap" in problem["detail"]
                assert "older" not in problem["detail"]


async def test_what_a_restart_leaves_is_shown_as_before(tmp_path: Path, http_space: MakeHttpSpace) -> None:
    """The log is the truth: a message, its attempts and its content are the same after a restart."""
    async with http_space(tmp_path) as made:
        await made.api.post("/v1/queues", {"name": "orders", **ONCE})
        await made.api.post("/v1/queues/orders/subscribers", {"name": "billing", "endpoint": ENDPOINT})
        id_ = await published(made.api, b"x", Idempotency_Key="k", **WAIT)
        before = await shown(made.api, id_)
    async with http_space(tmp_path) as made:
        assert await shown(made.api, id_) == before
        assert (await made.api.get(f"/v1/messages/{id_}/content")).body == b"x"
        assert (await made.api.publish("orders", b"x", {"Idempotency-Key": "k"})).json()["id"] == id_
