"""Looking up names: one slow name is nobody else's business, and the guard judges every address of every answer."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest

from syncbrok.delivery.handler import AttemptResult
from syncbrok.delivery.webhook.address_guard import AddressGuard, NetworkPorts
from syncbrok.delivery.webhook.known_addresses import FAILED_S, FRESH_S, KnownAddresses
from syncbrok.delivery.webhook.resolver import Address, DnsResolver, LookUpFailed, Resolver, SystemResolver, numeric
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.model import limits
from syncbrok.model.facts import Reason
from tests.support.broker.process import BrokerProcess
from tests.support.delivery.endpoint import Answers, Endpoint, delivery, send, subscriber
from tests.support.delivery.name_server import AAAA, CNAME, FAILED, NO_SUCH_NAME, A, NameServer, Records
from tests.support.polling import eventually

HERE = Address(socket.AF_INET, "127.0.0.1")


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as running:
        yield running


@asynccontextmanager
async def asking(server: NameServer, guard: AddressGuard | None = None) -> AsyncIterator[Webhook]:
    """A handler that asks ``server``, which is running, and nobody else."""
    handler = Webhook(
        guard or AddressGuard(loopback_allowed=True), lambda _: (), resolver=DnsResolver([server.address])
    )
    yield handler
    await handler.close()


async def ask(webhook: Webhook, url: str, *, number: int = 1, timeout_s: float = 10.0) -> AttemptResult:
    answers = Answers()
    send(webhook, subscriber(url, number=number), [delivery(timeout_s=timeout_s)], answers.done)
    return (await answers.wait_for(1))[0]


# -- against a name server --------------------------------------------------------------------------------------------


async def test_slow_names_delay_nobody_else(endpoint: Endpoint) -> None:
    """RULES 23, the promise: a hundred names whose server says nothing, and a neighbour's message goes out at
    once; the others fail by their own timeout."""
    server = NameServer(lambda name, kind: None if "slow" in name else local(name, kind))
    async with server, asking(server) as webhook:
        slow = Answers()
        for number in range(2, 102):
            to = subscriber(f"http://slow{number}.example:9/", number=number)
            send(webhook, to, [delivery(timeout_s=2.0)], slow.done)
        await eventually(lambda: len({name for name, _ in server.asked}) == 100, "all of them are asked for")
        begun_s = time.monotonic()
        answer = await ask(webhook, f"http://fast.example:{endpoint.port}/")
        assert (answer.reason, endpoint.connections) == (Reason.NONE, 1)
        assert time.monotonic() - begun_s < 1.0
        assert {one.reason for one in await slow.wait_for(100)} == {Reason.TIMEOUT}


def local(name: str, kind: int) -> Records | int | None:
    return [(name, A, "127.0.0.1")] if kind == A else []


async def test_a_name_is_asked_for_once_however_many_wait(endpoint: Endpoint) -> None:
    """RULES 23: one running look-up a name, for all ports and subscribers; what is fresh is not asked for again."""
    async with NameServer() as server, asking(server) as webhook, Endpoint() as other:
        answers = Answers()
        urls = [f"http://shop.example:{port}/" for port in (endpoint.port, other.port)]
        for number in range(20):
            send(webhook, subscriber(urls[number % 2], number=number), [delivery(number)], answers.done)
        assert {answer.reason for answer in await answers.wait_for(20)} == {Reason.NONE}
        assert server.count("shop.example") == 1


async def test_a_server_that_is_quick_with_others_is_waited_for() -> None:
    """RULES 23: a name that takes its server two seconds has its addresses, however soon all others had theirs. (c-ares
    learns how quick a server is, and drops an answer that comes after it has asked again.)"""
    async with NameServer(delay_s=lambda name: 2.0 if "slow" in name else 0.0) as server:
        resolver = DnsResolver([server.address])
        for n in range(6):
            assert await resolver.look_up(f"quick{n}.example") == [HERE]
        assert await resolver.look_up("slow.example") == [HERE]
        await resolver.close()


async def test_a_server_that_says_nothing_is_given_up() -> None:
    """``limits.look_up_timeout_s``: then the name's place is another's. (15 s; here half a second.)"""
    async with NameServer(lambda _, __: None) as server:
        resolver = DnsResolver([server.address], timeout_s=0.5)
        with pytest.raises(LookUpFailed, match=r"no name server answered within 0\.5 s") as caught:
            await resolver.look_up("x.example")
        assert not caught.value.definite
        await resolver.close()


@pytest.mark.parametrize(
    "records",
    [
        [("x.example", A, "10.0.0.1")],
        [("x.example", AAAA, "fd00::1")],
        [("x.example", AAAA, "::ffff:127.0.0.1")],
        [("x.example", CNAME, "y.example"), ("y.example", A, "127.0.0.1")],
        [("x.example", A, "169.254.169.254"), ("x.example", A, "192.168.1.1")],
    ],
    ids=["A", "AAAA", "mapped", "CNAME", "several"],
)
async def test_the_guard_judges_every_address_of_an_answer(endpoint: Endpoint, records: Records) -> None:
    """INTERFACES 1: only public addresses, whatever kind of record says otherwise, and by whatever name it is owned."""
    server = NameServer(lambda _, kind: [one for one in records if one[1] in (kind, CNAME)])
    async with server, asking(server, AddressGuard()) as webhook:
        answer = await ask(webhook, f"http://x.example:{endpoint.port}/")
    assert (answer.reason, endpoint.connections) == (Reason.FORBIDDEN_ADDRESS, 0)
    assert b"not a public address" in answer.detail


async def test_of_several_addresses_only_those_that_pass_are_dialled(endpoint: Endpoint) -> None:
    """INTERFACES 1: a good address beside a forbidden one does not make that one good."""
    allow = (NetworkPorts(ip_network("127.0.0.2/32"), endpoint.port, endpoint.port),)
    records = [("x.example", A, "127.0.0.1"), ("x.example", A, "127.0.0.2"), ("x.example", A, "10.0.0.1")]
    server = NameServer(lambda _, kind: records if kind == A else [])
    async with server, asking(server, AddressGuard(allow)) as webhook:
        answer = await ask(webhook, f"http://x.example:{endpoint.port}/")
    assert (answer.reason, endpoint.connections) == (Reason.CONNECT, 0)  # nobody listens on 127.0.0.2


async def test_a_name_that_is_not_there_is_told_in_words(endpoint: Endpoint) -> None:
    """``Reason.CONNECT``: no such name, and a server that fails; the detail names the name."""
    codes = {"none.example": NO_SUCH_NAME, "failing.example": FAILED}
    async with NameServer(lambda name, _: codes[name]) as server, asking(server) as webhook:
        for name in codes:
            answer = await ask(webhook, f"http://{name}:{endpoint.port}/")
            assert answer.reason is Reason.CONNECT
            assert f"{name} cannot be resolved: ".encode() in answer.detail


async def test_the_hosts_file_is_read() -> None:
    """RULES 23: /etc/hosts is honoured: localhost stands there and no server is asked for it."""
    async with NameServer(lambda _, __: NO_SUCH_NAME) as server:
        resolver = DnsResolver([server.address])
        found = await resolver.look_up("localhost")
        await resolver.close()
        assert {address.host for address in found} <= {"127.0.0.1", "::1"}
        assert not server.asked


async def test_search_domains_and_ndots_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """INTERFACES 1, ``resolver``: a name with few dots is looked for below the search domains first, one with enough,
    or one that ends in a dot, as it stands. (The environment says what /etc/resolv.conf would.)"""
    monkeypatch.setenv("LOCALDOMAIN", "corp.example")
    monkeypatch.setenv("RES_OPTIONS", "ndots:2")
    async with NameServer(lambda name, kind: local(name, kind) if "corp" in name else NO_SUCH_NAME) as server:
        resolver = DnsResolver([server.address])
        for name, first in (
            ("shop", "shop.corp.example"),
            ("a.shop", "a.shop.corp.example"),
            ("a.b.shop", "a.b.shop"),
            ("shop.corp.example.", "shop.corp.example"),
        ):
            server.asked.clear()
            assert await resolver.look_up(name) == [HERE]
            assert server.asked[0][0] == first
        await resolver.close()


async def test_a_broker_asks_the_servers_that_it_is_told(tmp_path: Path) -> None:
    """RULES 23, the promise, on a whole broker: six names that nobody answers for, each tried by many messages, and a
    neighbour's message is delivered at once."""
    server = NameServer(lambda name, kind: None if "slow" in name else local(name, kind))
    async with server, Endpoint() as endpoint:
        with BrokerProcess(tmp_path / "storage", config=f"resolver: ['{server.address}']\n") as broker:
            for queue, host in (*((f"q{number}", f"slow{number}") for number in range(6)), ("good", "fast")):
                await asyncio.to_thread(broker.request, "POST", "/v1/queues", {"name": queue})
                to = {"endpoint": f"http://{host}.example:{endpoint.port}/"}
                await asyncio.to_thread(broker.request, "POST", f"/v1/queues/{queue}/subscribers", to)
            for queue in [f"q{number}" for number in range(6)] * 5:
                await asyncio.to_thread(broker.request, "POST", f"/v1/queues/{queue}/messages", b"m")
            await eventually(lambda: len({name for name, _ in server.asked}) == 6, "the slow ones are asked for")
            begun_s = time.monotonic()
            publish = ("POST", "/v1/queues/good/messages", b"m", {"Prefer": "wait=10"})
            answer = (await asyncio.to_thread(broker.request, *publish)).json()
            assert (answer["state"], len(endpoint.requests)) == ("complete", 1)
            assert time.monotonic() - begun_s < 2.0
            assert all(server.count(f"slow{number}.example") < 5 for number in range(6))


# -- what is known ----------------------------------------------------------------------------------------------------


class Scripted(Resolver):
    """Answers what the test puts in; ``asked`` counts."""

    running_max = 2

    def __init__(self) -> None:
        self.answers: dict[str, list[Address] | LookUpFailed | asyncio.Event] = {}
        self.asked: list[str] = []
        self.now_s = 100.0

    async def look_up(self, host: str) -> list[Address]:
        self.asked.append(host)
        answer = self.answers[host]
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return [HERE]
        if isinstance(answer, LookUpFailed):
            raise answer
        return answer

    async def close(self) -> None:
        self.asked.append("closed")


@pytest.fixture
def resolver() -> Scripted:
    return Scripted()


@pytest.fixture
async def known(resolver: Scripted) -> AsyncIterator[KnownAddresses]:
    addresses = KnownAddresses(resolver, lambda: resolver.now_s)
    yield addresses
    await addresses.close()


async def test_a_failure_is_remembered_for_seconds(known: KnownAddresses, resolver: Scripted) -> None:
    """RULES 23: what failed is told again without asking, and then asked for again."""
    resolver.answers["x"] = LookUpFailed("no such name", definite=True)
    for _ in range(3):
        with pytest.raises(LookUpFailed, match="no such name"):
            await known.addresses("X")
    assert resolver.asked == ["x"]
    resolver.now_s += FAILED_S
    resolver.answers["x"] = [HERE]
    assert (await known.addresses("x"), resolver.asked) == ([HERE], ["x", "x"])


async def test_last_good_addresses_are_used_meanwhile(
    known: KnownAddresses, resolver: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    """RULES 23: where nobody could be asked, or nobody answers, the last good addresses serve, for an hour; the log
    says so once."""
    resolver.answers["x"] = [HERE]
    await known.addresses("x")
    resolver.now_s += FRESH_S
    resolver.answers["x"] = LookUpFailed("timed out", definite=False)
    for _ in range(2):
        assert await known.addresses("x") == [HERE]
        resolver.now_s += FAILED_S
    assert [record.msg for record in caplog.records] == ["syncbrok.delivery.last_addresses_used"]
    answered = resolver.answers["x"] = asyncio.Event()
    assert await known.addresses("x") == [HERE]  # while the look-up goes on
    assert await known.addresses("x") == [HERE]
    assert len(resolver.asked) == 4
    answered.set()
    await eventually(lambda: not known._running, "it is answered")
    resolver.now_s += limits.addresses_good_max_s
    resolver.answers["x"] = LookUpFailed("timed out", definite=False)
    with pytest.raises(LookUpFailed, match="timed out"):
        await known.addresses("x")


async def test_a_name_that_is_no_more_is_not_used_any_longer(known: KnownAddresses, resolver: Scripted) -> None:
    """RULES 23: the last good addresses serve while nobody knows better; "no such name" is to know better."""
    resolver.answers["x"] = [HERE]
    await known.addresses("x")
    resolver.now_s += FRESH_S
    resolver.answers["x"] = LookUpFailed("no such name", definite=True)
    with pytest.raises(LookUpFailed, match="no such name"):
        await known.addresses("x")


async def test_look_ups_and_what_is_known_are_bounded(resolver: Scripted) -> None:
    """Bounded: so many at once as the resolver takes, the others after them; so many names as there is room for."""
    known = KnownAddresses(resolver, names_max=10)
    gate = asyncio.Event()
    resolver.answers |= dict.fromkeys([f"n{number}" for number in range(20)], gate)
    waiting = [asyncio.ensure_future(known.addresses(f"n{number}")) for number in range(20)]
    await eventually(lambda: len(resolver.asked) == 2, "two are asked for")
    for _ in range(10):
        await asyncio.sleep(0)
    assert resolver.asked == ["n0", "n1"]
    gate.set()
    assert await asyncio.gather(*waiting) == [[HERE]] * 20
    assert len(known._known) == 10
    await known.close()


async def test_who_waits_may_go_and_the_look_up_goes_on(known: KnownAddresses, resolver: Scripted) -> None:
    """An attempt that runs out of time does not take the answer from those that wait with it; at the end nothing is
    left running."""
    resolver.answers["x"] = gate = asyncio.Event()
    first, second = (asyncio.ensure_future(known.addresses("x")) for _ in range(2))
    await eventually(lambda: resolver.asked, "it is asked for")
    first.cancel()
    gate.set()
    assert await second == [HERE]
    resolver.answers["y"] = asyncio.Event()
    third = asyncio.ensure_future(known.addresses("y"))
    await eventually(lambda: len(resolver.asked) == 2, "it is asked for")
    await known.close()
    assert resolver.asked[-1] == "closed"
    with pytest.raises(asyncio.CancelledError):
        await third


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "::1", "fe80::1"])
async def test_numeric_addresses_are_looked_up_nowhere(known: KnownAddresses, resolver: Scripted, host: str) -> None:
    """In every spelling that the system knows; the guard sees the address that is meant."""
    found = await known.addresses(host)
    assert tuple(found) == numeric(host)
    assert found[0].host in ("127.0.0.1", host)
    assert not resolver.asked


async def test_the_system_is_asked_in_threads_of_its_own() -> None:
    """INTERFACES 1, ``resolver: system``: what ``getaddrinfo`` says, and its failures; the loop's own threads are
    left to others, and there is a bound."""
    resolver = SystemResolver()
    assert resolver.running_max == limits.look_up_threads_max
    before = set(threading.enumerate())
    assert {address.host for address in await resolver.look_up("localhost")} <= {"127.0.0.1", "::1"}
    with pytest.raises(LookUpFailed) as failed:
        await resolver.look_up("no-such-name.invalid")
    assert str(failed.value)
    with pytest.raises(LookUpFailed) as malformed:
        await resolver.look_up("x" * 70 + ".example")
    assert malformed.value.definite
    assert {thread.name for thread in set(threading.enumerate()) - before} <= {"syncbrok look-up"}
