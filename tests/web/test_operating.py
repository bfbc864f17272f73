"""What an operator sees and does on the page beside messages: the last hours, jobs, what needs somebody, and why."""

from contextlib import AsyncExitStack
from pathlib import Path

from syncbrok.model.names import id_text
from tests.support.http.api import Serve
from tests.support.http.browser import Browser
from tests.support.http.page_stage import PATIENT, ROUTES, Stage, answer, in_browser
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, Clock, Consumer, running_space


@in_browser
async def test_a_test_message_is_published_from_the_page(stage: Stage) -> None:
    """Content, type, key and parents as written, in whatever letters; it goes out as any message; a refusal is told and
    nothing is kept."""
    await stage.see("Publish a test message", "#/queues/orders")
    await stage.click("[data-do=publish]")
    await stage.see("Publish to orders", selector="#dialog")
    await stage.fill("content", "hello \u00fc")
    await stage.fill("key", "k-7")
    await stage.fill("parents", "no id")
    await stage.click("#dialog [data-do=confirm]")
    await stage.see("This could not be done", selector="#dialog")
    await stage.click("#dialog [data-do=close]")
    assert stage.running.consumer.contents == []
    await stage.click("[data-do=publish]")
    await stage.fill("content", "hello \u00fc")
    await stage.fill("key", "Z\u00fcrich-\u5ba2")
    await stage.click("#dialog [data-do=confirm]")
    await stage.see("is accepted")
    await stage.click("main .notice.good a")
    text = await stage.see("application/json")  # the list of the queue has the key, too
    assert "Z\u00fcrich-\u5ba2" in text
    assert stage.running.consumer.contents == ["hello \u00fc".encode()]


@in_browser
async def test_jobs_are_listed_with_who_asked(stage: Stage) -> None:
    """RULES 34: kind, state, progress and `by`; the replay of a selection is one."""
    dead = await stage.running.publish("orders", b"dead")
    await stage.running.ended(dead)
    stage.running.consumer.answer = lambda _: ACKNOWLEDGED
    asked = await stage.api.post("/v1/queues/orders/replay", {"ids": [id_text(dead)]})
    text = await stage.see("done", "#/jobs", "tbody")
    assert all(word in text for word in (asked.json()["id"], "replay", "orders", "1 of 1", "local"))


@in_browser
async def test_the_family_shows_its_critical_path(stage: Stage) -> None:
    """INTERFACES 3, critical path: the edges on it are thick in the drawing, and a table says where the time went."""
    top = await stage.running.publish("customers", b"fail")
    other = await stage.running.publish("orders", b"fine")
    child = await stage.running.publish("cards", b"x", top, other)
    text = await stage.see("makes it late", f"#/messages/{id_text(child)}", "#critical-path")
    assert all(word in text for word in (f"…{id_text(top)[-8:]}", "crm", "this one"))
    assert await stage.run("return document.querySelectorAll('.tree .edge').length") == 2
    assert await stage.run("return document.querySelectorAll('.tree .edge.critical').length") == 1


@in_browser
async def test_what_needs_somebody_comes_first(stage: Stage) -> None:
    """On a desk and on a telephone: what is stuck and who fails stand above the queues and what just happened."""
    await stage.running.publish("customers", b"fail")
    await stage.see("subscriber crm has failed once", "", ".stuck")
    heads = "[...document.querySelectorAll('main h2')].filter((one) => arguments[0].includes(one.innerText))"
    tops = f"return {heads}.map((one) => one.getBoundingClientRect().top)"
    for width in (1_280, 360):
        await stage.do(stage.browser.size, width, 800)
        first = await stage.run(tops, ["What is stuck", "Subscribers to look after"])
        second = await stage.run(tops, ["Queues", "Just now"])
        assert (len(first), len(second)) == (2, 2)
        assert max(first) < min(second), width


@in_browser
async def test_the_last_hours_are_drawn(tmp_path: Path, browser: Browser, served: Serve) -> None:
    """INTERFACES 3, `GET /v1/history`: of the broker and of a queue a line each for rates, latency and backlog, a point
    for each minute, with the newest figures in words; a screen reader is told them."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_space(tmp_path / "log", Consumer(answer), clock_us=clock))
        api = await stack.enter_async_context(served(running.space.channels, running.view, *ROUTES))
        stack.callback(running.view.close)
        await running.queue("customers", PATIENT, ["crm"])
        keeper = running.space._history
        await eventually(lambda: keeper._before is not None, "the keeper has begun")
        for number in range(3):
            for _ in range(60 * number):
                await running.publish("customers", b"fine")
            await eventually(lambda: running.view.queue("customers").waiting == 0, "all are delivered")
            clock.forward(60)
            await keeper.keep()
        stage = Stage(running, api, browser)
        for fragment in ("", "#/queues/customers"):
            await stage.see("The last 6 hours", fragment)
            await stage.until("return document.querySelectorAll('.chart').length === 3", what="three charts")
            names = await stage.run("return [...document.querySelectorAll('.chart svg')].map((one) => one.ariaLabel)")
            assert [name.partition(";")[0] for name in names] == [
                "Messages a second",
                "From acceptance to delivery",
                "Backlog",
            ]
            assert "accepted 2.00, delivered 2.00, failed 0.00" in names[0]
            points = "return document.querySelector('.chart polyline').points.numberOfItems"
            assert await stage.run(points) >= 2


@in_browser
async def test_what_is_delayed_on_purpose_needs_nobody(stage: Stage) -> None:
    """A message with a delay is not among what is stuck, however old; one on its way to a failing endpoint is."""
    later = {"Syncbrok-Delay": "3600"}
    assert (await stage.api.publish("cards", b"later", later)).status == 201
    await stage.running.publish("customers", b"fail")
    text = await stage.see("subscriber crm has failed once", "", ".stuck")
    assert "scheduled" not in text
    await stage.see("The last 6 hours")
    await stage.see("What is shared out")
