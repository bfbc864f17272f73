"""Queues and subscribers over HTTP to a real Space: declare, list, change, delete (INTERFACES 3)."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from syncbrok.model.message import CONSUMER_SCHEME
from tests.support.http.api import Api
from tests.support.http.space import ENDPOINT, ONCE, HttpSpace, MakeHttpSpace
from tests.support.polling import eventually
from tests.support.space.spaces import GONE, REFUSED, consumers_of

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
SUBSCRIBERS = "/v1/queues/orders/subscribers"


@pytest.fixture
async def running(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[HttpSpace]:
    async with http_space(tmp_path) as made:
        yield made


@pytest.fixture
def api(running: HttpSpace) -> Api:
    return running.api


async def subscribed(api: Api, status: int = 201, **given: Any) -> Any:
    reply = await api.post(SUBSCRIBERS, {"endpoint": ENDPOINT, **given})
    assert reply.status == status, reply
    assert reply.headers["Location"] == f"{SUBSCRIBERS}/{reply.json()['id']}"
    return reply.json()


# -- queues -----------------------------------------------------------------------------------------------------------


async def test_a_queue_is_declared_once(api: Api) -> None:
    """INTERFACES 3: 201; 200 where it exists alike; 409 where it differs."""
    given = {
        "name": "orders",
        "scope": "same",
        "parent_failure": "hold",
        "retry": ["50ms", 2, "5m"],
        "timeout": 2.5,
        "window": 7,
        "idempotency_window": "2h",
    }
    reply = await api.post("/v1/queues", given)
    assert (reply.status, reply.headers["Location"]) == (201, "/v1/queues/orders")
    shown = reply.json()
    assert shown["retry"] == ["50ms", "2s", "5m"]
    assert (shown["timeout"], shown["window"], shown["scope"]) == ("2500ms", 7, "same")
    assert (await api.post("/v1/queues", given)).status == 200
    assert (await api.post("/v1/queues", {**given, "timeout": "2500ms"})).status == 200
    (await api.post("/v1/queues", {**given, "window": 8})).problem(409, "conflict")
    others = {**given, "timeout": "3s", "idempotency_window": "3h"}
    conflict = (await api.post("/v1/queues", others)).problem(409, "conflict")
    assert conflict["differs"] == ["timeout", "idempotency_window"], "by the names that can be sent"
    assert (await api.get("/v1/queues/orders")).json()["window"] == 7


async def test_what_is_shown_can_be_sent_back(api: Api) -> None:
    """Settings are read as they are written, so that a program can take one queue as the pattern for another."""
    shown = (await api.post("/v1/queues", {"name": "orders", "retry": ["1.5s"]})).json()
    del shown["statistics"]
    assert (await api.post("/v1/queues", shown)).status == 200
    del shown["name"]
    assert (await api.patch("/v1/queues/orders", shown)).status == 200


@pytest.mark.parametrize(
    ("given", "slug"),
    [
        ({}, "malformed"),
        ({"name": 7}, "malformed"),
        ({"name": ""}, "bad-name"),
        ({"name": "../etc"}, "bad-name"),
        ({"name": "orders", "scop": "same"}, "bad-setting"),
        ({"name": "orders", "scope": "none"}, "bad-setting"),
        ({"name": "orders", "timeout": "soon"}, "bad-setting"),
        ({"name": "orders", "timeout": -1}, "bad-setting"),
        ({"name": "orders", "retry": "5s"}, "bad-setting"),
        ({"name": "orders", "window": 0}, "bad-setting"),
        ({"name": "orders", "window": True}, "bad-setting"),
        ({"name": "orders", "idempotency_window": None}, "bad-setting"),
    ],
)
async def test_a_queue_with_a_mistake_is_not_declared(api: Api, given: Any, slug: str) -> None:
    """Unknown keys and values that cannot be are named; nothing changes."""
    (await api.post("/v1/queues", given)).problem(400, slug)
    assert (await api.get("/v1/queues")).json() == {"queues": [], "next": None}


async def test_queues_are_listed_in_pages(api: Api) -> None:
    """INTERFACES 3: lists take ``limit`` and ``after`` and answer ``next``."""
    for name in ("b", "a", "d", "c"):
        await api.post("/v1/queues", {"name": name})
    names: list[str] = []
    path = "/v1/queues?limit=3"
    while True:
        page = (await api.get(path)).json()
        names += [one["name"] for one in page["queues"]]
        if page["next"] is None:
            break
        path = f"/v1/queues?limit=3&after={page['next']}"
    assert names == ["a", "b", "c", "d"]
    (await api.get("/v1/queues?after=../x")).problem(400, "bad-name")


async def test_queues_and_subscribers_are_found_by_a_part_of_the_name(api: Api) -> None:
    """INTERFACES 3: ``text`` is looked for in the name, in either case; pages are those of what was found."""
    for name in ("Shop.orders", "shop.bills", "stock", "\u00dcber"):
        await api.post("/v1/queues", {"name": name})
        await api.post(f"/v1/queues/{name}/subscribers", {"endpoint": ENDPOINT, "name": "to-" + name[1:5]})
    page = (await api.get("/v1/queues?text=SHOP&limit=1")).json()
    assert ([one["name"] for one in page["queues"]], page["next"]) == (["Shop.orders"], "Shop.orders")
    page = (await api.get(f"/v1/queues?text=SHOP&limit=1&after={page['next']}")).json()
    assert ([one["name"] for one in page["queues"]], page["next"]) == (["shop.bills"], None)
    assert [one["name"] for one in (await api.get("/v1/queues?text=%C3%BCb")).json()["queues"]] == ["\u00dcber"]
    assert (await api.get("/v1/queues?text=none")).json() == {"queues": [], "next": None}
    found = (await api.get("/v1/queues/stock/subscribers?text=TOC")).json()["subscribers"]
    assert [one["id"] for one in found] == ["to-tock"]
    assert (await api.get("/v1/queues/stock/subscribers?text=shop")).json()["subscribers"] == []


async def test_settings_of_a_queue_change(api: Api) -> None:
    """PATCH changes what it names and leaves the rest; an empty one changes nothing."""
    await api.post("/v1/queues", {"name": "orders", "window": 7})
    changed = await api.patch("/v1/queues/orders", {"timeout": "3s"})
    assert (changed.status, changed.json()["timeout"], changed.json()["window"]) == (200, "3s", 7)
    assert (await api.patch("/v1/queues/orders", {})).json() == changed.json()
    for wrong in ({"name": "other"}, {"windw": 1}, {"window": "7"}, {"statistics": {}}):
        problem = (await api.patch("/v1/queues/orders", wrong)).problem(400, "bad-setting")
        assert problem["setting"] == next(iter(wrong))
    assert (await api.get("/v1/queues/orders")).json() == changed.json()
    (await api.patch("/v1/queues/nothing", {"window": 1})).problem(404, "unknown-queue")


async def test_a_queue_in_use_is_deleted_by_force_only(running: HttpSpace) -> None:
    """RULES 16: 409 while anything waits in it; ``?force=true`` drops it and says how much."""
    api = running.api
    running.consumer.answer = lambda _: None
    await api.post("/v1/queues", {"name": "orders"})
    await subscribed(api)
    await api.publish("orders", b"x")
    (await api.delete("/v1/queues/orders")).problem(409, "conflict")
    (await api.delete("/v1/queues/orders?force=false")).problem(409, "conflict")
    assert (await api.delete("/v1/queues/orders?force=true")).json() == {"dropped": 1}
    (await api.get("/v1/queues/orders")).problem(404, "unknown-queue")
    (await api.delete("/v1/queues/orders")).problem(404, "unknown-queue")


async def test_a_purge_says_how_much_first(running: HttpSpace) -> None:
    """INTERFACES 3: purge drops what waits; with dry_run it only counts, in body or query."""
    api = running.api
    running.consumer.answer = lambda _: None
    await api.post("/v1/queues", {"name": "orders", "window": 1})
    await subscribed(api)
    await api.batch("orders", *[{"data": n} for n in range(5)])
    purge = "/v1/queues/orders/purge"
    assert (await api.post(purge, {"dry_run": True})).json() == {"dropped": 5, "dry_run": True}
    assert (await api.post(f"{purge}?dry_run=true")).json() == {"dropped": 5, "dry_run": True}
    for wrong in ({"dry_run": "yes"}, {"dryrun": True}):
        (await api.post(purge, wrong)).problem(400, "bad-setting")
    for wrong in ("dryrun=true", "dry_run=true&dry_run=false"):
        (await api.post(f"{purge}?{wrong}")).problem(400, "malformed")
    for said, otherwise in ((True, "false"), (False, "true"), (False, "")):
        problem = (await api.post(f"{purge}?dry_run={otherwise}", {"dry_run": said})).problem(400, "malformed")
        assert problem["parameter"] == "dry_run", "neither of two that contradict each other wins"
    assert (await api.post(f"{purge}?dry_run=true", {"dry_run": True})).json() == {"dropped": 5, "dry_run": True}
    assert running.space.view.queue("orders").waiting == 5, "a mistake drops nothing"
    assert (await api.post(purge)).json() == {"dropped": 5, "dry_run": False}
    await eventually(lambda: running.space.view.queue("orders").waiting == 0, "an empty queue")


async def test_a_queue_shows_how_it_does(running: HttpSpace) -> None:
    """Settings and live statistics."""
    api = running.api
    await api.post("/v1/queues", {"name": "orders", **ONCE})
    await subscribed(api)
    await api.publish("orders", b"x", {"Prefer": "wait=20"})
    running.consumer.answer = lambda _: REFUSED
    last = (await api.publish("orders", b"y", {"Prefer": "wait=20"})).json()
    found = (await api.get("/v1/queues/orders")).json()["statistics"]
    assert found == {
        "backlog": {"messages": 0, "bytes": None},
        "subscribers": 1,
        "last_sequence": last["sequence"],
        "waiting": 0,
        "oldest_waiting": None,
        "changed_by": "local",
        "dead_letters": 1,
        "accepted": 2,
        "delivered": 1,
        "failed": 1,
        "dead": 1,
    }


# -- subscribers ------------------------------------------------------------------------------------------------------


async def test_an_endpoint_is_subscribed_once(api: Api) -> None:
    """INTERFACES 3: 201 with its id; identity is the name, else the endpoint (RULES 18): alike 200, else 409."""
    await api.post("/v1/queues", {"name": "orders"})
    given = {
        "name": "billing",
        "format": "cloudevents-structured",
        "retry": ["5s"],
        "timeout": "2s",
        "window": 3,
        "headers": {"X-Tenant": "north"},
        "secret": SECRET,
    }
    shown = await subscribed(api, **given)
    assert (shown["id"], shown["queue"], shown["endpoint"], shown["state"]) == ("billing", "orders", ENDPOINT, "active")
    assert (shown["format"], shown["headers"], shown["retry"]) == (
        "cloudevents-structured",
        {"x-tenant": "set"},
        ["5s"],
    )
    assert shown["secret"] == "set"
    await subscribed(api, 200, **given)
    others = {"endpoint": ENDPOINT, **given, "window": 4, "timeout": "3s"}
    assert (await api.post(SUBSCRIBERS, others)).problem(409, "conflict")["differs"] == ["timeout", "window"]
    for start, status in (("now", 200), ("beginning", 409), (1, 409), (7, 409)):
        again = await api.post(SUBSCRIBERS, {"endpoint": ENDPOINT, **given, "start": start})
        assert again.status == status
        assert status == 200 or again.problem(409, "conflict")["differs"] == ["start"], "neither heard nor refused"
    late = await subscribed(api, name="late", start="beginning")
    for start in ({}, {"start": "beginning"}, {"start": late["start"]}):
        assert await subscribed(api, 200, name="late", **start) == late
    refused = await api.post(SUBSCRIBERS, {"endpoint": ENDPOINT, "name": "late", "start": "now", "window": 9})
    assert refused.problem(409, "conflict")["differs"] == ["window", "start"]
    await api.delete(f"{SUBSCRIBERS}/late")
    nameless = await subscribed(api)
    assert (await subscribed(api, 200))["id"] == nameless["id"]
    listed = (await api.get(SUBSCRIBERS)).json()
    assert {one["id"] for one in listed["subscribers"]} == {"billing", nameless["id"]}
    assert listed["next"] is None
    assert (await api.get(f"{SUBSCRIBERS}?limit=1")).json()["next"] is not None


@pytest.mark.parametrize(
    "given",
    [
        {"endpoint": None},
        {"endpoint": 7},
        {"endpoint": "ftp://x/"},
        {"endpoint": "file:///etc/passwd"},
        {"endpoint": "http://user:password@x/"},
        {"name": "a/b"},
        {"format": "xml"},
        {"secret": "hunter2"},
        {"secret": 7},
        {"start": "yesterday"},
        {"start": 0},
        {"start": True},
        {"start": -1},
        {"paused": "yes"},
        {"headers": {"host": "x"}},
        {"headers": {"x": "a\nb"}},
        {"endpiont": "x"},
        {"disabled_us": 1},
        {"secret_count": 1},
        {"id": "x"},
    ],
)
async def test_a_subscriber_with_a_mistake_is_not_subscribed(api: Api, given: Any) -> None:
    """The setting is named, a secret is never repeated (RULES 19), and nothing changes."""
    await api.post("/v1/queues", {"name": "orders"})
    reply = await api.post(SUBSCRIBERS, {"endpoint": ENDPOINT, **given})
    assert reply.problem(400, "bad-setting")["setting"] == next(iter(given))
    assert b"hunter2" not in reply.body
    (await api.post(SUBSCRIBERS, {"name": "x"})).problem(400, "bad-setting")
    assert (await api.get(SUBSCRIBERS)).json()["subscribers"] == []


@pytest.mark.parametrize(
    "setting",
    [
        {"breaker": {"failures": 3}},
        {"batch": {"max": 10}},
        {"verdicts": True},
        {"auth": {"bearer": "t0ken"}},
        {"signatures": [{"scheme": "v1a"}]},
    ],
)
async def test_what_only_an_endpoint_has_is_refused_for_a_group(running: HttpSpace, setting: dict[str, Any]) -> None:
    """INTERFACES 3: 400 with the name of the setting where consumers come for their messages, at once and by PATCH;
    what holds for all is taken."""
    api, space = running.api, running.space.space
    space.handle(CONSUMER_SCHEME, consumers_of(space))
    await api.post("/v1/queues", {"name": "pulled"})
    path, (name,) = "/v1/queues/pulled/subscribers", setting
    problem = (await api.post(path, {"name": "g", "pull": True, **setting})).problem(400, "bad-setting")
    assert name in problem["detail"]
    for_all = {"filter": "size > 0", "rate": "5/s", "disable_after": "1d"}
    assert (await api.post(path, {"name": "g", "pull": True, **for_all})).status == 201
    (await api.patch(f"{path}/g", setting)).problem(400, "bad-setting")
    shown = (await api.get(f"{path}/g")).json()
    assert {one: shown[one] for one in for_all} == for_all


async def test_what_is_not_there_is_404(api: Api) -> None:
    """Unknown queue and unknown subscriber are told apart."""
    (await api.get(SUBSCRIBERS)).problem(404, "unknown-queue")
    (await api.post(SUBSCRIBERS, {"endpoint": ENDPOINT})).problem(404, "unknown-queue")
    await api.post("/v1/queues", {"name": "orders"})
    for method, tail, body in (
        ("GET", "", None),
        ("PATCH", "", {"paused": True}),
        ("DELETE", "", None),
        ("POST", "/test", None),
        ("POST", "/rotate-secret", None),
    ):
        (await api.request(method, f"{SUBSCRIBERS}/nobody{tail}", body)).problem(404, "unknown-subscriber")


async def test_a_subscriber_begins_where_it_asks(running: HttpSpace) -> None:
    """RULES 14: from now on, or catching up from the beginning or a sequence."""
    api = running.api
    await api.post("/v1/queues", {"name": "orders"})
    sequences = [(await api.publish("orders", b"%d" % n)).json()["sequence"] for n in range(3)]
    await subscribed(api, name="now")
    await subscribed(api, name="all", start="beginning")
    await subscribed(api, name="late", start=sequences[1])
    await subscribed(api, name="text", start=str(sequences[2]))
    await eventually(lambda: len(running.consumer.seen) >= 6, "what they missed")
    by_subscriber: dict[str, list[bytes]] = {}
    for content, subscriber in running.consumer.seen:
        by_subscriber.setdefault(subscriber, []).append(content)
    assert by_subscriber == {"all": [b"0", b"1", b"2"], "late": [b"1", b"2"], "text": [b"2"]}


async def test_a_subscriber_is_paused_and_goes_on(running: HttpSpace) -> None:
    """RULES 14: paused, it is still counted; what came meanwhile is delivered when it goes on."""
    api = running.api
    await api.post("/v1/queues", {"name": "orders"})
    one = f"{SUBSCRIBERS}/{(await subscribed(api))['id']}"
    assert (await api.patch(one, {"paused": True})).json()["state"] == "paused"
    await api.publish("orders", b"x")
    assert (await api.get("/v1/queues/orders")).json()["statistics"]["waiting"] == 1
    assert running.consumer.seen == []
    assert (await api.patch(one, {"paused": False})).json()["state"] == "active"
    await eventually(lambda: running.consumer.contents == [b"x"], "the delivery")


async def test_one_that_a_410_disabled_can_be_enabled(running: HttpSpace) -> None:
    """INTERFACES 3: 410 disables the subscriber; it shows, and PATCH paused false enables it again."""
    api = running.api
    running.consumer.answer = lambda _: GONE
    await api.post("/v1/queues", {"name": "orders"})
    one = f"{SUBSCRIBERS}/{(await subscribed(api))['id']}"
    await api.publish("orders", b"x", {"Prefer": "wait=20"})
    shown = (await api.get(one)).json()
    assert (shown["state"], shown["statistics"]["last_status"]) == ("disabled", 410)
    assert shown["statistics"]["last_attempt_at"].endswith("Z")
    assert (await api.patch(one, {"paused": False})).json()["state"] == "active"


async def test_settings_of_a_subscriber_change(api: Api) -> None:
    """PATCH takes every setting and the secret; ``start`` is done by a job (RULES 34)."""
    await api.post("/v1/queues", {"name": "orders"})
    one = f"{SUBSCRIBERS}/{(await subscribed(api, name='billing', retry=['1s']))['id']}"
    changed = (await api.patch(one, {"endpoint": ENDPOINT + "new", "retry": None, "window": 5})).json()
    assert (changed["endpoint"], changed["retry"], changed["window"]) == (ENDPOINT + "new", None, 5)
    assert changed["secret"] is None
    assert (await api.patch(one, {"secret": SECRET})).json()["secret"] == "set"
    sought = await api.patch(one, {"start": "now"})
    assert (sought.status, sought.headers["Location"]) == (200, f"/v1/jobs/{sought.json()['job']}")
    (await api.patch(one, {"start": "yesterday"})).problem(400, "bad-setting")
    (await api.patch(one, {"state": "active"})).problem(400, "bad-setting")
    assert (await api.patch(one, {})).json()["window"] == 5


async def test_a_subscriber_is_deleted(running: HttpSpace) -> None:
    """RULES 14: its pending deliveries end dropped; the answer says how many."""
    api = running.api
    running.consumer.answer = lambda _: None
    await api.post("/v1/queues", {"name": "orders"})
    one = f"{SUBSCRIBERS}/{(await subscribed(api))['id']}"
    await api.publish("orders", b"x")
    assert (await api.delete(one)).json() == {"dropped": 1}
    (await api.get(one)).problem(404, "unknown-subscriber")


async def test_secrets_are_shown_once(running: HttpSpace) -> None:
    """INTERFACES 3 rotate-secret, RULES 19: the new secret is in that one answer, which nothing may keep."""
    api = running.api
    await api.post("/v1/queues", {"name": "orders"})
    one = f"{SUBSCRIBERS}/{(await subscribed(api, secret=SECRET))['id']}"
    reply = await api.post(f"{one}/rotate-secret")
    new = reply.json()["secret"]
    assert new.startswith("whsec_")
    assert new != SECRET
    assert reply.headers["Cache-Control"] == "no-store"
    given = "whsec_" + base64.b64encode(b"g" * 24).decode()
    assert (await api.post(f"{one}/rotate-secret", {"secret": given})).json()["secret"] == given
    (await api.post(f"{one}/rotate-secret", {"secret": "whsec_x"})).problem(400, "bad-setting")
    (await api.post(f"{one}/rotate-secret", {"sekret": given})).problem(400, "bad-setting")
    assert (await api.patch(one, {"secret": given})).json()["secret"] == "set"
    for path in (one, SUBSCRIBERS, "/v1/queues/orders", "/metrics", "/v1/queues/orders/messages"):
        body = (await api.get(path)).body.decode()
        assert not [secret for secret in (SECRET, new, given) if secret in body or secret[6:] in body]


async def test_null_takes_the_secret_away(running: HttpSpace) -> None:
    """``PATCH {"secret": null}``: deliveries are no longer signed, and the answer says so; again: nothing."""
    api = running.api
    await api.post("/v1/queues", {"name": "orders"})
    one = f"{SUBSCRIBERS}/{(await subscribed(api, secret=SECRET))['id']}"
    assert running.space.space.signing_keys(1)
    for _ in range(2):
        changed = await api.patch(one, {"secret": None, "window": 5})
        assert (changed.status, changed.json()["secret"], changed.json()["window"]) == (200, None, 5)
        assert running.space.space.signing_keys(1) == ()
    assert (await api.patch(one, {"secret": SECRET})).json()["secret"] == "set"
    assert running.space.space.signing_keys(1)


async def test_a_test_message_goes_to_one_alone(running: HttpSpace) -> None:
    """INTERFACES 3: ``POST .../test`` sends a test message to it alone; with Prefer it tells how that went."""
    api = running.api
    await api.post("/v1/queues", {"name": "orders", **ONCE})
    await subscribed(api, name="one")
    await subscribed(api, name="two")
    reply = await api.post(f"{SUBSCRIBERS}/one/test", None, {"Prefer": "wait=20"})
    assert (reply.status, [one["state"] for one in reply.json()["deliveries"]]) == (200, ["delivered"])
    assert running.consumer.seen == [(b'{"type":"syncbrok.test"}', "one")]
    assert (await api.post(f"{SUBSCRIBERS}/two/test", b"hello", {"Content-Type": "text/x"})).status == 201
    await eventually(lambda: running.consumer.seen[1:] == [(b"hello", "two")], "the second")
    assert running.consumer.deliveries[1].message.content_type == "text/x"


async def test_a_breaker_is_set_and_shown(api: Api) -> None:
    """RULES 29, INTERFACES 3: what a mapping leaves out has its default, ``false`` is none, ``true`` the default;
    anything else is 400."""
    await api.post("/v1/queues", {"name": "orders"})
    default = {"failures": 10, "share": 0.5, "of": 100, "probe": ["5s", "5m"]}
    made = await subscribed(api, name="a")
    assert (made["breaker"], made["statistics"]["breaker"]) == (default, "closed")
    for given, shown in (
        ({"failures": 3}, {**default, "failures": 3}),
        (False, False),
        ({"probe": [1, "1h"], "share": 1}, {**default, "probe": ["1s", "1h"], "share": 1.0}),
        (True, default),
    ):
        assert (await api.patch(f"{SUBSCRIBERS}/a", {"breaker": given})).json()["breaker"] == shown
    for bad in (None, 3, {"failures": 0}, {"probe": ["5m", "5s"]}, {"of": 5}, {"share": 2}, {"fail": 3}, ["5s"]):
        problem = (await api.patch(f"{SUBSCRIBERS}/a", {"breaker": bad})).problem(400, "bad-setting")
        assert problem["setting"] == "breaker"
