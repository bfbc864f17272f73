"""A real browser before a real broker, for tests of the page."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest

from syncbrok.delivery.handler import AttemptResult, Delivery
from syncbrok.frontends.over_http.resources import events, page
from syncbrok.model.facts import Reason
from syncbrok.model.message import QueueSettings, RetryPolicy
from tests.support.http.api import Api
from tests.support.http.browser import Browser, installed
from tests.support.space.spaces import ACKNOWLEDGED, Running

T = TypeVar("T")
in_browser = pytest.mark.skipif(not installed, reason="no chromium and chromedriver here")
ROUTES = (*events.ROUTES, *page.routes())
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
PATIENT = QueueSettings(retry=RetryPolicy((3_600.0,), 0.0))


class Stage:
    """A broker with queues customers (crm), cards (billing, ledger) and orders (warehouse), and a browser."""

    def __init__(self, running: Running, api: Api, browser: Browser) -> None:
        self.running = running
        self.api = api
        self.browser = browser
        self.url = f"http://127.0.0.1:{api.server.port}"

    async def do(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.to_thread(call, *arguments)

    async def until(self, script: str, *arguments: Any, what: str) -> Any:
        """The first true value of the script; ``what`` should have come."""
        return await asyncio.to_thread(partial(self.browser.until, script, *arguments, what=what))

    async def run(self, script: str, *arguments: Any) -> Any:
        return await self.do(self.browser.run, script, *arguments)

    async def click(self, selector: str) -> None:
        await self.do(self.browser.click, selector)

    async def fill(self, name: str, value: str) -> None:
        """Write into the field of that name, as a reader would."""
        script = "const one = document.querySelector(`[name='${arguments[0]}']`); one.value = arguments[1]"
        await self.run(script, name, value)

    async def first_cells(self) -> list[str]:
        """The first cells of the rows that are shown, their first lines."""
        rows = "[...document.querySelectorAll('main tbody tr')]"
        found: list[str] = await self.run(f"return {rows}.map((row) => row.cells[0].innerText.split('\\n')[0])")
        return found

    async def see(self, text: str, fragment: str | None = None, selector: str = "main") -> str:
        if fragment is not None:
            await self.do(self.browser.open, f"{self.url}/{fragment}")
        return await self.do(self.browser.wait_for, text, selector)


def answer(delivery: Delivery) -> AttemptResult:
    """By content: ``dead`` goes nowhere, ``fail`` is tried again in an hour, ``hold`` is answered later."""
    if delivery.message.content.startswith(b"dead"):
        return AttemptResult(Reason.STATUS, 500, detail=HOSTILE.encode())
    if delivery.message.content.startswith(b"fail"):
        return AttemptResult(Reason.STATUS, 503, detail=b"later")
    return ACKNOWLEDGED
