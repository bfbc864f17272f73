"""Lists of the page: all of a list is reached, forwards and back, and what is in it is found."""

from urllib.parse import quote

from syncbrok.model.names import id_text
from tests.support.http.page_stage import Stage, in_browser


@in_browser
async def test_every_queue_is_reached_and_found_by_a_part_of_its_name(stage: Stage) -> None:
    """INTERFACES 3: the overview leads to all queues, page by page and back; a part of a name in either case finds
    those that have it."""
    for number in range(118):
        await stage.running.queue(f"shop.{number:03}")
    await stage.see("All queues", "")
    await stage.click("a[href='#/queues']")
    await stage.see("Part of the name")
    await stage.see("shop.046", selector="tbody")
    await stage.until("return document.querySelectorAll('main table').length === 1", what="the list alone")
    first = await stage.first_cells()
    assert (len(first), first[:3]) == (50, ["cards", "customers", "orders"])
    await stage.click(".pages a:last-child")
    await stage.see("shop.096", selector="tbody")
    second = await stage.first_cells()
    await stage.click(".pages a:last-child")
    await stage.see("shop.117", selector="tbody")
    assert len({*first, *second, *await stage.first_cells()}) == 121
    await stage.click(".pages a:nth-child(2)")  # the previous page
    await stage.see("shop.096", selector="tbody")
    assert await stage.first_cells() == second
    await stage.fill("text", "OP.11")
    await stage.click(".seek button")
    await stage.until("return document.querySelectorAll('main tbody tr').length === 8", what="eight")
    assert await stage.first_cells() == [f"shop.11{digit}" for digit in range(8)]
    assert await stage.run("return document.getElementById('seek-text').value") == "OP.11"
    assert await stage.do(stage.browser.complaints) == []


@in_browser
async def test_every_subscriber_of_a_queue_is_reached(stage: Stage) -> None:
    """INTERFACES 3: a queue's page has the first of its subscribers and leads to all, page by page and by name."""
    for number in range(60):
        await stage.running.subscribe("orders", f"tenant-{number:02}")
    await stage.see("The first 25 by name", "#/queues/orders")
    await stage.click(".pages a[href$='/subscribers']")
    await stage.see("tenant-49", selector="tbody")
    await stage.click(".pages a:last-child")
    await stage.see("warehouse", selector="tbody")
    assert await stage.first_cells() == [*(f"tenant-{number:02}" for number in range(50, 60)), "warehouse"]
    await stage.fill("text", "T-3")
    await stage.click(".seek button")
    await stage.see("tenant-39", selector="tbody")
    assert await stage.first_cells() == [f"tenant-{number:02}" for number in range(30, 40)]


@in_browser
async def test_messages_of_a_queue_are_read_from_either_end(stage: Stage) -> None:
    """INTERFACES 3: the newest first or the oldest first, page by page and back."""
    tails = [f"…{id_text(await stage.running.publish('orders', b'%d' % number))[-8:]}" for number in range(40)]
    rows = "#messages tbody"
    await stage.see(tails[39], "#/queues/orders", rows)
    await stage.click("#messages .pages a")
    assert tails[39] not in await stage.see(tails[0], selector=rows)
    await stage.click("#messages .pages a:last-child")
    await stage.see(tails[39], selector=rows)
    await stage.click("main .tabs a[href$='order=asc']")
    text = await stage.see(tails[0], selector=rows)
    assert text.index(tails[0]) < text.index(tails[24])
    assert tails[25] not in text


@in_browser
async def test_dead_letters_are_read_from_either_end(stage: Stage) -> None:
    """RULES 20: the newest first, page by page and back; the oldest first on wish."""
    await stage.running.queue("refunds")
    await stage.running.subscribe("refunds", "erp", breaker=None)
    ids = [await stage.running.publish("refunds", b"dead %d" % number) for number in range(30)]
    await stage.running.ended(*ids)
    tails = [f"…{id_text(one)[-8:]}" for one in ids]
    rows = "#dead-letters tbody"
    text = await stage.see(tails[29], "#/queues/refunds", rows)
    assert text.index(tails[29]) < text.index(tails[5])
    assert tails[4] not in text
    await stage.click("#dead-letters .pages a")
    assert tails[5] not in await stage.see(tails[0], selector=rows)
    await stage.click("#dead-letters .pages a:last-child")
    await stage.see(tails[29], selector=rows)
    await stage.click("#dead-letters .tabs a[href*='letters.order=asc']")
    text = await stage.see(tails[0], selector=rows)
    assert text.index(tails[0]) < text.index(tails[24])
    assert tails[25] not in text


@in_browser
async def test_messages_are_sought_by_what_they_are_and_how_they_stand(stage: Stage) -> None:
    """INTERFACES 3, `GET /v1/messages`: the end of an id as the page shows it, a key, a subscriber with a state, a
    reason and a span of time each find the message; what the broker refuses is said."""
    dead = await stage.running.publish("orders", b"dead", key="k-1")
    fine = await stage.running.publish("cards", b"fine")
    await stage.running.ended(dead, fine)
    shown = f"…{id_text(dead)[-8:]}"
    await stage.do(stage.browser.open, f"{stage.url}/#/find?text={quote(shown)}")
    table = ".card:last-of-type tbody"
    for wanted in ({}, {"key": "k-1"}, {"subscriber": "warehouse", "state": "dead"}, {"reason": "status"}):
        await stage.see("Search", "#/find")
        for name, value in {"queue": "orders", **wanted}.items():
            await stage.fill(name, value)
        await stage.click(".seek button")
        assert id_text(fine) not in await stage.see(id_text(dead), selector=table)
    assert id_text(fine) not in await stage.see(id_text(dead), f"#/find?text={quote(shown)}", table)
    await stage.see("None.", "#/find?until=2020-01-01T00%3A00%3A00.000Z")
    await stage.fill("until", "2099-01-01T00:00:00")
    await stage.click(".seek button")
    assert id_text(dead) in await stage.see(id_text(fine), selector=table)
    await stage.see("no queue", "#/find?queue=nowhere", ".notice.bad")
