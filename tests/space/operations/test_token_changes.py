"""Tokens that are created and revoked: in the file of secrets before the receipt, in force with it (INTERFACES 1)."""

import json
import logging
from hashlib import sha256
from pathlib import Path
from stat import S_IMODE

import pytest

from syncbrok.model import limits
from syncbrok.model.errors import BadSetting, Conflict, UnknownToken
from syncbrok.model.event_types import EVENTS_QUEUE
from syncbrok.model.tokens import Token, parse_scopes
from syncbrok.space.channels import CreateToken, RevokeToken
from syncbrok.space.state.secret_store import FILE, put_secrets, stored_tokens
from syncbrok.space.state.secrets_file import encode
from tests.support.polling import eventually
from tests.support.space.spaces import Consumer, Running, running_space


def token(name: str, *scopes: str, queues: list[str] | None = None, expires_us: int = 0) -> Token:
    digest = sha256(f"secret of {name}".encode()).hexdigest()
    return Token(name, digest, *parse_scopes([*scopes], queues), 1_000, expires_us)


OPERATOR, SHOP = token("op", "admin"), token("shop", "publish", queues=["shop.*"], expires_us=5)


async def made(running: Running, *tokens: Token) -> None:
    for one in tokens:
        await running.space.channels.subscribers.put(CreateToken(one))


async def gone(running: Running, name: str, *, may_be_open: bool = False, elsewhere: bool = False) -> None:
    await running.space.channels.subscribers.put(RevokeToken(name, elsewhere, may_be_open))


async def test_a_token_is_on_the_disk_and_in_force_with_its_receipt(tmp_path: Path) -> None:
    """INTERFACES 1, tokens: in the file of secrets, mode 0600, as its hash; after a restart as before; and who asks for
    tokens hears of each change before the receipt."""
    heard: list[list[str]] = []
    async with running_space(tmp_path) as running:
        running.space.tokens.tokens_changed = lambda tokens: heard.append([one.name for one in tokens])
        await made(running, OPERATOR, SHOP)
        assert heard == [["op"], ["op", "shop"]]
        assert stored_tokens(tmp_path) == (OPERATOR, SHOP)
        assert S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
        assert b"secret of" not in (tmp_path / FILE).read_bytes()
    async with running_space(tmp_path) as running:
        assert running.space.tokens.created_tokens() == (OPERATOR, SHOP)
        await gone(running, "shop")
        assert stored_tokens(tmp_path) == running.space.tokens.created_tokens() == (OPERATOR,)


async def test_each_change_is_logged_without_what_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """INTERFACES 1, tokens: who was let in where, and who no more; neither the token nor its hash."""
    caplog.set_level(logging.INFO)
    async with running_space(tmp_path) as running:
        await made(running, OPERATOR, SHOP)
        await gone(running, "shop")
    told = [(one.msg, vars(one)["token"]) for one in caplog.records if "space.token" in one.msg]
    created, revoked = "syncbrok.space.token_created", "syncbrok.space.token_revoked"
    assert told == [(created, "op"), (created, "shop"), (revoked, "shop")]
    assert not any(SHOP.sha256 in str(vars(one)) for one in caplog.records)


async def test_each_change_is_an_event(tmp_path: Path) -> None:
    """RULES 30, INTERFACES 1: what it may do, and where, and who did it; neither the token nor its hash. A refused
    change is none."""
    consumer = Consumer()
    async with running_space(tmp_path, consumer) as running:
        await running.subscribe(EVENTS_QUEUE, "audit")
        await made(running, OPERATOR, SHOP)
        with pytest.raises(UnknownToken):
            await gone(running, "nobody")
        await running.space.channels.subscribers.put(RevokeToken("shop", by="op"))
        await eventually(lambda: len(consumer.seen) == 3, "three events")
    told = [json.loads(content) for content in consumer.contents]
    assert [(one["token"], one["change"]) for one in told] == [
        ("op", "created"), ("shop", "created"), ("shop", "revoked")
    ]  # fmt: skip
    assert told[1]["scopes"] == {"publish": ["shop.*"]}
    assert [one["by"] for one in told] == [None, None, "op"]
    assert SHOP.sha256 not in repr(consumer.contents)


async def test_secrets_and_tokens_keep_each_other(tmp_path: Path) -> None:
    """RULES 19: they share a file; a change of the one writes the other as it was."""
    secret = "whsec_" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
    async with running_space(tmp_path) as running:
        await running.queue("q")
        await made(running, OPERATOR)
        await running.subscribe("q", "a", secret=secret)
        await made(running, SHOP)
        number = running.view.subscriber_number("q", "a")
    async with running_space(tmp_path) as running:
        assert running.space.tokens.created_tokens() == (OPERATOR, SHOP)
        assert len(running.space.signing_keys(number)) == 1


async def test_somebody_may_always_create_tokens(tmp_path: Path) -> None:
    """INTERFACES 1, tokens: the first one has admin in all queues, the last such one stays while there are others, and
    the last of all goes only where the broker may be open. A configured one does as well."""
    async with running_space(tmp_path) as running:
        for first in (SHOP, token("a", "admin", queues=["a"]), token("b", "admin", expires_us=1)):
            with pytest.raises(BadSetting, match="nobody could create"):
                await made(running, first)
        await made(running, OPERATOR, SHOP)
        with pytest.raises(Conflict, match="nobody could"):
            await gone(running, "op", may_be_open=True)
        await gone(running, "shop")
        with pytest.raises(Conflict, match="everybody who can connect"):
            await gone(running, "op")
        await gone(running, "op", may_be_open=True)
        assert running.space.tokens.created_tokens() == ()
        await running.space.channels.subscribers.put(CreateToken(SHOP, operator_elsewhere=True))
        await gone(running, "shop", elsewhere=True)
        assert stored_tokens(tmp_path) == ()


async def test_a_name_is_one_tokens(tmp_path: Path) -> None:
    """INTERFACES 3: 409 where there is one of that name, 404 where there is none to revoke; and a bound."""
    async with running_space(tmp_path) as running:
        await made(running, OPERATOR)
        with pytest.raises(Conflict, match="already"):
            await made(running, OPERATOR)
        with pytest.raises(UnknownToken):
            await gone(running, "nobody")
    many = [token(f"t{number}", "read") for number in range(limits.tokens_max - 2)]
    await put_secrets(tmp_path, encode({}, [OPERATOR, *many]))
    async with running_space(tmp_path) as running:
        await made(running, token("last", "read"))
        with pytest.raises(Conflict, match="as many as may be"):
            await made(running, SHOP)
        assert len(stored_tokens(tmp_path)) == limits.tokens_max
