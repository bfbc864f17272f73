"""The connections of the webhook handler: kept alive, dialled again, bounded, guarded, closed."""

import asyncio
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from syncbrok.delivery.handler import AttemptResult, Delivery
from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.connection_pool import IDLE_MAX_S
from syncbrok.delivery.webhook.resolver import Address, DnsResolver
from syncbrok.delivery.webhook.webhook import Webhook, WebhookStatistics
from syncbrok.model.budget import Budget
from syncbrok.model.facts import Reason
from tests.support.delivery.endpoint import HANG, TIME_US, Answers, Endpoint, Reply, delivery, reply, send, subscriber
from tests.support.polling import eventually
from tests.support.servers import close_server


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    handler = Webhook(AddressGuard(loopback_allowed=True), lambda _: (), clock_us=lambda: TIME_US)
    yield handler
    await handler.close()


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as running:
        yield running


async def ask(webhook: Webhook, url: str, *deliveries: Delivery) -> list[AttemptResult]:
    answers = Answers()
    wanted = deliveries or (delivery(),)
    send(webhook, subscriber(url), wanted, answers.done)
    assert not answers.all, "done was called from inside deliver"
    return await answers.wait_for(len(wanted))


async def test_connections_are_kept_and_never_more_than_attempts_at_once(webhook: Webhook, endpoint: Endpoint) -> None:
    """One after the other share one connection; five at once have five at most, and so have fifty rounds of them."""
    for _ in range(5):
        await ask(webhook, endpoint.url)
    assert endpoint.connections == 1
    for _ in range(50):
        await ask(webhook, endpoint.url, *(delivery(i) for i in range(5)))
    assert endpoint.connections <= 5
    assert webhook.statistics() == WebhookStatistics(1, endpoint.connections)
    assert len(endpoint.requests) == 255


async def test_a_large_window_is_served_whole(webhook: Webhook, endpoint: Endpoint) -> None:
    """More attempts than may be dialled for at once all go out, also where each needs its own connection."""
    held: list[int] = []
    endpoint.answer = lambda request: (held.append(request.connection), HANG)[1]
    answers = Answers()
    send(webhook, subscriber(endpoint.url), [delivery(i) for i in range(200)], answers.done)
    await eventually(lambda: len(held) == 200, "every attempt on its way")
    assert len(set(held)) == 200
    await webhook.close()
    assert [answer.reason for answer in await answers.wait_for(200)] == [Reason.CONNECT] * 200


async def test_an_endpoint_that_wants_one_connection_has_one(webhook: Webhook, endpoint: Endpoint) -> None:
    """A server at its limit refuses more connections; what waits goes over the one that works and does not fail."""
    await ask(webhook, endpoint.url)
    endpoint.stop_listening()
    answers = await ask(webhook, endpoint.url, *(delivery(i) for i in range(20)))
    assert [answer.reason for answer in answers] == [Reason.NONE] * 20
    assert endpoint.connections == 1


async def test_a_kept_connection_that_closes_is_dialled_again(webhook: Webhook, endpoint: Endpoint) -> None:
    """RULES 23: a kept-alive connection that closes before any byte of an answer is dialled once more."""
    await ask(webhook, endpoint.url)
    endpoint.answer = lambda request: Reply((), close=True) if request.connection == 0 else reply()
    (answer,) = await ask(webhook, endpoint.url)
    assert (answer.reason, endpoint.connections, len(endpoint.requests)) == (Reason.NONE, 2, 3)


async def test_it_is_dialled_again_only_once(webhook: Webhook, endpoint: Endpoint) -> None:
    """RULES 23: once more, not for ever; and never where the connection was new."""
    await ask(webhook, endpoint.url)
    endpoint.answer = lambda _: Reply((), close=True)
    (answer,) = await ask(webhook, endpoint.url)
    assert (answer.reason, len(endpoint.requests)) == (Reason.PROTOCOL, 3)
    (answer,) = await ask(webhook, endpoint.url)
    assert (answer.reason, len(endpoint.requests)) == (Reason.PROTOCOL, 4)


async def test_a_broken_answer_is_not_dialled_again(webhook: Webhook, endpoint: Endpoint) -> None:
    """RULES 23: after a byte of an answer it is a failed attempt: the endpoint has seen the message."""
    await ask(webhook, endpoint.url)
    endpoint.answer = lambda _: Reply((b"HTTP/1.1 2",), close=True)
    (answer,) = await ask(webhook, endpoint.url)
    assert (answer.reason, len(endpoint.requests)) == (Reason.PROTOCOL, 2)


async def test_an_endpoint_that_hangs_up_when_idle_costs_no_attempt(webhook: Webhook, endpoint: Endpoint) -> None:
    """Servers close idle connections at any time; ten rounds of that, and no attempt fails."""
    for _ in range(10):
        answers = await ask(webhook, endpoint.url, *(delivery(i) for i in range(8)))
        assert [answer.reason for answer in answers] == [Reason.NONE] * 8
        endpoint.hang_up()


async def test_an_answer_nobody_asked_for_closes_the_connection(webhook: Webhook) -> None:
    """A connection that is out of step must not answer for the next message."""
    late = b"HTTP/1.1 500 Late\r\nContent-Length: 0\r\n\r\n"
    async with Endpoint(
        lambda request: Reply((*reply().data, b"", late) if request.connection == 0 else reply().data)
    ) as endpoint:
        await ask(webhook, endpoint.url)
        await eventually(lambda: webhook.statistics().connections == 0, "the connection is given up")
        (answer,) = await ask(webhook, endpoint.url)
        assert (answer.reason, endpoint.connections) == (Reason.NONE, 2)


async def test_connections_are_renewed(webhook: Webhook, endpoint: Endpoint) -> None:
    """RULES 23: connections are renewed after 5 minutes, since addresses change."""
    await ask(webhook, endpoint.url)
    (connection,) = next(iter(webhook._pools.values())).open
    assert connection.expires_s > 0
    connection.expires_s = 0.0
    (answer,) = await ask(webhook, endpoint.url)
    assert (answer.reason, endpoint.connections) == (Reason.NONE, 2)
    await eventually(lambda: endpoint.open == 1, "the old one is closed")


async def test_what_idles_for_long_is_closed_and_its_pool_dropped(webhook: Webhook, endpoint: Endpoint) -> None:
    """Ten thousand quiet subscribers must not hold ten thousand connections."""
    await ask(webhook, endpoint.url)
    now_s = time.monotonic()
    webhook._sweep(now_s + IDLE_MAX_S - 1.0)
    assert webhook.statistics() == WebhookStatistics(1, 1)
    webhook._sweep(now_s + IDLE_MAX_S + 1.0)
    await eventually(lambda: webhook.statistics().connections == 0, "it is closed")
    webhook._sweep(now_s + IDLE_MAX_S + 1.0)
    assert webhook.statistics() == WebhookStatistics(0, 0)


async def test_a_forgotten_subscriber_keeps_only_what_is_out(webhook: Webhook, endpoint: Endpoint) -> None:
    """``Handler.forget``: what is idle is closed, what is out comes back."""
    endpoint.answer = lambda request: HANG if request.headers["syncbrok-sequence"] == "2" else reply()
    answers = Answers()
    await ask(webhook, endpoint.url, delivery(1), delivery(3))
    send(webhook, subscriber(endpoint.url), [delivery(2, timeout_s=0.3)], answers.done)
    webhook.forget(1)
    webhook.forget(99)
    await eventually(lambda: endpoint.open == 1, "the idle one is closed")
    assert [answer.reason for answer in await answers.wait_for(1)] == [Reason.TIMEOUT]
    await eventually(lambda: webhook.statistics().connections == 0, "all are closed")


async def test_a_changed_endpoint_is_used_at_once(webhook: Webhook, endpoint: Endpoint) -> None:
    """RULES 3, 13: the endpoint is read at each attempt. What went to the old one still comes back; what waited there
    for a connection is given back."""
    endpoint.answer = lambda _: HANG
    async with Endpoint() as moved:
        answers = Answers()
        send(webhook, subscriber(endpoint.url), [delivery(i, timeout_s=0.3) for i in (1, 2)], answers.done)
        await eventually(lambda: len(endpoint.requests) == 2, "two are out")
        send(webhook, subscriber(endpoint.url), [delivery(3)], answers.done)
        send(webhook, subscriber(moved.url), [delivery(4)], answers.done)
        reasons = [answer.reason for answer in await answers.wait_for(3)]
        assert (reasons, answers.given_back) == ([Reason.NONE] + [Reason.TIMEOUT] * 2, [3])
        assert (len(endpoint.requests), len(moved.requests)) == (2, 1)
        await webhook.close()


async def test_changed_headers_keep_the_connection(webhook: Webhook, endpoint: Endpoint) -> None:
    """Only a new address needs a new connection."""
    answers = Answers()
    for count, value in enumerate(("a", "b"), 1):
        send(webhook, subscriber(endpoint.url, headers=(("X-Who", value),)), [delivery()], answers.done)
        await answers.wait_for(count)
    assert [request.headers["x-who"] for request in endpoint.requests] == ["a", "b"]
    assert endpoint.connections == 1


@pytest.mark.parametrize("turns", range(12))
async def test_closing_at_any_moment_answers_everything_once(endpoint: Endpoint, turns: int) -> None:
    """``Handler.close``: attempts still out are answered ``CONNECT``; each has exactly one answer, whether it was
    waiting, being dialled for, on its way or just answered."""
    webhook = Webhook(AddressGuard(loopback_allowed=True), lambda _: ())
    answers = Answers()
    send(webhook, subscriber(endpoint.url), [delivery(i) for i in range(100)], answers.done)
    for _ in range(turns):
        await asyncio.sleep(0)
    await webhook.close()
    send(webhook, subscriber(endpoint.url), [delivery(100)], answers.done)
    given = await answers.wait_for(101)
    assert {answer.reason for answer in given} <= {Reason.NONE, Reason.CONNECT}
    assert sorted(d.attempt.message for d, _ in answers.all) == list(range(101))
    assert webhook.statistics().connections == 0


async def test_cancelled_dials_answer_too(endpoint: Endpoint) -> None:
    """An attempt is answered once even if its dial is cancelled from outside, as at the end of a loop."""
    webhook = Webhook(AddressGuard(loopback_allowed=True), lambda _: ())
    answers = Answers()
    before = asyncio.all_tasks()
    send(webhook, subscriber(endpoint.url), [delivery(i) for i in range(10)], answers.done)
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await eventually(lambda: len(answers.all) == 10, "every attempt is answered")
    await webhook.close()
    assert len(answers.all) == 10


async def opening(webhook: Webhook) -> None:
    """The moment at which a connection has been made, and who dialled has not been told yet."""
    async with asyncio.timeout(10.0):
        while not webhook.statistics().connections:  # noqa: ASYNC110 - each turn of the loop is looked at
            await asyncio.sleep(0)


async def test_a_dial_cut_off_as_its_connection_opens_leaves_nothing(endpoint: Endpoint) -> None:
    """A subscriber that is deleted at that moment: uvloop closes the connection and tells nobody. Its descriptor is
    given back, and the handler closes; it counted as open for ever, and the broker waited for its end, with a core
    busy, when it was to stop."""
    descriptors = Budget("descriptors", 100)
    webhook = Webhook(AddressGuard(loopback_allowed=True), lambda _: (), descriptors=descriptors)
    answers = Answers()
    send(webhook, subscriber(endpoint.url), [delivery(i) for i in range(5)], answers.done)
    await opening(webhook)
    webhook.forget(1)
    await eventually(lambda: not webhook.statistics().connections, "no connection counts as open")
    await eventually(lambda: not descriptors.used, "each descriptor is given back")
    await asyncio.wait_for(webhook.close(), 10.0)
    assert (sorted(answers.given_back), answers.all) == (list(range(5)), [])
    await eventually(lambda: not endpoint.open, "the endpoint sees the end of the connections")
    assert not endpoint.requests


# -- the guard, at the socket -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "0x7f000001", "2130706433", "[::1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]"],
)
async def test_forbidden_addresses_are_never_dialled(endpoint: Endpoint, host: str) -> None:
    """Egress: in every spelling, and as a name; not one connection reaches the canary."""
    webhook = Webhook(AddressGuard(), lambda _: ())
    (answer,) = await ask(webhook, f"http://{host}:{endpoint.port}/")
    assert answer.reason in (Reason.FORBIDDEN_ADDRESS, Reason.CONNECT)  # CONNECT: a spelling no resolver knows
    assert endpoint.connections == 0
    await webhook.close()


async def test_a_name_that_changes_its_address_cannot_pass(endpoint: Endpoint) -> None:
    """DNS rebinding: what is dialled is the address that was judged, not the name asked for again."""
    asked: list[str] = []

    class Lying(DnsResolver):
        async def look_up(self, host: str) -> list[Address]:
            asked.append(host)
            return [Address(socket.AF_INET, "8.8.8.8" if len(asked) > 1 else "127.0.0.1")]

    webhook = Webhook(AddressGuard(), lambda _: (), resolver=Lying())
    (answer,) = await ask(webhook, f"http://rebinding.example:{endpoint.port}/")
    assert (answer.reason, asked, endpoint.connections) == (Reason.FORBIDDEN_ADDRESS, ["rebinding.example"], 0)
    await webhook.close()


async def test_proxies_of_the_environment_are_not_used(
    webhook: Webhook, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a proxy the guard would judge the wrong address, so ``http_proxy`` means nothing here."""
    async with Endpoint() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        (answer,) = await ask(webhook, endpoint.url)
        assert (answer.reason, len(endpoint.requests), proxy.connections) == (Reason.NONE, 1, 0)


# -- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate and its key, for ``localhost`` only."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    made = f"{openssl} req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    made += f" -addext subjectAltName=DNS:localhost -keyout {path} -out {path}.crt"
    subprocess.run(made.split(), check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


async def test_https_checks_the_certificate_and_its_name(certificate: Path) -> None:
    """Trusted and named: delivered, with SNI. Unknown to the trust store, or of another name: ``Reason.TLS``."""
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificate)
    names: list[str | None] = []
    serving.sni_callback = lambda _socket, name, _context: names.append(name)
    trusting = ssl.create_default_context(cafile=str(certificate))
    guard = AddressGuard(loopback_allowed=True)
    async with Endpoint(tls=serving) as endpoint:
        trusted, system = Webhook(guard, lambda _: (), tls=trusting), Webhook(guard, lambda _: ())
        url = f"https://localhost:{endpoint.port}/"
        for _ in range(2):
            (answer,) = await ask(trusted, url)
            assert (answer.reason, answer.status) == (Reason.NONE, 200), answer
        assert (endpoint.connections, names) == (1, ["localhost"])
        (answer,) = await ask(trusted, endpoint.url)  # https://127.0.0.1: not what the certificate names
        assert answer.reason is Reason.TLS
        (answer,) = await ask(system, url)
        assert (answer.reason, b"certificate" in answer.detail) == (Reason.TLS, True)
        assert len(endpoint.requests) == 2
        await trusted.close()
        await system.close()


async def test_https_to_what_speaks_http_is_a_tls_failure(webhook: Webhook) -> None:
    """``Reason.TLS`` names what has to be mended: the scheme."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    (answer,) = await ask(webhook, f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert answer.reason is Reason.TLS
    await close_server(server)
    await server.wait_closed()


async def test_a_thousand_deliveries_come_back_each_once(webhook: Webhook, endpoint: Endpoint) -> None:
    """Every delivery has one answer of its own, in whatever order they come back."""
    endpoint.answer = lambda request: reply(f"{200 + int(request.headers['syncbrok-sequence']) % 7} X", b"x" * 9)
    answers = Answers()
    wanted = [delivery(i) for i in range(1_000)]
    for at in range(0, 1_000, 50):
        send(webhook, subscriber(endpoint.url), wanted[at : at + 50], answers.done)
        await asyncio.sleep(0)
    await answers.wait_for(1_000)
    assert sorted(given.attempt.message for given, _ in answers.all) == list(range(1_000))
    assert all(answer.status == 200 + given.attempt.message % 7 for given, answer in answers.all)
