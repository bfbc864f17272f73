"""Endpoints that are given as they are shown (RULES 19): what is there stays; where none is there it is refused."""

from pathlib import Path
from typing import Any

import pytest

from syncbrok.model.errors import BadSetting, Conflict
from syncbrok.model.message import EndpointAuth, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.model.settings import render_subscriber
from syncbrok.space.channels import ChangeSubscriber, Declared, Subscribe
from syncbrok.space.state.registry import subscriber_id
from tests.support.log.journals import records
from tests.support.space.spaces import Running, running_space

Q, A = QueueName("q"), SubscriberId("a")
FULL, SHOWN = "http://h/in?token=s3cret&k", "http://h/in?token=***&***"
TOKEN_URL, TOKEN_URL_SHOWN = "https://id/token?tenant=t3nant", "https://id/token?tenant=***"


async def declare(running: Running, endpoint: str, name: str | None = "a", **settings: Any) -> Declared:
    made = SubscriberSettings(endpoint, name=None if name is None else SubscriberId(name), paused=True, **settings)
    kept = {"auth:oauth2.client_secret": "x"} if "auth" in settings else {}
    declared: Declared = await running.put(Subscribe(Q, made, credentials=kept))
    return declared


def endpoints(running: Running) -> list[str]:
    page, _ = running.view.subscribers(Q, None, 10)
    return [one.settings.endpoint for one in page]


async def test_who_writes_back_what_was_read_changes_nothing(tmp_path: Path) -> None:
    """RULES 19: PATCH and POST with the shown form keep the query, and write no fact; it is there after a restart."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        await declare(running, FULL)
        shown = render_subscriber(running.view.subscriber(Q, A).settings)
        assert shown["endpoint"] == SHOWN
        before = list(records(running.space._journal))
        assert (await running.put(ChangeSubscriber(Q, A, {"endpoint": SHOWN}))).what == "unchanged"
        assert (await declare(running, SHOWN)).what == "unchanged"
        assert list(records(running.space._journal)) == before
        await running.put(ChangeSubscriber(Q, A, {"endpoint": SHOWN, "window": 3}))
        assert endpoints(running) == [FULL]
    async with running_space(tmp_path) as running:
        assert running.view.subscriber(Q, A).settings.window == 3
        assert endpoints(running) == [FULL]


@pytest.mark.parametrize(
    "other",
    [
        "http://evil/in?token=***&***",
        "http://h/in?token=***",
        "http://h/in?token=***&k=2",
        "http://h/in?token=s3cret&***",
    ],
)
async def test_a_part_of_the_shown_form_means_nothing(tmp_path: Path, other: str) -> None:
    """RULES 19: what is hidden goes to no other host, and no *** is kept as if it were the query."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        await declare(running, FULL)
        with pytest.raises(BadSetting, match="write it in full"):
            await running.put(ChangeSubscriber(Q, A, {"endpoint": other}))
        for name in ("a", "b", None):
            with pytest.raises(BadSetting, match="write it in full"):
                await declare(running, other, name)
        assert endpoints(running) == [FULL]
        await running.put(ChangeSubscriber(Q, A, {"endpoint": "http://h/in?token=new"}))
        assert endpoints(running) == ["http://h/in?token=new"]


async def test_one_without_a_name_is_found_by_what_is_shown(tmp_path: Path) -> None:
    """RULES 18: its identity is its endpoint in full; what is shown means it, unless two are shown alike."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        first = await declare(running, FULL, None)
        assert first.id == subscriber_id(SubscriberSettings(FULL))
        await declare(running, FULL, "named")
        assert await declare(running, SHOWN, None) == Declared("unchanged", first.id)
        await declare(running, FULL.replace("s3cret", "an0ther"), None)
        with pytest.raises(Conflict, match="2 subscribers of queue 'q' are shown like this one"):
            await declare(running, SHOWN, None)


async def test_the_url_for_access_tokens_too(tmp_path: Path) -> None:
    """RULES 19: the token_url of auth is an endpoint as well."""
    auth = EndpointAuth("oauth2", token_url=TOKEN_URL, client_id="me")
    async with running_space(tmp_path) as running:
        await running.queue("q")
        await declare(running, "https://h/", auth=auth)
        shown = render_subscriber(running.view.subscriber(Q, A).settings)
        assert shown["auth"]["oauth2"]["token_url"] == TOKEN_URL_SHOWN
        given = auth._replace(token_url=TOKEN_URL_SHOWN)
        assert (await running.put(ChangeSubscriber(Q, A, {"auth": given}))).what == "unchanged"
        with pytest.raises(BadSetting, match=r"token_url: .*write it in full"):
            await running.put(ChangeSubscriber(Q, A, {"auth": given._replace(token_url="https://evil/?tenant=***")}))
        assert running.view.subscriber(Q, A).settings.auth == auth
