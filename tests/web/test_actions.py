"""The page's view of who did what: found by person, kind, queue and time, from either end."""

from syncbrok.model.names import id_text
from tests.support.http.page_stage import Stage, in_browser

ROWS = "main tbody"


@in_browser
async def test_who_did_what_is_searched(stage: Stage) -> None:
    """INTERFACES 1 and 3: the overview leads there; the newest first with who, when and about what; by kind and queue
    it is narrowed, by a stranger's name nothing is found, and what the broker refuses is said."""
    waits = await stage.running.publish("customers", b"fail")
    await stage.api.delete(f"/v1/messages/{id_text(waits)}")
    subscriber = "/v1/queues/orders/subscribers/warehouse"
    await stage.api.request("PATCH", subscriber, {"paused": True})
    await stage.see("Who did what", "")
    await stage.click("a[href='#/actions']")
    text = await stage.see("cancelled a message", selector=ROWS)
    assert text.index("warehouse") < text.index("cancelled a message")
    assert all(word in text for word in ("local", "UTC", f"…{id_text(waits)[-8:]}"))
    await stage.fill("action", "cancel")
    await stage.fill("queue", "customers")
    await stage.click(".seek button")
    await stage.until("return document.querySelectorAll('main tbody tr').length === 1", what="the cancel alone")
    await stage.fill("by", "a stranger")
    await stage.click(".seek button")
    await stage.see("Nobody has done anything of the kind")
    await stage.see("since", "#/actions?since=soon", ".notice.bad")
    assert await stage.do(stage.browser.complaints) != [], "the console has the refusal"


@in_browser
async def test_what_was_done_is_read_page_by_page(stage: Stage) -> None:
    """INTERFACES 3: fifty at a time, forwards and back."""
    for number in range(60):
        await stage.api.post("/v1/queues", {"name": f"q{number:02}"})
    await stage.see("q59", "#/actions?by=local", ROWS)
    assert await stage.run("return document.querySelectorAll('main tbody tr').length") == 50
    await stage.click(".pages a:last-child")
    await stage.see("q00", selector=ROWS)
    await stage.click(".pages a:first-child")
    await stage.see("q59", selector=ROWS)
