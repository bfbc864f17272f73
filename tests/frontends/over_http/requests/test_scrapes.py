"""Whoever scrapes the metrics sees the end of a broker whose log has failed."""

import asyncio

from syncbrok.frontends.over_http.requests.scrapes import Scrapes


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def scraped(*times_s: float) -> tuple[Scrapes, Clock]:
    clock = Clock()
    scrapes = Scrapes(clock)
    for clock.now in times_s:
        scrapes.answered()
    return scrapes, clock


async def test_the_next_scrape_is_expected_as_the_last_ones_came() -> None:
    """INTERFACES 3: half as late again as they come, and no later than 30 s; not where nobody scrapes, has stopped to,
    or asked once."""
    assert scraped()[0].next_within_s() == 0.0
    assert scraped(100.0)[0].next_within_s() == 0.0
    scrapes, clock = scraped(100.0, 115.0)
    assert scrapes.next_within_s() == 22.5
    clock.now += 20.0
    assert scrapes.next_within_s() == 2.5
    clock.now += 20.0
    assert scrapes.next_within_s() == 0.0
    assert scraped(100.0, 160.0)[0].next_within_s() == 0.0


async def test_who_waits_goes_on_with_the_next_scrape() -> None:
    """INTERFACES 3: the broker ends as soon as it was scraped once more, and at once where nobody does."""
    scrapes, _ = scraped(100.0, 115.0)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(scrapes.once_more())
        await asyncio.sleep(0)
        assert not waiting.done()
        scrapes.answered()
    assert waiting.result()
    assert not await scraped()[0].once_more()
