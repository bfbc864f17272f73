"""One browser for the room, and a broker for each test of it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.http.api import Serve
from tests.support.http.browser import Browser
from tests.support.http.page_stage import PATIENT, ROUTES, Stage, answer
from tests.support.space.spaces import Consumer, running_space


@pytest.fixture(scope="package")
def shared_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for all tests of this room: it takes seconds to start. Its pages, and their storage, are each test's own."""
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(shared_browser: Browser) -> Iterator[Browser]:
    """On no page, of a desk's size, and told nothing yet."""
    shared_browser.complaints()
    yield shared_browser
    shared_browser.devtools("Emulation.clearDeviceMetricsOverride", {})
    shared_browser.open("about:blank")


@pytest.fixture
async def stage(tmp_path: Path, browser: Browser, served: Serve) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_space(tmp_path / "log", Consumer(answer)))
        api = await stack.enter_async_context(served(running.space.channels, running.view, *ROUTES))
        stack.callback(running.view.close)  # as the broker does: event streams end before the server is stopped
        await running.queue("customers", PATIENT, ["crm"])
        await running.queue("cards", PATIENT, ["billing", "ledger"])
        await running.queue("orders", subscribers=["warehouse"])
        yield Stage(running, api, browser)
