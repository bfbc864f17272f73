"""TLS sessions: a later connection to the same origin resumes one, and nobody else does."""

import ssl
from pathlib import Path

import pytest

from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.tls_session import VERIFIED_MAX_S
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.model.facts import Reason
from tests.support.certificates import Authority, Files
from tests.support.delivery.endpoint import Answers, Endpoint, delivery, reply, send, subscriber
from tests.support.polling import eventually

GUARD = AddressGuard(loopback_allowed=True)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def serving(shown: Files, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(shown.both)
    return context


def closing(tls: ssl.SSLContext) -> Endpoint:
    """It ends each connection behind its answer."""
    return Endpoint(lambda _: reply("200 OK", b"", "Connection: close", close=True), tls)


async def reasons(webhook: Webhook, endpoint: Endpoint, count: int) -> list[Reason]:
    """Of so many deliveries, one after the other."""
    found: list[Reason] = []
    for number in range(count):
        answers = Answers()
        send(webhook, subscriber(endpoint.url), [delivery(number)], answers.done)
        found += [answer.reason for answer in await answers.wait_for(1)]
        await eventually(lambda: webhook.statistics().connections == 0, "the connection is at its end")
    return found


async def test_who_closes_after_each_answer_is_spared_handshakes(authority: Authority) -> None:
    """An origin that closes after each answer makes one handshake with certificate and signature; all later
    connections resume its session, with TLS 1.2 and 1.3."""
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        webhook = Webhook(GUARD, lambda _: (), tls=authority.client())
        async with closing(serving(authority.signs("one"), version)) as endpoint:
            assert await reasons(webhook, endpoint, 6) == [Reason.NONE] * 6
            assert (endpoint.connections, endpoint.resumed) == (6, 5)
        await webhook.close()


async def test_a_session_is_for_its_own_origin(authority: Authority) -> None:
    """Another port of the same host is another origin: its certificate is verified, although it could read the ticket
    of the first, and fails where it is not good."""
    tls, webhook = serving(authority.signs("one")), Webhook(GUARD, lambda _: (), tls=authority.client())
    async with closing(tls) as one, closing(tls) as other:
        assert await reasons(webhook, one, 2) == [Reason.NONE] * 2
        assert await reasons(webhook, other, 1) == [Reason.NONE]
        assert (one.resumed, other.resumed) == (1, 0)
        tls.load_cert_chain(authority.signs("strange", "elsewhere.example").both)
        async with closing(tls) as strange:
            assert await reasons(webhook, strange, 1) == [Reason.TLS]
    await webhook.close()


async def test_a_session_is_for_its_own_trust(authority: Authority) -> None:
    """Who trusts another authority verifies for itself, whatever sessions others have with the same origin."""
    other = Authority(authority.file.parent, "other")
    trusting, strict = (Webhook(GUARD, lambda _: (), tls=one.client()) for one in (authority, other))
    async with closing(serving(authority.signs("one"))) as endpoint:
        assert await reasons(trusting, endpoint, 2) == [Reason.NONE] * 2
        assert await reasons(strict, endpoint, 1) == [Reason.TLS]
        assert endpoint.resumed == 1
    await trusting.close()
    await strict.close()


async def test_a_certificate_is_verified_again_after_a_while(authority: Authority) -> None:
    """A session ends ``VERIFIED_MAX_S`` after the certificate was looked at, however often it was resumed; then it is
    looked at again."""
    webhook = Webhook(GUARD, lambda _: (), tls=authority.client())
    async with closing(serving(authority.signs("one"))) as endpoint:
        for resumed in (0, 1, 1, 2):
            assert await reasons(webhook, endpoint, 1) == [Reason.NONE]
            assert endpoint.resumed == resumed
            (pool,) = webhook._pools.values()
            pool.session.verified_s -= 0.6 * VERIFIED_MAX_S
    await webhook.close()


async def test_an_origin_that_forgot_its_sessions_is_served(authority: Authority) -> None:
    """A server that was started again cannot read its old tickets: the handshake is a full one, and nothing fails."""
    shown, webhook = authority.signs("one"), Webhook(GUARD, lambda _: (), tls=authority.client())
    async with closing(serving(shown)) as endpoint:
        assert await reasons(webhook, endpoint, 2) == [Reason.NONE] * 2
        endpoint.stop_listening()
        async with Endpoint(endpoint.answer, serving(shown), endpoint.port) as again:
            assert await reasons(webhook, again, 2) == [Reason.NONE] * 2
            assert (again.connections, again.resumed) == (2, 1)
    await webhook.close()


async def test_sessions_with_the_trust_of_the_system(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's trust store is read by the first connections, several at once: their sessions are good for all later
    ones."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    webhook = Webhook(GUARD, lambda _: ())
    async with closing(serving(authority.signs("one"))) as endpoint:
        answers = Answers()
        for number in range(8):
            send(webhook, subscriber(endpoint.url, number=number + 1), [delivery(number)], answers.done)
        assert [answer.reason for answer in await answers.wait_for(8)] == [Reason.NONE] * 8
        assert await reasons(webhook, endpoint, 4) == [Reason.NONE] * 4
        assert endpoint.resumed >= 4
    await webhook.close()
