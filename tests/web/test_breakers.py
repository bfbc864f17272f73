"""The page's view of breakers and of endpoints that take nothing: who, since when, why, what next, and the buttons."""

from syncbrok.delivery.handler import AttemptResult, Delivery
from syncbrok.model.facts import Reason
from syncbrok.model.message import BreakerPolicy, QueueSettings
from tests.support.http.page_stage import PATIENT, Stage, in_browser
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, GONE

ONCE = BreakerPolicy(1, 1.0, 1, (600.0, 600.0))
ROWS = "main tbody"


async def held_back(stage: Stage) -> None:
    """In queue bills: down, whose breaker is open with one message tried and one not; gone, which is disabled; and
    rests, which is paused."""
    running = stage.running
    await running.queue("bills", QueueSettings(retry=PATIENT.retry, window=1))
    await running.subscribe("bills", "down", breaker=ONCE)
    await running.subscribe("bills", "gone", breaker=None)
    await running.subscribe("bills", "rests", breaker=None)
    await stage.api.request("PATCH", "/v1/queues/bills/subscribers/rests", {"paused": True})

    def answer(delivery: Delivery) -> AttemptResult:
        return {"down": AttemptResult(Reason.STATUS, 503), "gone": GONE}.get(delivery.to.subscriber.id, ACKNOWLEDGED)

    running.consumer.answer = answer
    await running.publish("bills", b"1")
    await eventually(lambda: running.view.subscriber("bills", "down").breaker == "open", "the breaker is open")
    await eventually(lambda: running.view.subscriber("bills", "gone").state == "disabled", "gone is disabled")
    await running.publish("bills", b"2")


@in_browser
async def test_breakers_are_shown_with_why_and_what_next(stage: Stage) -> None:
    """RULES 14, 29: the overview leads there; each row says since when, why, when the next probe goes and what waits;
    of a disabled endpoint what to do; the tabs and a part of a name narrow it; those that are well are not there."""
    await held_back(stage)
    await stage.see("breaker open", "", ".ill")
    await stage.click("a[href='#/breakers']")
    text = await stage.see("the next probe, in 9 min", selector=ROWS)
    for words in ("down on bills", "an attempt had failed", "last: answered 503", "gone on bills", "answered 410",
                  "Enable it once", "rests on bills", "somebody has paused it: local"):  # fmt: skip
        assert words in text, words
    assert "crm" not in text
    await stage.click(".tabs a[href$='state=disabled']")
    await stage.until("return document.querySelectorAll('main tbody tr').length === 1", what="the disabled one")
    assert await stage.first_cells() == ["gone on bills"]
    await stage.click(".tabs a[href$='state=all']")
    await stage.see("warehouse", selector=ROWS)
    await stage.fill("text", "WARE")
    await stage.click(".seek button")
    await stage.until("return document.querySelectorAll('main tbody tr').length === 1", what="one of all")
    assert await stage.first_cells() == ["warehouse on orders"]
    await stage.click("main tbody a")
    await stage.see("Subscribers of orders")
    await stage.see("warehouse", selector=ROWS)
    assert await stage.do(stage.browser.complaints) == []


@in_browser
async def test_a_probe_whose_time_is_over_is_not_ahead_of_itself(stage: Stage) -> None:
    """RULES 29: a probe is a message that is due. While none is, the page says what the breaker waits for, and no time
    that is over."""
    await stage.running.queue("bills", PATIENT)
    await stage.running.subscribe("bills", "down", breaker=BreakerPolicy(1, 1.0, 1, (0.001, 0.001)))
    await stage.running.publish("bills", b"fail")
    await eventually(lambda: stage.running.view.subscriber("bills", "down").breaker == "open", "the breaker is open")
    text = await stage.see("the next probe, which is the first message that is due", "#/breakers", ROWS)
    assert "probe, under" not in text
    await stage.see("nothing is tried before the next probe, which is the first message that is due", "", ".ill")


@in_browser
async def test_a_breaker_probes_when_it_is_told_to(stage: Stage) -> None:
    """RULES 26, 29: the dialog says first what would go; then one message goes out at once, and as it is answered the
    breaker closes and the rest follows."""
    await held_back(stage)
    await stage.see("Probe now", "#/breakers?state=open")
    stage.running.consumer.answer = lambda _: ACKNOWLEDGED
    tried = len(stage.running.consumer.seen)
    await stage.click("[data-do=probe]")
    await stage.see("1 delivery that waits for another attempt is due at once", selector="#dialog")
    assert len(stage.running.consumer.seen) == tried
    await stage.click("#dialog [data-do=confirm]")
    await stage.see("The next probe of down is due now")
    await stage.see("None.")
    await eventually(lambda: stage.running.view.subscriber("bills", "down").delivered == 2, "both are delivered")


@in_browser
async def test_a_disabled_endpoint_is_enabled(stage: Stage) -> None:
    """RULES 14: the button says Enable, and what waited goes out."""
    await held_back(stage)
    await stage.see("Enable", "#/breakers?state=disabled", ROWS)
    stage.running.consumer.answer = lambda _: ACKNOWLEDGED
    await stage.click("[data-do=resume]")
    await stage.see("Subscriber gone is active again")
    await eventually(lambda: stage.running.view.subscriber("bills", "gone").delivered == 1, "the second is delivered")
