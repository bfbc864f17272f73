"""Values of a subscriber's own headers: kept with the secrets (RULES 19), an older version's once it changes."""

from dataclasses import replace
from pathlib import Path

import pytest

from syncbrok.delivery.webhook.http_request import RequestForm
from syncbrok.model.errors import BadSetting, Conflict
from syncbrok.model.facts import SubscriberSet
from syncbrok.model.message import Subscriber
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.space.channels import ChangeSubscriber
from tests.support.delivery.endpoint import TIME_US, delivery
from tests.support.log.journals import records
from tests.support.space.spaces import Running, running_space

KEY = "s3cret-key"
HEADERS = (("x-api-key", "set"),)
KEPT = {"headers:x-api-key": KEY}
Q, A = QueueName("q"), SubscriberId("a")


def settings(running: Running):
    return running.view.subscriber(Q, A).settings


def sent(running: Running) -> bytes:
    """What a request to it begins with."""
    now = settings(running)
    webhook = Subscriber(1, 1, A, 0, replace(now, endpoint="http://h/"))
    form = RequestForm(webhook, "q", credentials=running.space.credentials(1, now.credentials))
    return form.render(delivery(), str(TIME_US // 1_000_000), ())


def on_disk(directory: Path) -> bytes:
    return b"".join(one.read_bytes() for one in directory.iterdir() if one.is_file() and "secrets" not in one.name)


async def with_old_fact(directory: Path) -> None:
    """A log of an older version, which left the value in the fact."""
    async with running_space(directory) as running:
        await running.queue("q")
        await running.subscribe("q", "a", headers=(("x-api-key", KEY),))


async def test_a_value_is_nowhere_but_with_the_secrets(tmp_path: Path) -> None:
    """RULES 19: it goes out; in the log and in the settings stands the word set."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        await running.subscribe("q", "a", headers=HEADERS, credentials=KEPT)
        assert settings(running).headers == HEADERS
        assert f"\r\nx-api-key: {KEY}\r\n".encode() in sent(running)
    assert KEY.encode() not in on_disk(tmp_path)
    async with running_space(tmp_path) as running:
        assert KEY.encode() in sent(running)


async def test_what_an_older_version_left_goes_out_and_is_kept_now_with_the_next_change(tmp_path: Path) -> None:
    """An upgrade changes nothing that goes out; whatever is changed takes the value out of the settings."""
    await with_old_fact(tmp_path)
    async with running_space(tmp_path) as running:
        assert settings(running).headers == (("x-api-key", KEY),)
        assert KEY.encode() in sent(running)
        await running.put(ChangeSubscriber(Q, A, {"window": 3}))
        assert settings(running).headers == HEADERS
        assert running.space.credentials(1, settings(running).credentials) == KEPT
        assert KEY.encode() in sent(running)
        newest = [fact for fact in records(running.space._journal) if isinstance(fact, SubscriberSet)][-1]
        assert newest.settings.headers == HEADERS


async def test_what_an_older_version_left_is_the_same_when_it_is_said_again(tmp_path: Path) -> None:
    """Declared alike it is unchanged, with another value 409; and set means what is there."""
    await with_old_fact(tmp_path)
    async with running_space(tmp_path) as running:
        again = {"headers": HEADERS}
        assert (await running.subscribe("q", "a", **again, credentials=KEPT)).what == "unchanged"
        with pytest.raises(Conflict):
            await running.subscribe("q", "a", **again, credentials={"headers:x-api-key": "another"})
        await running.put(ChangeSubscriber(Q, A, {"headers": HEADERS, "timeout_s": 3.0}))
        assert KEY.encode() in sent(running)
        two = (("x-api-key", "set"), ("x-b", "set"))
        with pytest.raises(BadSetting, match="x-b: a value is needed"):
            await running.put(ChangeSubscriber(Q, A, {"headers": two}))
        await running.put(ChangeSubscriber(Q, A, {"headers": two}, credentials={"headers:x-b": "2"}))
        assert running.space.credentials(1, settings(running).credentials) == {**KEPT, "headers:x-b": "2"}
        await running.put(ChangeSubscriber(Q, A, {"headers": ()}))
        assert KEY.encode() not in sent(running)


async def test_where_values_are_lost_nothing_is_sent_without_them(tmp_path: Path) -> None:
    """RULES 19: an attempt fails rather than to post without what the endpoint asks for."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        await running.subscribe("q", "a", headers=HEADERS, credentials=KEPT)
    (tmp_path / "secrets.json").unlink()
    async with running_space(tmp_path) as running:
        with pytest.raises(LookupError):
            sent(running)
