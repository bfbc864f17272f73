"""How an endpoint knows the broker, and the broker it: basic, bearer, OAuth 2.0, certificates and authorities of a
subscriber's own."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs

import orjson
import pytest

from syncbrok.delivery.handler import AttemptResult, Delivery
from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.model.auth_settings import AUTHORITY, CERTIFICATE, CLIENT_SECRET, PASSWORD, PRIVATE_KEY, TOKEN
from syncbrok.model.budget import Budget
from syncbrok.model.facts import Reason
from syncbrok.model.message import EndpointAuth, Format, Subscriber
from tests.support.certificates import Authority, Files
from tests.support.delivery.endpoint import (
    HANG,
    Answers,
    Endpoint,
    Reply,
    Request,
    delivery,
    message,
    reply,
    send,
    subscriber,
)
from tests.support.polling import eventually

SECRET = "s3cret:/?&ü"
LOOPBACK = AddressGuard(loopback_allowed=True)


class TokenServer:
    """Gives ``token-1``, ``token-2`` and so on; ``good``: the newest, which the endpoint takes alone."""

    def __init__(self, expires_in: object = 3600) -> None:
        self.given = 0
        self.expires_in = expires_in

    def answer(self, _: Request) -> Reply:
        self.given += 1
        said = {"access_token": self.good, "token_type": "Bearer", "expires_in": self.expires_in}
        return reply("200 OK", orjson.dumps(said))

    @property
    def good(self) -> str:
        return f"token-{self.given}"


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as running:
        yield running


@pytest.fixture
async def tokens() -> AsyncIterator[Endpoint]:
    async with Endpoint() as running:
        yield running


def handler_with(credentials: Mapping[str, str], guard: AddressGuard = LOOPBACK) -> Webhook:
    return Webhook(guard, lambda _: (), credentials=lambda _number, _sequence: credentials)


def asking(url: str, tokens: Endpoint, number: int = 1, scope: str = "", kind: Format = Format.RAW) -> Subscriber:
    auth = EndpointAuth("oauth2", token_url=f"{tokens.url}token?a=b", client_id="syncbrok:1", scope=scope)
    return subscriber(url, kind, number, auth=auth, credentials=5)


@pytest.mark.parametrize("kind", list(Format))
@pytest.mark.parametrize(
    ("auth", "credentials", "header"),
    [
        (EndpointAuth("basic", username="ünal"), {PASSWORD: "pass:wörd"}, "Basic w7xuYWw6cGFzczp3w7ZyZA=="),
        (EndpointAuth("bearer"), {TOKEN: "abc.def"}, "Bearer abc.def"),
    ],
)
async def test_each_delivery_says_who_posts(
    endpoint: Endpoint, kind: Format, auth: EndpointAuth, credentials: Mapping[str, str], header: str
) -> None:
    """RULES 19, in every format; a publisher's own Authorization never takes its place, nor stands beside it."""
    handler, answers = handler_with(credentials), Answers()
    to = subscriber(endpoint.url, kind, auth=auth, credentials=5)
    forged = message(8, headers=(("authorization", "Bearer forged"),))
    send(handler, to, [delivery(7), delivery(of=forged)], answers.done)
    await answers.wait_for(2)
    await handler.close()
    for request in endpoint.requests:
        assert [value for name, value in request.pairs if name == "authorization"] == [header]


async def test_a_token_is_asked_for_once_and_shown_until_it_ends(endpoint: Endpoint, tokens: Endpoint) -> None:
    """RFC 6749, 4.4.2 and 2.3.1: the request as its sections say; many deliveries go out with one token."""
    server = TokenServer()
    tokens.answer = server.answer
    handler, answers = handler_with({CLIENT_SECRET: SECRET}), Answers()
    to = asking(endpoint.url, tokens, scope="hooks write")
    send(handler, to, [delivery(n) for n in range(1, 21)], answers.done)
    await answers.wait_for(20)
    send(handler, to, [delivery(21)], answers.done)
    await answers.wait_for(21)
    await handler.close()
    (asked,) = tokens.requests
    assert asked.line == "POST /token?a=b HTTP/1.1"
    named = base64.b64decode(asked.headers["authorization"].removeprefix("Basic ")).decode()
    assert named == "syncbrok%3A1:s3cret%3A%2F%3F%26%C3%BC"
    assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
    assert parse_qs(asked.body.decode()) == {"grant_type": ["client_credentials"], "scope": ["hooks write"]}
    assert {one.headers["authorization"] for one in endpoint.requests} == {"Bearer token-1"}
    assert all(answer.status == 200 for _, answer in answers.all)


async def test_a_token_that_has_ended_is_not_shown(endpoint: Endpoint, tokens: Endpoint) -> None:
    """``expires_in``: what begins behind it waits for another one, and costs no attempt."""
    server = TokenServer(expires_in="0.2")
    tokens.answer = server.answer
    handler, answers = handler_with({CLIENT_SECRET: SECRET}), Answers()
    to = asking(endpoint.url, tokens)
    for n in range(1, 4):
        send(handler, to, [delivery(n)], answers.done)
        await answers.wait_for(n)
        ends_s = asyncio.get_running_loop().time() + 0.2
        await eventually(lambda ends_s=ends_s: asyncio.get_running_loop().time() > ends_s, "the token ends")
    await handler.close()
    assert [one.headers["authorization"] for one in endpoint.requests] == [f"Bearer token-{n}" for n in (1, 2, 3)]


async def test_a_token_that_ends_at_once_is_asked_for_once(endpoint: Endpoint, tokens: Endpoint) -> None:
    """RULES 19: what waits goes out with the token that it waited for; a token server with a wrong clock, which says
    that each token is over, is not asked without end."""
    tokens.answer = TokenServer(expires_in=1e-9).answer
    handler, answers = handler_with({CLIENT_SECRET: SECRET}), Answers()
    send(handler, asking(endpoint.url, tokens), [delivery(1, timeout_s=1)], answers.done)
    (answer,) = await answers.wait_for(1)
    await handler.close()
    assert answer.status == 200
    assert len(tokens.requests) == 1


@pytest.mark.parametrize("together", [1, 20])
async def test_a_401_renews_once_within_the_attempt(endpoint: Endpoint, tokens: Endpoint, together: int) -> None:
    """RULES 19: a token that was revoked costs no attempt; all that were out with it share the next one."""
    server = TokenServer()
    tokens.answer = server.answer
    endpoint.answer = lambda one: reply(
        "200 OK" if one.headers["authorization"] == f"Bearer {server.good}" else "401 Unauthorized"
    )
    handler, answers = handler_with({CLIENT_SECRET: SECRET}), Answers()
    to = asking(endpoint.url, tokens)
    send(handler, to, [delivery(1)], answers.done)
    await answers.wait_for(1)
    server.given += 1  # the endpoint knows of a newer one
    send(handler, to, [delivery(n) for n in range(2, 2 + together)], answers.done)
    await answers.wait_for(1 + together)
    await handler.close()
    assert {answer.status for _, answer in answers.all} == {200}
    assert len(tokens.requests) == 2
    assert len(endpoint.requests) == 1 + 2 * together


async def test_a_token_that_was_just_given_is_renewed_too(endpoint: Endpoint, tokens: Endpoint) -> None:
    """The first of all may have been revoked as well."""
    tokens.answer = TokenServer().answer
    endpoint.answer = lambda one: reply(
        "200 OK" if one.headers["authorization"] == "Bearer token-2" else "401 Unauthorized"
    )
    handler, answers = handler_with({CLIENT_SECRET: SECRET}), Answers()
    send(handler, asking(endpoint.url, tokens), [delivery(1)], answers.done)
    assert [answer.status for answer in await answers.wait_for(1)] == [200]
    await handler.close()


async def test_who_is_refused_twice_has_failed(endpoint: Endpoint, tokens: Endpoint) -> None:
    """One renewal an attempt; the 401 is told as any other answer, and the next attempt begins anew."""
    tokens.answer = TokenServer().answer
    endpoint.answer = lambda _: reply("401 Unauthorized", b"who are you?")
    handler, answers = handler_with({CLIENT_SECRET: SECRET}), Answers()
    send(handler, asking(endpoint.url, tokens), [delivery(1)], answers.done)
    (answer,) = await answers.wait_for(1)
    assert (answer.reason, answer.status, answer.detail) == (Reason.STATUS, 401, b"who are you?")
    assert len(endpoint.requests) == 2
    await handler.close()


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (
            "401 Unauthorized",
            b'{"error": "invalid_client", "error_description": "no\\nsuch"}',
            "401: invalid_client: no",
        ),
        ("500 Oops", b"<html>", "answered 500"),
        ("200 OK", b"{}", "without an access_token"),
        ("200 OK", b'{"access_token": "a b"}', "without an access_token"),
        ("200 OK", b'{"access_token": "a\\r\\nX-Forged: 1"}', "without an access_token"),
        ("200 OK", b'{"access_token": "a", "token_type": "mac"}', "not of type Bearer"),
        ("200 OK", b"[1", "without an access_token"),
        ("302 Found", b"", "answered 302"),
    ],
)
async def test_without_a_token_nothing_is_sent(
    endpoint: Endpoint, tokens: Endpoint, status: str, body: bytes, words: str
) -> None:
    """The attempt has failed, says why, and shows no secret."""
    tokens.answer = lambda _: reply(status, body)
    handler, answers = handler_with({CLIENT_SECRET: SECRET}), Answers()
    send(handler, asking(endpoint.url, tokens), [delivery(1), delivery(2)], answers.done)
    for answer in await answers.wait_for(2):
        assert answer.reason is Reason.AUTH_FAILED
        assert words in answer.detail.decode()
        assert f"127.0.0.1:{tokens.port}" in answer.detail.decode()
        assert "s3cret" not in answer.detail.decode()
    assert len(tokens.requests) == 1
    assert endpoint.requests == []
    await handler.close()


@pytest.mark.parametrize(
    "cut",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
        b'{"access_token": "t0ken"}\r\n\r\n',
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"t0ken"\r\n',
    ],
)
async def test_a_token_server_that_hangs_up_is_no_answer(endpoint: Endpoint, tokens: Endpoint, cut: bytes) -> None:
    """Neither is half an answer, or what is no HTTP; the token that may be in it is not told."""
    tokens.answer = lambda _: Reply((cut,), close=True)
    handler, answers = handler_with({CLIENT_SECRET: SECRET}), Answers()
    send(handler, asking(endpoint.url, tokens), [delivery(1)], answers.done)
    (answer,) = await answers.wait_for(1)
    assert answer.reason is Reason.AUTH_FAILED
    assert b"t0ken" not in answer.detail
    await handler.close()


async def test_a_token_server_that_hangs_fails_its_own_subscriber_alone(endpoint: Endpoint, tokens: Endpoint) -> None:
    """RULES 19: in the time of its attempts; one beside it at the same endpoint is served meanwhile."""
    tokens.answer = lambda _: HANG
    handler, answers, others = handler_with({CLIENT_SECRET: SECRET}), Answers(), Answers()
    send(handler, asking(endpoint.url, tokens), [delivery(1, timeout_s=0.3)], answers.done)
    send(handler, subscriber(endpoint.url, number=2), [delivery(n) for n in range(1, 50)], others.done)
    await others.wait_for(49)
    (answer,) = await answers.wait_for(1)
    assert answer.reason is Reason.AUTH_FAILED
    assert "did not answer in 0.3 s" in answer.detail.decode()
    await handler.close()


async def test_a_token_server_passes_the_guard(endpoint: Endpoint, tokens: Endpoint) -> None:
    """RULES 19: an address that may not be dialled is none for a token either."""
    guard = AddressGuard(loopback_allowed=False)
    handler, answers = handler_with({CLIENT_SECRET: SECRET}, guard), Answers()
    send(handler, asking(endpoint.url, tokens), [delivery(1)], answers.done)
    (answer,) = await answers.wait_for(1)
    assert answer.reason is Reason.AUTH_FAILED
    assert "127.0.0.1" in answer.detail.decode()
    assert tokens.requests == []
    await handler.close()


async def test_no_descriptor_for_a_token_is_no_attempt(endpoint: Endpoint, tokens: Endpoint) -> None:
    """Nobody was asked: what has waited in vain goes out again, and the token server is not blamed."""
    tokens.answer = TokenServer().answer
    endpoint.answer = lambda _: HANG
    budget = Budget("descriptors", 1)
    handler = Webhook(LOOPBACK, lambda _: (), credentials=lambda *_: {CLIENT_SECRET: SECRET}, descriptors=budget)
    answers = Answers()
    send(handler, subscriber(endpoint.url, number=2), [delivery(1, timeout_s=0.6)], Answers().done)
    await eventually(lambda: len(endpoint.requests) == 1, "one has the descriptor")
    to = asking(endpoint.url, tokens)
    send(handler, to, [delivery(2, timeout_s=0.2)], answers.done)
    await eventually(lambda: bool(answers.given_back or answers.all), "its time is over")
    assert answers.given_back == [2]
    assert tokens.requests == []
    endpoint.answer = lambda _: reply()
    send(handler, to, [delivery(2)], answers.done)
    assert [answer.status for answer in await answers.wait_for(1)] == [200]
    await handler.close()
    assert not budget.used


async def test_what_waits_for_a_token_is_given_back_or_cut(endpoint: Endpoint, tokens: Endpoint) -> None:
    """RULES 14, 22: of a cancelled message nothing is sent; with the subscriber goes what waits; a stop fails the
    rest, and leaves no task behind."""
    tokens.answer = lambda _: HANG
    handler, answers = handler_with({CLIENT_SECRET: SECRET}), Answers()
    send(handler, asking(endpoint.url, tokens), [delivery(1), delivery(2), delivery(3)], answers.done)
    await eventually(lambda: len(tokens.requests) == 1, "a token is asked for")
    handler.withdraw(1, [2])
    await eventually(lambda: answers.given_back == [2], "the second is given back")
    handler.forget(1)
    await eventually(lambda: answers.given_back == [2, 1, 3], "the others are given back")
    send(handler, asking(endpoint.url, tokens), [delivery(4)], answers.done)
    await eventually(lambda: len(tokens.requests) == 2, "a token is asked for anew")
    await handler.close()
    assert [(one.attempt.message, answer.reason) for one, answer in answers.all] == [(4, Reason.CONNECT)]
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "syncbrok token"]


@pytest.mark.parametrize("how", ["withdrawn", "forgotten", "moved"])
async def test_what_was_withdrawn_is_not_sent_again_after_a_401(endpoint: Endpoint, tokens: Endpoint, how: str) -> None:
    """RULES 14: a message that was cancelled while it was out, or whose subscriber was deleted or stands elsewhere now;
    the 401 is its answer."""
    tokens.answer = TokenServer().answer
    endpoint.answer = lambda _: HANG
    handler, answers = handler_with({CLIENT_SECRET: SECRET}), Answers()
    send(handler, asking(endpoint.url, tokens), [delivery(1)], answers.done)
    await eventually(lambda: len(endpoint.requests) == 1, "it is out")
    async with Endpoint() as other:
        if how == "withdrawn":
            handler.withdraw(1, [1])
        elif how == "forgotten":
            handler.forget(1)
        else:
            send(handler, asking(other.url, tokens), [delivery(2)], answers.done)
        endpoint.say(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        await eventually(lambda: 401 in [answer.status for _, answer in answers.all], "its answer")
        await handler.close()
    assert len(endpoint.requests) == 1


async def test_a_token_is_shown_by_no_settings_but_its_own(endpoint: Endpoint, tokens: Endpoint) -> None:
    """RULES 19: settings change between the 401 that asks for a token and the moment there is one."""
    server = TokenServer()
    tokens.answer = server.answer
    endpoint.answer = lambda one: (
        reply("401 Unauthorized") if one.headers["authorization"] == "Bearer token-1" else HANG
    )
    handler, answers = handler_with({CLIENT_SECRET: SECRET, PASSWORD: "x"}), Answers()
    basic = subscriber(endpoint.url, auth=EndpointAuth("basic", username="a"), credentials=6)

    def change(one: Delivery, answer: AttemptResult | None) -> None:
        answers.done(one, answer)
        send(handler, basic, [delivery(4)], answers.done)

    first = asking(endpoint.url, tokens)
    send(handler, first, [delivery(1)], answers.done)
    await eventually(lambda: server.given == 2 and len(endpoint.requests) == 2, "the token is renewed")
    send(handler, first, [delivery(2)], answers.done)
    send(handler, first, [delivery(3)], change)
    await eventually(lambda: len(endpoint.requests) == 4, "both are out")
    endpoint.answer = lambda _: reply()
    endpoint.say(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", endpoint.requests[2].connection)
    endpoint.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", endpoint.requests[3].connection)
    await eventually(lambda: answers.given_back == [2] and len(answers.all) == 2, "the settings have changed")
    send(handler, basic, [delivery(5)], answers.done)
    await answers.wait_for(3)
    await handler.close()
    assert [one.headers["authorization"] for one in endpoint.requests[4:]] == ["Basic YTp4"] * 2


async def test_what_waits_for_a_connection_goes_out_as_its_new_settings_say(
    endpoint: Endpoint, tokens: Endpoint
) -> None:
    """RULES 19: nothing is sent without a token where one is needed, though it had the token of another client."""
    tokens.answer = TokenServer().answer
    handler, answers = handler_with({CLIENT_SECRET: SECRET}), Answers()
    send(handler, asking(endpoint.url, tokens), [delivery(1)], answers.done)
    await answers.wait_for(1)
    send(handler, asking(endpoint.url, tokens), [delivery(n) for n in range(2, 12)], answers.done)
    send(handler, asking(endpoint.url, tokens, scope="more"), [delivery(20)], answers.done)
    await eventually(lambda: len(answers.all) + len(answers.given_back) == 12, "all are answered or given back")
    await handler.close()
    assert sorted(answers.given_back) == list(range(3, 12)), "those that had no connection"
    shown = [one.headers.get("authorization") for one in endpoint.requests]
    assert shown == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]


async def test_other_settings_keep_the_token_and_another_client_gets_its_own(
    endpoint: Endpoint, tokens: Endpoint
) -> None:
    """A PATCH of something else asks for no other token; one of the client does, and what waited goes out again."""
    tokens.answer = TokenServer().answer
    handler, answers = handler_with({CLIENT_SECRET: SECRET}), Answers()
    first = asking(endpoint.url, tokens)
    send(handler, first, [delivery(1)], answers.done)
    await answers.wait_for(1)
    send(handler, asking(endpoint.url, tokens, kind=Format.CLOUDEVENTS), [delivery(2)], answers.done)
    await answers.wait_for(2)
    assert len(tokens.requests) == 1
    tokens.answer = lambda _: HANG
    send(handler, asking(endpoint.url, tokens, scope="more"), [delivery(3)], answers.done)
    await eventually(lambda: len(tokens.requests) == 2, "another token is asked for")
    tokens.answer = TokenServer().answer
    send(handler, first, [delivery(4)], answers.done)
    await answers.wait_for(3)
    assert answers.given_back == [3]
    await handler.close()


# -- TLS --------------------------------------------------------------------------------------------------------------


def shown(files: Files, authority: Authority) -> dict[str, str]:
    return {
        CERTIFICATE: files.cert.read_text(),
        PRIVATE_KEY: files.key.read_text(),
        AUTHORITY: f"# Autorität, as bundles name theirs\n{authority.file.read_text()}",
    }


async def test_a_certificate_is_shown_and_an_own_authority_believed(tmp_path: Path) -> None:
    """RULES 19: a server that asks for a certificate, under an authority that the system does not know."""
    authority = Authority(tmp_path)
    credentials = shown(authority.signs("client"), authority)
    async with Endpoint(tls=authority.verifying()) as endpoint:
        handler, answers = handler_with(credentials), Answers()
        both = EndpointAuth(has_certificate=True, has_authority=True)
        send(handler, subscriber(endpoint.url, auth=both, credentials=5), [delivery(1), delivery(2)], answers.done)
        assert [answer.status for answer in await answers.wait_for(2)] == [200, 200]
        for auth in (EndpointAuth(has_authority=True), EndpointAuth(has_certificate=True), None):
            refused = Answers()
            send(handler, subscriber(endpoint.url, number=2, auth=auth, credentials=5), [delivery(3)], refused.done)
            (answer,) = await refused.wait_for(1)
            assert answer.reason in (Reason.TLS, Reason.PROTOCOL), auth
        await handler.close()
        assert len(endpoint.requests) == 2, "nobody's request goes out on the connection of another"


async def test_an_own_authority_stands_in_place_of_the_systems(tmp_path: Path) -> None:
    """Who says which authority to believe believes no other."""
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(authority.signs("server").both)
    async with Endpoint(tls=server) as endpoint:
        handler = handler_with({AUTHORITY: other.file.read_text()})
        answers = Answers()
        to = subscriber(endpoint.url, auth=EndpointAuth(has_authority=True), credentials=5)
        send(handler, to, [delivery(1)], answers.done)
        (answer,) = await answers.wait_for(1)
        assert answer.reason is Reason.TLS
        await handler.close()


async def test_a_token_server_is_spoken_to_as_the_endpoint(tmp_path: Path) -> None:
    """RFC 8705: whoever asks for a certificate at the endpoint does so where tokens are."""
    authority = Authority(tmp_path)
    credentials = {**shown(authority.signs("client"), authority), CLIENT_SECRET: SECRET}
    async with Endpoint(tls=authority.verifying()) as endpoint, Endpoint(tls=authority.verifying()) as tokens:
        tokens.answer = TokenServer().answer
        handler, answers = handler_with(credentials), Answers()
        to = asking(endpoint.url, tokens)
        assert to.settings.auth is not None
        auth = to.settings.auth._replace(has_certificate=True, has_authority=True)
        send(handler, subscriber(endpoint.url, auth=auth, credentials=5), [delivery(1)], answers.done)
        assert [answer.status for answer in await answers.wait_for(1)] == [200]
        await handler.close()
