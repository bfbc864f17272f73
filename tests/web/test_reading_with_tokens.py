"""The page where there are tokens: it says what is wrong with one, offers what one may do, and forgets it."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from syncbrok.model.names import id_text
from syncbrok.model.tokens import Token, parse_scopes
from tests.support.http.api import Serve
from tests.support.http.browser import Browser
from tests.support.http.page_stage import HOSTILE, PATIENT, ROUTES, Stage, answer, in_browser
from tests.support.space.spaces import Consumer, running_space

LONG = "tenant-" + "x" * 121
BUTTONS = (
    "return [...document.querySelectorAll('main [data-do], main [data-list]')].map((one) => one.dataset.do ?? 'box')"
)


def token(name: str, scopes: Any) -> Token:
    """One whose text is its name and a dash."""
    return Token(name, hashlib.sha256(f"{name}-".encode()).hexdigest(), *parse_scopes(scopes))


@pytest.fixture
async def stage(tmp_path: Path, browser: Browser, served: Serve) -> AsyncIterator[Stage]:
    """Queues acme.bills and other; ``acme`` reads its own queues, ``mends`` may also replay there, ``all`` everything,
    ``till`` only publishes."""
    tokens = (
        token("acme", {"read": ["acme.*"]}),
        token("mends", {"read": ["*"], "admin": ["acme.*"]}),
        token("all", ["publish", "consume", "read", "admin"]),
        token("till", ["publish"]),
    )
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_space(tmp_path / "log", Consumer(answer)))
        api = await stack.enter_async_context(served(running.space.channels, running.view, *ROUTES, tokens=tokens))
        stack.callback(running.view.close)
        await running.queue("acme.bills", subscribers=["crm"])
        await running.queue("other", subscribers=["crm"])
        yield Stage(running, api, browser)


@in_browser
async def test_a_wrong_token_says_so_and_a_good_one_is_forgotten_on_wish(stage: Stage) -> None:
    """INTERFACES 1, tokens: a token that is not known is said to be so; a good one opens the page and is named; after
    "Log out" the tab knows it no more."""
    await stage.see("A token is needed", "")
    assert "does not do" not in await stage.do(stage.browser.text)
    await stage.run("document.getElementById('token').value = 'nonsense'")
    await stage.click("[data-form=token] button")
    await stage.see("The token that was given does not do: this token is not known here")
    for odd in ("#token=%", "#token=%E2%80%9Call-%E2%80%9D"):  # no escape; typographer's quotes
        await stage.see("The token that was given does not do: this token is not known here", odd)
    await stage.run("document.getElementById('token').value = 'all-'")
    await stage.click("[data-form=token] button")
    await stage.see("acme.bills")
    await stage.see("all", selector="#who")
    await stage.see("live", selector="#link")
    await stage.click("#log-out")
    await stage.see("A token is needed")
    assert await stage.run("return sessionStorage.length") == 0
    assert "acme" not in await stage.do(stage.browser.text, "body")
    await stage.see("connecting", selector="#link")


@in_browser
async def test_a_link_with_a_token_opens_the_portal_of_one_customer(stage: Stage) -> None:
    """The token of `/#token=` is kept for the tab and gone from the address; a reader of some queues sees these alone,
    and is offered nothing that would be refused."""
    dead = await stage.running.publish("acme.bills", b"dead")
    await stage.running.ended(dead)
    text = await stage.see("acme.bills", "#token=acme-")
    assert "other" not in text
    assert await stage.run("return location.hash") == "#/"
    await stage.see("live", selector="#link")
    assert await stage.run("return document.body.innerHTML.includes('acme-')") is False
    await stage.run("location.hash = '#/queues/acme.bills'")
    await stage.see("answered 500")
    assert await stage.run(BUTTONS) == []
    await stage.run("location.hash = arguments[0]", f"#/messages/{id_text(dead)}")
    await stage.see("Causal tree")
    assert await stage.run(BUTTONS) == ["content"]
    await stage.see("This is not allowed", "#token=till-")


@in_browser
async def test_what_one_may_do_in_some_queues_is_offered_there(stage: Stage) -> None:
    """`GET /v1/token`: with admin in acme's queues the buttons are there and work; in others there are none. What needs
    all queues, descendants of a replay, is not offered."""
    for queue in ("acme.bills", "other"):
        await stage.running.ended(await stage.running.publish(queue, b"dead"))
    await stage.see("acme.bills", "#token=mends-")
    await stage.run("location.hash = '#/queues/other'")
    await stage.see("answered 500")
    assert await stage.run(BUTTONS) == []
    await stage.run("location.hash = '#/queues/acme.bills'")
    await stage.until("return document.querySelector('#dead-letters [data-do=replay]')", what="a button")
    await stage.click("#dead-letters [data-do=replay]")
    await stage.see("Replay 1 delivery", selector="#dialog")
    assert await stage.run("return document.querySelector('#dialog [name=descendants]')") is None


@in_browser
async def test_a_refusal_is_no_success(stage: Stage) -> None:
    """Something that the broker refuses is told in red with what to do, and as an alert."""
    await stage.see("acme.bills", "#token=all-")
    await stage.run("location.hash = '#/queues/acme.bills'")
    await stage.until("return document.querySelector('[data-do=pause]')", what="a button")
    await stage.run("document.querySelector('[data-do=pause]').dataset.subscriber = 'nobody'")
    await stage.click("[data-do=pause]")
    await stage.see("has no subscriber 'nobody'", selector="main .notice.bad[role=alert]")
    assert await stage.run("return document.querySelector('main .notice.good')") is None


@in_browser
@pytest.mark.parametrize("width", [1_280, 360])
async def test_long_names_do_not_widen_the_page(stage: Stage, width: int) -> None:
    """128 characters without a blank: every view is as wide as the screen, and so are its tables on a desk."""
    await stage.running.queue(LONG, PATIENT, ["s" * 128])
    message = await stage.running.publish(LONG, b"fail", key="k" * 200, content_type="a/" + "b" * 120)
    await stage.running.publish(LONG, b"child", message)
    await stage.api.request("PATCH", f"/v1/queues/{LONG}", {"window": 9}, {"Authorization": "Bearer all-"})
    await stage.do(stage.browser.size, width, 800)
    await stage.see("acme.bills", "#token=all-")
    for fragment, text in (
        ("#/", "What is stuck"),
        ("#/queues", LONG),
        (f"#/queues/{LONG}", "Messages"),
        (f"#/queues/{LONG}/subscribers", "ssss"),
        (f"#/messages/{id_text(message)}", "Causal tree"),
        ("#/find?key=" + "k" * 200, LONG),
        ("#/breakers?state=all", "ssss"),
        ("#/actions", LONG),
    ):
        await stage.run("location.hash = arguments[0]", fragment)
        await stage.see(text)
        assert await stage.run("return document.documentElement.scrollWidth") <= width, fragment
        wider = (
            "[...document.querySelectorAll('.scroll:not(.tree)')].filter((one) => one.scrollWidth > one.clientWidth)"
        )
        assert await stage.run(f"return {wider}.length") == 0, fragment


@in_browser
async def test_the_page_works_below_a_prefix_of_a_proxy(stage: Stage) -> None:
    """A proxy that has the broker below /tools/broker/: files, figures, events and links stay below it."""
    async with aiohttp.ClientSession(auto_decompress=False) as session:

        async def relay(request: web.Request) -> web.StreamResponse:
            url = stage.url + request.raw_path.removeprefix("/tools/broker")
            body = await request.read()
            async with session.request(request.method, url, headers=request.headers, data=body or None) as answered:
                kept = {name: value for name, value in answered.headers.items() if name != "Content-Length"}
                response = web.StreamResponse(status=answered.status, headers=kept)
                await response.prepare(request)
                async for chunk in answered.content.iter_any():
                    await response.write(chunk)
            return response

        app = web.Application()
        app.router.add_route("*", "/tools/broker/{rest:.*}", relay)
        async with TestServer(app, host="127.0.0.1") as proxy:
            url = f"http://127.0.0.1:{proxy.port}/tools/broker/"
            await stage.do(stage.browser.open, f"{url}#token=all-")
            await stage.see("acme.bills")
            await stage.see("live", selector="#link")
            await stage.run("location.hash = '#/queues/acme.bills'")
            await stage.see("crm")
            await stage.click("[data-do=pause]")
            await stage.see("is paused")
            names = "return performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)"
            assert all(one.startswith("/tools/broker/") for one in await stage.run(names))
            assert await stage.do(stage.browser.complaints) == []
            assert HOSTILE not in await stage.do(stage.browser.text)
            await stage.do(stage.browser.open, f"{url}docs")
            await stage.see("Publish a message")
            await stage.do(stage.browser.open, "about:blank")  # or its stream holds the proxy open
