"""What is done to many at once on the page: a dry run comes first, and only the selection is touched."""

from syncbrok.model.names import id_text
from tests.support.http.page_stage import Stage, in_browser
from tests.support.space.spaces import ACKNOWLEDGED


async def three_dead(stage: Stage) -> list[str]:
    """Dead letters of orders, whose endpoint is well by now."""
    ids = [await stage.running.publish("orders", b"dead %d" % number) for number in range(3)]
    await stage.running.ended(*ids)
    stage.running.consumer.answer = lambda _: ACKNOWLEDGED
    stage.running.consumer.seen.clear()
    return list(map(id_text, ids))


@in_browser
async def test_selected_dead_letters_are_replayed_and_the_others_stay(stage: Stage) -> None:
    """RULES 21: two of three are ticked; the plan says two, and two go; nothing is ticked afterwards."""
    ids = await three_dead(stage)
    await stage.see("answered 500", "#/queues/orders")
    for id_ in ids[:2]:
        await stage.click(f"#dead-letters [data-pick='{id_}']")
    await stage.see("2 selected", selector="#dead-letters")
    await stage.click("[data-do=replaySelected]")
    await stage.see("2 messages go out again", selector="#dialog")
    assert stage.running.consumer.contents == []
    await stage.click("#dialog [data-do=confirm]")
    await stage.see("sends them again")
    await stage.until("return document.querySelectorAll('#dead-letters tbody tr').length === 1", what="one is left")
    assert stage.running.consumer.contents == [b"dead 0", b"dead 1"]
    assert await stage.run("return document.querySelectorAll('input:checked').length") == 0


@in_browser
async def test_selected_dead_letters_are_dropped_after_a_dry_run(stage: Stage) -> None:
    """RULES 34: the dialog says how many before anything is gone; left alone, nothing is; then those alone."""
    await three_dead(stage)
    await stage.see("answered 500", "#/queues/orders")
    await stage.click("#dead-letters .pick-all input")
    await stage.see("3 selected", selector="#dead-letters")
    await stage.click("#dead-letters tbody tr:first-child input")
    await stage.see("2 selected", selector="#dead-letters")
    await stage.click("[data-do=dropSelected]")
    await stage.see("Drop 2 dead letters", selector="#dialog")
    await stage.click("#dialog [data-do=close]")
    assert len((await stage.running.view.dead_letters("orders", 0, 9)).items) == 3
    await stage.click("[data-do=dropSelected]")
    await stage.see("Drop 2 dead letters", selector="#dialog")
    await stage.click("#dialog [data-do=confirm]")
    await stage.see("drops 2 dead letters")
    await stage.until("return document.querySelectorAll('#dead-letters tbody tr').length === 1", what="one is left")
    assert stage.running.consumer.contents == []
    await stage.click("#dead-letters tbody [data-do=drop]")
    await stage.see("Drop 1 dead letter", selector="#dialog")
    await stage.click("#dialog [data-do=confirm]")
    await stage.see("None.", selector="#dead-letters")


@in_browser
async def test_selected_messages_are_cancelled_after_a_dry_run(stage: Stage) -> None:
    """RULES 22: of two that wait and one that is complete the dialog counts those that wait; then they are dropped,
    and what was not ticked stays."""
    ids = [await stage.running.publish("customers", b"fail %d" % number) for number in range(3)]
    done = await stage.running.publish("customers", b"fine")
    await stage.running.ended(done)
    await stage.see("subscriber crm has failed once", "#/queues/customers")
    for id_ in (*ids[:2], done):
        await stage.click(f"[data-pick='{id_text(id_)}']")
    await stage.click("[data-do=cancelSelected]")
    text = await stage.see("2 messages have not ended: 2 deliveries are dropped", selector="#dialog")
    assert "1 has ended already and stays as it is" in text
    assert await stage.running.states(*ids) == ["pending"] * 3
    await stage.click("#dialog [data-do=confirm]")
    await stage.see("2 messages are cancelled: 2 deliveries were dropped")
    assert await stage.running.states(*ids, done) == ["dropped", "dropped", "pending", "complete"]


@in_browser
async def test_selected_messages_are_tried_again_after_a_dry_run(stage: Stage) -> None:
    """RULES 26: of three that have failed two are ticked, counted, and go out at once."""
    ids = [await stage.running.publish("customers", b"fail %d" % number) for number in range(3)]
    await stage.see("subscriber crm has failed once", "#/queues/customers")
    stage.running.consumer.answer = lambda _: ACKNOWLEDGED
    for id_ in ids[:2]:
        await stage.click(f"[data-pick='{id_text(id_)}']")
    await stage.click("[data-do=retrySelected]")
    await stage.see("2 deliveries wait for another attempt", selector="#dialog")
    assert len(stage.running.consumer.contents) == 3
    await stage.click("#dialog [data-do=confirm]")
    await stage.see("2 deliveries are tried again now")
    await stage.running.ended(*ids[:2])
    assert await stage.running.states(ids[2]) == ["pending"]
