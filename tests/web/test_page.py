"""The web page, in a real browser over a real Space (skipped where there is no Chromium)."""

import asyncio
import hashlib
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from syncbrok import web
from syncbrok.frontends.over_http.resources import cluster
from syncbrok.model.message import ParentFailure, QueueSettings
from syncbrok.model.names import id_text
from syncbrok.model.tokens import Token
from tests.support.cluster.followers import SomeNode, following
from tests.support.http.api import Serve
from tests.support.http.browser import Browser
from tests.support.http.page_stage import HOSTILE, PATIENT, ROUTES, Stage, in_browser
from tests.support.space.spaces import ACKNOWLEDGED, running_space

FORBIDDEN = ("http:", "https:", "innerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=", "onclick=")
UNESCAPED = "-_.!~*'()"
"""by ``encodeURIComponent``, besides letters and digits"""


@in_browser
async def test_the_front_shows_what_is_stuck_and_why(stage: Stage) -> None:
    """The overview names every queue, the messages waiting longest with the reason in words, and who is failing;
    nothing is loaded from elsewhere and the browser complains of nothing."""
    parent = await stage.running.publish("customers", b"fail")
    await stage.running.publish("cards", b"child", parent)

    await stage.see("subscriber crm has failed once", "")
    text = await stage.see(f"waits for parent …{id_text(parent)[-8:]} in queue customers")

    assert "Subscribers to look after" in text
    assert "Cluster" not in text
    assert all(name in text for name in ("customers", "cards", "orders", "answered 503"))
    await stage.see("live", selector="#link")
    origins = await stage.do(
        stage.browser.run,
        "return performance.getEntriesByType('resource').map(entry => new URL(entry.name).origin)",
    )
    assert set(origins) == {stage.url}
    assert await stage.do(stage.browser.complaints) == []


@in_browser
async def test_what_happens_is_seen_without_reloading(stage: Stage) -> None:
    """The ticker follows the event stream; the message's page follows its deliveries."""
    first = await stage.running.publish("customers", b"fail")
    await stage.see("failed", f"#/messages/{id_text(first)}")
    await stage.see("Nothing has happened since", "")
    second = await stage.running.publish("cards", b"fine")
    text = await stage.see("complete", selector=".ticker")
    assert f"…{id_text(second)[-8:]}" in text
    assert "ledger" in text


@in_browser
async def test_a_message_shows_its_attempts_and_its_tree(stage: Stage) -> None:
    """Every attempt with its answer; parents left of children in the drawing, each a link, edges between them."""
    top = await stage.running.publish("customers", b"fail")
    left, right = [await stage.running.publish("cards", b"x", top) for _ in range(2)]
    bottom = await stage.running.publish("orders", b"y", left, right, top)

    await stage.see("Causal tree", f"#/messages/{id_text(left)}")

    places = {}
    for id_ in (top, left, bottom):
        selector = f".tree a[href='#/messages/{id_text(id_)}'] .box"
        x = await stage.do(stage.browser.run, "return document.querySelector(arguments[0])?.x.baseVal.value", selector)
        places[id_] = x
    assert places[top] < places[left] < places[bottom]
    assert await stage.do(stage.browser.run, "return document.querySelectorAll('.tree .edge.shut').length") == 3
    await stage.do(stage.browser.click, f".tree a[href='#/messages/{id_text(top)}']")
    text = await stage.see("answered 503", selector=".deliveries")
    assert "later" in text
    assert await stage.do(stage.browser.run, "return document.querySelectorAll('.tree .node').length") == 4


@in_browser
async def test_dead_letters_are_replayed_after_a_look_at_the_plan(stage: Stage) -> None:
    """The button asks first: a dry run shows what would go out, and only then it does; descendants come along."""
    dead = await stage.running.publish("orders", b"dead")
    child = await stage.running.publish("orders", b"child", dead)
    await stage.running.ended(dead, child)
    await stage.see("parent failed", "#/queues/orders")
    stage.running.consumer.answer = lambda _: ACKNOWLEDGED
    tried = len(stage.running.consumer.seen)

    await stage.do(stage.browser.click, "[data-do=replay][data-path$='dead-letters/replay']")
    plan = await stage.see("Replay 2 deliveries", selector="#dialog")
    assert f"…{id_text(child)[-8:]} → warehouse" in plan
    assert len(stage.running.consumer.seen) == tried
    await stage.do(stage.browser.click, "#dialog [data-do=confirm]")

    await stage.see("2 messages are going out again")
    await stage.see("None.", selector="#dead-letters")
    assert stage.running.consumer.contents[tried:] == [b"dead", b"child"]


@in_browser
async def test_the_plan_of_a_replay_to_one_says_what_is_left(stage: Stage) -> None:
    """RULES 21: replayed from its row a dead letter goes to that subscriber alone, and the plan says how many letters
    of others stay; with the other box it goes to everyone who has missed it."""
    await stage.running.subscribe("orders", "archive")
    dead = await stage.running.publish("orders", b"dead")
    await stage.running.ended(dead)
    await stage.see("answered 500", "#/queues/orders")
    await stage.do(stage.browser.click, "[data-do=replay][data-subscriber=archive]")
    plan = await stage.see("Replay 1 delivery", selector="#dialog")
    assert f"…{id_text(dead)[-8:]} → archive" in plan
    assert "1 dead letter of other subscribers stays as it is." in plan
    await stage.do(stage.browser.click, "#dialog [name=everyone]")
    assert "of other subscribers" not in await stage.see("Replay 2 deliveries", selector="#dialog")


@in_browser
async def test_what_has_failed_is_tried_again_now(stage: Stage) -> None:
    """RULES 26: where something waits for another attempt there is a button, for the whole subscriber in its row and
    for one message with its delivery; it is gone when nothing waits."""
    messages = [await stage.running.publish("customers", b"fail") for _ in range(3)]
    await stage.see("failed", f"#/messages/{id_text(messages[0])}", ".deliveries")
    stage.running.consumer.answer = lambda _: ACKNOWLEDGED
    await stage.do(stage.browser.click, ".deliveries [data-do=retry]")
    await stage.see("1 delivery waits", selector="#dialog")
    assert stage.running.consumer.contents.count(b"fail") == 3
    await stage.do(stage.browser.click, "#dialog [data-do=confirm]")
    await stage.see("1 delivery is tried again now at crm")
    await stage.see("delivered", selector=".deliveries")
    assert stage.running.consumer.contents.count(b"fail") == 4
    buttons = "return document.querySelectorAll('[data-do=retry]').length"
    assert await stage.do(stage.browser.run, buttons) == 0

    await stage.see("Retry now", "#/queues/customers")
    await stage.do(stage.browser.click, "[data-do=retry]")
    await stage.see("Retry 2 deliveries", selector="#dialog")
    await stage.do(stage.browser.click, "#dialog [data-do=confirm]")
    await stage.see("2 deliveries are tried again now at crm")
    await stage.running.ended(*messages)
    assert stage.running.consumer.contents.count(b"fail") == 6


@in_browser
async def test_hostile_texts_stay_texts(stage: Stage) -> None:
    """Keys, contents, headers and answers of strangers are shown as they are, and never become part of the page."""
    message = await stage.running.publish(
        "orders", b"dead " + HOSTILE.encode(), key=HOSTILE, content_type="text/html", headers=(("ce-type", HOSTILE),)
    )
    await stage.running.ended(message)
    for fragment, inside in (("#/queues/orders", "window.hacked"), (f"#/messages/{id_text(message)}", "window.hacked")):
        assert HOSTILE in await stage.see(inside, fragment)
    await stage.do(stage.browser.click, "[data-do=content]")
    assert HOSTILE in await stage.see("dead <img", selector=".content")
    assert HOSTILE in await stage.see("onerror", f"#/find?text={HOSTILE.replace('#', '')}")
    assert (
        await stage.do(stage.browser.run, "return window.hacked ?? document.querySelectorAll('main img').length") == 0
    )


@in_browser
@pytest.mark.parametrize("name", [HOSTILE.replace("/", ""), "100% +?#&", "\U0001f4e8" * 40, 'a"b\\c {x}'])
async def test_a_queue_of_any_name_has_its_page(stage: Stage, name: str) -> None:
    """INTERFACES 5: whatever a queue is called, its name is text, and the links to it lead to it: from the overview and
    the search, of its messages, in the tree, and what is done there is done to it."""
    await stage.running.queue(name, PATIENT, ["crm"])
    message = await stage.running.publish(name, b"fail")
    child = await stage.running.publish(name, b"child", message)
    await stage.see("subscriber crm has failed once", "")
    href = f"#/queues/{quote(name, safe=UNESCAPED)}"
    await stage.do(stage.browser.click, f"a[href={json.dumps(href)}]")
    assert name in await stage.see("What it waits for", selector="main")
    assert await stage.do(stage.browser.run, "return document.title") == f"{name} \u2013 Syncbrok"
    await stage.do(stage.browser.click, "[data-do=pause]")
    assert "is paused" in await stage.see("is paused")
    await stage.see("newest", f"{href}?from=0")
    assert name[:15] in await stage.see("Causal tree", f"#/messages/{id_text(child)}")
    assert name in await stage.see("There is a queue of this name", f"#/find?text={quote(name, safe='')}")
    hacked = "return window.hacked ?? document.querySelectorAll('main img').length"
    assert await stage.do(stage.browser.run, hacked) == 0
    assert await stage.do(stage.browser.complaints) == []


@in_browser
async def test_an_address_that_is_no_escape_leads_somewhere(stage: Stage) -> None:
    """INTERFACES 5: a bad escape typed by hand is told as an unknown queue, and the page goes on."""
    await stage.see("no queue", "#/queues/100%zz")
    await stage.see("What is stuck", "#/")


@in_browser
async def test_it_fits_a_telephone(stage: Stage) -> None:
    """At 360 pixels no view is wider than the screen."""
    parent = await stage.running.publish("customers", b"fail")
    child = await stage.running.publish("cards", b"child", parent, key="k" * 80, content_type="application/" + "x" * 80)
    dead = await stage.running.publish("orders", b"dead")
    await stage.running.ended(dead)
    await stage.do(stage.browser.size, 360, 740)
    for fragment, text in (
        ("", "What is stuck"),
        ("#/queues/orders", "Dead letters"),
        (f"#/messages/{id_text(child)}", "Causal tree"),
        ("#/find?text=" + "k" * 80, "Messages with this key"),
    ):
        await stage.see(text, fragment)
        assert await stage.do(stage.browser.run, "return document.documentElement.scrollWidth") <= 360, fragment


@in_browser
async def test_a_subscriber_is_paused_and_resumed(stage: Stage) -> None:
    """One button on the queue's page; what the subscriber is owed waits meanwhile."""
    await stage.see("warehouse", "#/queues/orders")
    await stage.do(stage.browser.click, "[data-do=pause]")
    await stage.see("is paused")
    message = await stage.running.publish("orders", b"x")
    assert await stage.running.states(message) == ["pending"]
    await stage.see("subscriber warehouse does not take: it is paused")
    await stage.do(stage.browser.click, "[data-do=resume]")
    await stage.running.ended(message)
    await stage.see("active again")


@in_browser
async def test_with_tokens_the_page_asks_for_one(tmp_path: Path, browser: Browser, served: Serve) -> None:
    """The files are open, what they show is not: without a token a form, with one the figures and the live link."""
    token = Token("reader", hashlib.sha256(b"let-me-in").hexdigest(), frozenset({"read"}))
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_space(tmp_path / "log"))
        routes = served(running.space.channels, running.view, *ROUTES, tokens=(token,))
        api = await stack.enter_async_context(routes)
        stack.callback(running.view.close)
        await running.queue("secretive")
        stage = Stage(running, api, browser)
        assert "secretive" not in await stage.see("A token is needed", "")
        await stage.do(browser.run, "document.getElementById('token').value = 'let-me-in'")
        await stage.do(browser.click, "[data-form=token] button")
        await stage.see("secretive")
        await stage.see("live", selector="#link")


class ToldNode(SomeNode):
    """Of three, whose leader is a; a test changes what they tell."""

    def __init__(self) -> None:
        super().__init__()
        roles = {"a": "leading", "b": "following", "c": "following"}
        self.nodes: list[dict[str, Any]] = [
            {"node": name, "url": f"http://{name}:1", "pid": 7, "role": role, "sequence": 12, "lag_records": 0}
            for name, role in roles.items()
        ]
        self.engine = [{"url": f"nats://{name}:2", "alive": True, "sync_always": True} for name in "abc"]
        self.leader: dict[str, Any] | None = {"node": "a", "url": "http://a:1", "pid": 7}

    def status(self) -> dict[str, Any]:
        return {"space": "main", "epoch": 9, "leader": self.leader, "nodes": self.nodes, "engine": self.engine}


@in_browser
async def test_of_a_cluster_the_page_says_who_leads_and_what_is_wrong(
    tmp_path: Path, browser: Browser, served: Serve
) -> None:
    """CLUSTER, "the page shows nodes, leader, lag": a table of nodes and one of the engine's servers, and in words each
    thing that an operator has to look at; what nodes call themselves stays text; it fits a telephone."""
    node = ToldNode()
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_space(tmp_path / "log"))
        routes = (*ROUTES, *cluster.routes(node, lambda: None))
        api = await stack.enter_async_context(
            served(running.space.channels, running.view, *routes, leader_url="http://a:1")
        )
        stack.callback(running.view.close)
        stage = Stage(running, api, browser)

        text = await stage.see("a leads", "", ".cluster")
        assert all(word in text for word in ("epoch 9", "following", "http://b:1", "nats://c:2", "main"))
        assert await stage.do(browser.run, "return document.querySelector('.cluster .notice')?.innerText") is None
        assert await stage.do(browser.complaints) == []

        node.nodes[1] |= {"sequence": 2, "lag_records": 10}
        node.nodes.pop()
        await stage.see("Node c has not been heard", selector=".cluster .notice")
        await stage.see("Node b has been behind", selector=".cluster .notice")  # once that has lasted for a while
        node.nodes[1] |= {"node": HOSTILE, "url": HOSTILE, "role": "stalled"}
        node.engine[0]["sync_always"] = False
        node.nodes[0]["archive"], node.nodes[1]["archive"] = "pipeline", "nobody"
        node.engine[1] = node.engine[2] = {"url": HOSTILE, "alive": False, "sync_always": False}
        node.leader = None
        text = await stage.see("Nobody leads", selector=".cluster .notice")
        assert f"Node {HOSTILE} has stopped following: its disk is full" in text
        assert "nats://a:2 does not fsync" in text
        assert f"differ in storage.archive (a: pipeline, {HOSTILE}: nobody)" in text
        assert f"{HOSTILE} does not answer" in text
        assert "has lost its majority" in text
        hacked = "return window.hacked ?? document.querySelectorAll('main img').length"
        assert await stage.do(browser.run, hacked) == 0
        await stage.do(browser.size, 360, 740)
        await stage.see("Nobody leads", selector=".cluster .notice")
        assert await stage.do(browser.run, "return document.documentElement.scrollWidth") <= 360


@in_browser
async def test_where_nobody_leads_the_page_shows_who_is_there(browser: Browser) -> None:
    """A node without a leader serves the page's files itself, and the page asks it for the cluster: whoever opens it
    then reads what is wrong, and no document in JSON."""
    node = ToldNode()
    node.leader = None
    async with following(node) as follower:
        await asyncio.to_thread(browser.open, f"http://127.0.0.1:{follower.server.port}/")
        text = await asyncio.to_thread(browser.wait_for, "Nobody leads", ".cluster .notice")
        assert "nobody is known to lead" in await asyncio.to_thread(browser.text)
        assert "No other node" not in text


@in_browser
async def test_the_api_is_described_on_a_page(stage: Stage) -> None:
    """INTERFACES 3: /docs shows every route that /openapi.json describes, with its parameters, bodies and answers, from
    files of this broker alone; routes are found by words and led to by their names."""
    text = await stage.see("Publish a message", "docs#publish")
    document = (await stage.api.get("/openapi.json")).json()
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    assert all(one["summary"].lower() in text.lower() for one in operations)
    shown = await stage.see("Syncbrok-Parent", selector="#publish")
    assert all(word in shown for word in ("POST", "application/octet-stream", "*/*", "scope publish", "Refusals"))
    at = await stage.do(stage.browser.run, "return document.getElementById('publish').getBoundingClientRect().top")
    assert 0 <= at < 200
    for _ in range(2):  # what is opened has more to open in it
        opened = "document.querySelectorAll('#declare_queue details').forEach((one) => (one.open = true))"
        await stage.do(stage.browser.run, opened)
        await stage.see("A queue, its settings and what is in it now", selector="#declare_queue")
    await stage.see("Stable: urn:syncbrok:problem:SLUG", selector="#declare_queue")
    find = "const box = document.getElementById('narrow'); box.value = 'rotate SUBSCRIBER';"
    await stage.do(stage.browser.run, find + "box.dispatchEvent(new Event('input'))")
    left = "return [...document.querySelectorAll('.operation:not([hidden])')].map((one) => one.id)"
    assert await stage.do(stage.browser.run, left) == ["rotate_secret"]
    wide = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert await stage.do(stage.browser.run, wide)
    origins = "return performance.getEntriesByType('resource').map(entry => new URL(entry.name).origin)"
    assert set(await stage.do(stage.browser.run, origins)) == {stage.url}
    assert await stage.do(stage.browser.complaints) == []


async def test_the_page_is_sent_with_a_policy_and_only_once(tmp_path: Path, served: Serve) -> None:
    """Every file forbids what it does not need, names its media type, and is not sent again while it is the same."""
    async with running_space(tmp_path) as running, served(running.space.channels, running.view, *ROUTES) as api:
        files = (
            ("/", "text/html"),
            ("/docs", "text/html"),
            ("/web/app.js", "text/javascript"),
            ("/web/style.css", "text/css"),
        )
        for path, media in files:
            reply = await api.get(path)
            assert (reply.status, reply.headers["Content-Type"]) == (200, f"{media}; charset=utf-8")
            policy = reply.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert reply.headers["X-Content-Type-Options"] == "nosniff"
            again = await api.get(path, {"If-None-Match": reply.headers["ETag"]})
            assert (again.status, again.body) == (304, b"")


async def test_the_overview_is_bounded(tmp_path: Path, served: Serve) -> None:
    """With many queues the busiest are shown, sorted by name, and how many there are is said; what is said of all
    together counts those that are not shown, too."""
    async with running_space(tmp_path) as running, served(running.space.channels, running.view, *ROUTES) as api:
        for number in range(8):
            await running.queue(f"q{number}", QueueSettings(parent_failure=ParentFailure.HOLD), ["s"])
        running.consumer.answer = lambda _: None
        held = [await running.publish(f"q{number}", b"x") for number in (6, 2)]
        overview = (await api.get("/v1/overview?limit=2")).json()
        assert [queue["name"] for queue in overview["queues"]] == ["q2", "q6"]
        assert (overview["queues_in_all"], overview["subscribers_in_all"]) == (8, 8)
        assert [message["id"] for message in overview["stuck"]] == [id_text(id_) for id_ in held]
        assert overview["deliveries"]["waiting"] == 2
        assert (await api.get("/v1/overview?limit=1")).json()["deliveries"]["accepted"] == 2
        running.consumer.release()


def test_the_files_of_the_page_name_nothing_elsewhere() -> None:
    """No address of another host and no inline script or style: the page works without a network."""
    folder = Path(web.__file__).parent
    for file in folder.iterdir():
        if file.suffix in (".html", ".js", ".css", ".svg"):
            text = file.read_text().replace("http://www.w3.org/2000/svg", "")
            assert not [word for word in FORBIDDEN if word in text], file
