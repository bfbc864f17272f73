"""What a single client may take (syncbrok/frontends/bounds): addresses, places among connections, bytes."""

import asyncio
from ipaddress import ip_network
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.frontends.bounds import Addresses, Connections, Receiving, Sending
from syncbrok.frontends.over_http.requests.websocket_backlog import WebSocketBacklog
from syncbrok.model.budget import Budget
from tests.support.polling import eventually

# -- who a client is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "owner"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", ""),
    ],
)
def test_an_owner_is_an_address_or_its_prefix(address: str, owner: str) -> None:
    """INTERFACES 5, owners: an IPv6 client has a /64 to itself, whichever address of it it takes."""
    assert Addresses().owner(address) == owner


@pytest.mark.parametrize(
    ("address", "forwarded", "owner"),
    [
        ("10.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("10.0.0.1", "198.51.100.1, 192.0.2.7", "192.0.2.7"),  # what a client writes itself stands before
        ("10.0.0.1", "192.0.2.7, 10.0.0.9", "192.0.2.7"),  # two proxies, one behind the other
        ("10.0.0.1", "10.0.0.8, 10.0.0.9", "10.0.0.8"),
        ("10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "2001:db8::1", "2001:db8::/64"),
        ("::ffff:10.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("192.0.2.1", "198.51.100.1", "192.0.2.1"),  # no proxy of ours: nobody believes it
    ],
)
def test_only_a_listed_proxy_names_its_clients(address: str, forwarded: str, owner: str) -> None:
    """INTERFACES 5, owners: ``X-Forwarded-For`` is believed from ``http.proxies`` alone, and of it the last name that
    no proxy of ours has written of another."""
    assert Addresses([ip_network("10.0.0.0/8")]).behind(address, forwarded) == owner


@pytest.mark.parametrize(
    ("forwarded", "owner"),
    [
        ("192.0.2.7:41000", "192.0.2.7"),
        ("[2001:db8:1:2::1]:41000", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::1]", "2001:db8:1:2::/64"),
        ("198.51.100.1:1, 192.0.2.7:2, 10.0.0.9:3", "192.0.2.7"),
        ("192.0.2.7:port", "10.0.0.1"),
        ("[192.0.2.7", "10.0.0.1"),
    ],
)
def test_a_port_behind_a_forwarded_address_is_passed_over(forwarded: str, owner: str) -> None:
    """INTERFACES 5, owners: some proxies write the client's port too (Azure, IIS, AWS on request); without this all
    their clients would share the proxy's own share."""
    assert Addresses([ip_network("10.0.0.0/8")]).behind("10.0.0.1", forwarded) == owner


def test_a_proxy_is_the_one_address_also_of_ipv6() -> None:
    """INTERFACES 5, connections: a listed IPv6 proxy has no bound of its own; a neighbour in its /64 has one."""
    addresses = Addresses([ip_network("2001:db8::5/128")])
    assert addresses.is_proxy(addresses.owner("2001:db8::5"))
    assert not addresses.is_proxy(addresses.owner("2001:db8::6"))
    assert addresses.owner("2001:db8::6") == "2001:db8::/64"
    base = Addresses([ip_network("2001:db8::/128")])  # the address that its neighbours' prefix is written with
    assert base.is_proxy(base.owner("2001:db8::"))
    assert not base.is_proxy(base.owner("2001:db8::6"))


# -- places among connections -----------------------------------------------------------------------------------------


class One:
    """A connection; ``since`` None: it is being served."""

    def __init__(self, owner: str, since: float | None = None, *, unproven: bool = False) -> None:
        self.owner = owner
        self.since = since
        self.unproven = unproven
        self.gone = False

    def rests_since(self) -> float | None:
        return self.since

    def make_way(self) -> None:
        self.gone = True


def made(total: int, connections_max: int = 10_000, per_owner_max: int = 10_000) -> Connections:
    return Connections(Budget("descriptors", total), Addresses().is_proxy, connections_max, per_owner_max)


def test_one_address_leaves_room_for_others() -> None:
    """DESIGN 1, bounded: connections that are all being served keep nobody else out."""
    connections = made(160)
    held = 0
    while connections.enter(One("greedy")):
        held += 1
    assert held == 70
    assert all(connections.enter(One(f"other {n}")) for n in range(30))


def test_the_caps_hold_and_the_greatest_makes_way() -> None:
    """INTERFACES 5, connections: where all are at the cap, one of whoever holds most makes way for another's."""
    connections = made(1_000, connections_max=10)
    crowd = [One("crowd", n) for n in range(9)]
    assert all(map(connections.enter, [*crowd, One("single", 0.0)]))
    assert connections.enter(One("newcomer"))
    assert [one.gone for one in crowd] == [True] + [False] * 8
    assert connections.count == 10


def test_what_is_served_makes_no_way() -> None:
    """INTERFACES 5, connections: a request under way is never cut off for a newcomer."""
    connections = made(1_000, per_owner_max=5)
    assert all(connections.enter(One("busy")) for _ in range(5))
    assert not connections.enter(One("busy"))


def test_a_look_finds_the_longest_at_rest_again_and_again() -> None:
    """INTERFACES 5, connections: those that were asked meanwhile, or left, are passed over."""
    connections = made(1_000, per_owner_max=5)
    ones = [One("a", float(n)) for n in range(5)]
    for one in ones:
        assert connections.enter(one)
    assert connections.enter(One("a"))
    ones[1].since = 10.0  # asked since
    ones[2].since = None  # is being served
    connections.leave(ones[3])
    assert connections.enter(One("a"))
    assert connections.enter(One("a"))
    assert [one.gone for one in ones] == [True, False, False, False, True]


# -- bytes being received ---------------------------------------------------------------------------------------------


async def test_bodies_are_admitted_in_turn_and_none_waits_half_way() -> None:
    """DESIGN 1, bounded: a body is admitted as a whole; the next ones wait, in order, until it is done."""
    receiving = Receiving(Budget("receiving", 1_000))
    admitted: list[int] = []

    async def body(n: int) -> None:
        await receiving.admit("a", 200)
        admitted.append(n)

    tasks = [asyncio.ensure_future(body(n)) for n in range(5)]
    await eventually(lambda: len(admitted) >= 2, "two are admitted")
    await asyncio.sleep(0)
    assert admitted == [0, 1]
    assert receiving.try_take("a", 16), "what comes unasked still finds room"
    receiving.give_back("a", 16)
    while len(admitted) < 5:
        held = len(admitted)
        receiving.give_back("a", 200)
        await eventually(lambda: len(admitted) > held, "the next one")  # noqa: B023
    assert admitted == [0, 1, 2, 3, 4]
    await asyncio.gather(*tasks)


async def test_one_that_gives_up_takes_nothing() -> None:
    """DESIGN 1, bounded: whose time is over in the line leaves it, and what was admitted in that moment is given
    back."""
    budget = Budget("receiving", 1_000)
    receiving = Receiving(budget)
    assert receiving.try_admit("a", 400)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await receiving.admit("a", 100)
    waiting = asyncio.ensure_future(receiving.admit("a", 100))
    await asyncio.sleep(0)
    receiving.give_back("a", 400)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert budget.used == 0


# -- bytes being sent -------------------------------------------------------------------------------------------------


class Pipe:
    """The transport of a connection, and the connection: ``unread`` bytes stand in its buffer."""

    def __init__(self, payer: str = "a", spoken_for: int = 0) -> None:
        self.payer = payer
        self.spoken_for = spoken_for
        self.unread = 0
        self.gone = False
        self.transport = cast("asyncio.Transport", self)

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.gone = True


async def test_who_reads_nothing_is_closed_and_who_reads_slowly_is_not() -> None:
    """INTERFACES 5, sending: 30 s without a byte moving end a connection; that more is written to it is no movement."""
    sending = Sending(Budget("sending", 1_000_000), timeout_s=30.0)
    still, slow = Pipe(), Pipe()
    now_s = asyncio.get_running_loop().time()
    for one in (still, slow):
        one.unread = 1_000
        sending.filled(one)
    for second in range(1, 40):
        slow.unread -= 1
        still.unread += 1
        sending.check(now_s + second)
    assert (still.gone, slow.gone) == (True, False)
    for one in (still, slow):
        sending.emptied(one)
    assert sending.budget.used == 0


async def test_one_owner_that_leaves_too_much_unread_loses_what_stands_still() -> None:
    """INTERFACES 5, sending: over its share, the connection of an owner that has stood still for longest is closed, one
    at a time; another owner's is left alone, and so is one that reads."""
    sending = Sending(Budget("sending", 6_000))
    pipes = [Pipe() for _ in range(4)]
    other = Pipe("b")
    for one in (*pipes, other):
        one.unread = 600
        sending.filled(one)
    now_s = asyncio.get_running_loop().time()
    pipes[0].unread -= 1
    sending.check(now_s + 2)
    assert [one.gone for one in pipes] == [False, True, False, False]
    sending.emptied(pipes[1])
    sending.check(now_s + 4)
    assert [one.gone for one in pipes].count(True) == 1, "it is within its share again"
    assert not other.gone


async def test_beyond_all_that_there_is_who_got_more_last_is_closed() -> None:
    """DESIGN 1, bounded: what is unread passes the budget by no more than what was written at once."""
    sending = Sending(Budget("sending", 1_000))
    pipes = [Pipe() for _ in range(5)]
    for one in pipes:
        one.unread = 300
        sending.filled(one)
        if one.gone:
            one.unread = 0
            sending.emptied(one)
    assert [one.gone for one in pipes] == [False, False, False, True, True]
    assert sending.budget.used == 900


async def test_an_answer_that_was_counted_before_is_not_counted_again() -> None:
    """INTERFACES 5, sending: an answer is taken before it is written, and counts once."""
    sending = Sending(Budget("sending", 1_000))
    one = Pipe(spoken_for=400)
    assert sending.try_take("a", 400)
    one.unread = 410
    sending.filled(one)
    assert sending.budget.used == 410


# -- a WebSocket's bytes ----------------------------------------------------------------------------------------------


def frame(payload: bytes, first: int) -> bytes:
    """A client's frame; its mask is zeros."""
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65_536:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    return bytes([first]) + length + bytes(4) + payload


@given(
    messages=st.lists(st.lists(st.sampled_from([0, 1, 125, 126, 300, 65_535, 65_536]), min_size=1, max_size=3)),
    pings=st.booleans(),
    cuts=st.lists(st.integers(1, 70_000), max_size=20),
)
def test_what_is_held_of_a_socket_is_what_is_not_taken(messages: list[list[int]], pings: bool, cuts: list[int]) -> None:
    """DESIGN 1, bounded: in any split, with pings between the frames of a message, what was taken is counted no more
    and what is not whole is."""
    counted = WebSocketBacklog()
    sizes = []
    data = b""
    for parts in messages:
        before = len(data)
        control = 0
        for place, size in enumerate(parts):
            data += frame(bytes(size), (0x80 if place == len(parts) - 1 else 0) | (0 if place else 1))
            if pings and place < len(parts) - 1:
                data += frame(b"ping", 0x89)
                control += len(frame(b"ping", 0x89))
        sizes.append(len(data) - before - control)
    rest = frame(bytes(1_000), 0x81)[:500]
    data += rest
    at = 0
    for cut in [*cuts, len(data)]:
        counted.feed(data[at : at + cut])
        at += cut
    assert counted.held == sum(sizes) + len(rest)
    for size in sizes:
        before = counted.held
        counted.taken()
        assert before - counted.held == size
    assert counted.held == len(rest)
