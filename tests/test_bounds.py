"""What a single client may take (syncbrok/frontends/bounds): addresses, places among connections, bytes."""

import asyncio
from ipaddress import ip_network

import pytest

from syncbrok.frontends.bounds import Addresses, Connections, Receiving
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
