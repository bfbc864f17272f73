"""The page for who uses no mouse, who hears it read, and who has a telephone."""

from importlib.resources import files
from typing import Any

import axe_core_python

from syncbrok.model.names import id_text
from tests.support.http.page_stage import Stage, in_browser
from tests.support.space.spaces import ACKNOWLEDGED

AXE = (files(axe_core_python) / "axe.min.js").read_text()
VIOLATIONS = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(
  (found) => done(found.violations.map((one) => [one.id, one.nodes.map((node) => node.html.slice(0, 200))])),
  (error) => done([String(error)]),
);
"""
FOCUSED = """
const one = document.activeElement;
return one === document.body ? '' : one.innerText || one.getAttribute('aria-label') || '';
"""
TABS_MAX = 80
WIDTHS = (1_280, 360)
"""of a desk and of a telephone, in pixels"""


async def violations(stage: Stage) -> Any:
    """Each rule of axe that is broken on the page as it stands, with the elements that break it."""
    if await stage.run("return !window.axe"):
        await stage.run(AXE)
    return await stage.do(stage.browser.run_async, VIOLATIONS)


async def tab_to(stage: Stage, text: str) -> None:
    """Go on with the Tab key until the focus is on what says ``text``."""
    seen = []
    for _ in range(TABS_MAX):
        await stage.do(stage.browser.press, "Tab")
        seen.append(await stage.run(FOCUSED))
        if text in seen[-1]:
            return
    raise AssertionError(f"{text!r} is not reached by Tab: {seen}")


@in_browser
async def test_axe_finds_nothing_on_any_view(stage: Stage) -> None:
    """Every view and dialog, on a desk and on a telephone: no rule of axe-core is broken, and none is wider than the
    screen."""
    parent = await stage.running.publish("customers", b"fail")
    child = await stage.running.publish("cards", b'{"a": 1}', parent, key="k")
    dead = await stage.running.publish("orders", b"dead")
    await stage.running.ended(dead)
    await stage.api.request("PATCH", "/v1/queues/orders", {"window": 9})
    for fragment, text in (
        ("", "What is stuck"),
        ("#/queues", "customers"),
        ("#/queues/orders", "answered 500"),
        ("#/queues/orders/subscribers", "warehouse"),
        (f"#/messages/{id_text(child)}", "Causal tree"),
        (f"#/messages/{id_text(dead)}", "answered 500"),
        ("#/find?text=dead&queue=orders", id_text(dead)),
        ("#/breakers", "crm on customers"),
        ("#/actions", "declared or changed a queue"),
        ("#/queues/nowhere", "no queue"),
        ("docs", "Publish a message"),
    ):
        await stage.see(text, fragment)
        for width in WIDTHS:
            await stage.do(stage.browser.size, width, 800)
            assert await violations(stage) == [], (fragment, width)
            assert await stage.run("return document.documentElement.scrollWidth") <= width, (fragment, width)
    await stage.see("answered 500", "#/queues/orders")
    await stage.click("[data-do=drop]")
    await stage.see("Drop 1 dead letter", selector="#dialog")
    for width in WIDTHS:
        await stage.do(stage.browser.size, width, 800)
        assert await violations(stage) == [], width


@in_browser
async def test_the_keyboard_suffices(stage: Stage) -> None:
    """Without a mouse: the slash leads to the search, Tab to what it finds, into the queue and to its dead letter,
    Space ticks it, Enter asks and confirms, Escape leaves; the focus is where one goes on."""
    dead = await stage.running.publish("orders", b"dead")
    await stage.running.ended(dead)
    stage.running.consumer.answer = lambda _: ACKNOWLEDGED
    await stage.see("orders", "")
    await stage.do(stage.browser.press, "Tab")
    assert "Skip" in await stage.run(FOCUSED)
    await stage.do(stage.browser.press, "/", *"orders", "Enter")
    await stage.see("There is a queue of this name")
    assert await stage.run("return document.activeElement.id") == "main"
    await tab_to(stage, "orders")
    await stage.do(stage.browser.press, "Enter")
    await stage.see("answered 500")
    await tab_to(stage, f"Select message {id_text(dead)}")
    await stage.do(stage.browser.press, "Space")
    await stage.see("1 selected")
    await stage.do(stage.browser.press, "Tab")
    await tab_to(stage, "Replay…")
    await stage.do(stage.browser.press, "Enter")
    await stage.see("Replay 1 delivery", selector="#dialog")
    await stage.do(stage.browser.press, "Escape")
    assert await stage.run("return document.getElementById('dialog').open") is False
    assert "Replay…" in await stage.run(FOCUSED)
    await stage.do(stage.browser.press, "Enter")
    await stage.see("Replay 1 delivery", selector="#dialog")
    await tab_to(stage, "Replay 1 delivery")
    await stage.do(stage.browser.press, "Enter")
    await stage.see("1 message is going out again")
    await stage.until("return document.querySelector('#dead-letters').innerText.includes('None.')", what="it is gone")


@in_browser
async def test_a_breaker_is_probed_and_actions_are_found_by_keyboard(stage: Stage) -> None:
    """Without a mouse: from the overview to the breakers, to the button of one and through its dialog; and to who did
    what, where a field narrows it."""
    for _ in range(10):
        await stage.running.publish("customers", b"fail")
    await stage.see("breaker open", "", ".ill")
    stage.running.consumer.answer = lambda _: ACKNOWLEDGED
    await tab_to(stage, "Breakers")
    await stage.do(stage.browser.press, "Enter")
    await stage.see("the next probe")
    await tab_to(stage, "Probe now…")  # the table, which can be scrolled
    await tab_to(stage, "Probe now…")
    await stage.do(stage.browser.press, "Enter")
    await stage.see("One message goes out at once", selector="#dialog")
    await tab_to(stage, "Probe now")
    await stage.do(stage.browser.press, "Enter")
    await stage.see("The next probe of crm is due now")
    await tab_to(stage, "Overview")
    await stage.do(stage.browser.press, "Enter")
    await stage.api.request("PATCH", "/v1/queues/cards/subscribers/ledger", {"window": 9})
    await stage.api.request("PATCH", "/v1/queues/orders/subscribers/warehouse", {"window": 9})
    await stage.see("Who did what")
    await tab_to(stage, "Who did what")
    await stage.do(stage.browser.press, "Enter")
    await stage.see("declared or changed a subscriber")
    await stage.run("document.getElementById('seek-queue').focus()")
    await stage.do(stage.browser.press, *"orders", "Enter")
    await stage.until("return !document.querySelector('main tbody').innerText.includes('cards')", what="orders alone")
    await stage.see("warehouse", selector="tbody")
