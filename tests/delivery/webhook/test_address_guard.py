"""The guard: nothing but the public internet is dialled, and what an operator allows."""

import socket
from contextlib import suppress
from ipaddress import ip_network

import pytest

from syncbrok.delivery.webhook.address_guard import AddressGuard, NetworkPorts, classify
from syncbrok.delivery.webhook.own_sockets import OwnSockets, is_local

# One address of every special-purpose range of the IANA registries, the notations that hide one in another, and the
# addresses that clouds answer their own questions on.
SPECIAL = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.9",
    "192.0.0.170",
    "192.0.0.192",
    "192.0.2.1",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",
    "192.168.1.1",
    "192.175.48.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::ffff:169.254.169.254",
    "::ffff:10.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "100::1",
    "100:0:0:1::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:1::1",
    "2001:2::1",
    "2001:3::1",
    "2001:4:112::1",
    "2001:10::1",
    "2001:20::1",
    "2001:30::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:808:808::1",
    "2606:4700::5efe:7f00:1",
    "2606:4700::200:5efe:a00:1",
    "2620:4f:8000::1",
    "3ffe::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001:82a::200e"]


@pytest.mark.parametrize("address", SPECIAL)
def test_special_addresses_are_forbidden(address: str) -> None:
    """No special-purpose address passes, in whatever notation."""
    assert len(SPECIAL) >= 50
    assert classify(address, (), loopback_allowed=False)


@pytest.mark.parametrize("address", [*PUBLIC, "::ffff:8.8.8.8"])
def test_public_addresses_pass(address: str) -> None:
    """The controls pass, or the guard would be a wall."""
    assert classify(address, (), loopback_allowed=False) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])
def test_loopback_passes_only_where_it_is_allowed(address: str) -> None:
    """INTERFACES 1: loopback endpoints are allowed while the broker itself listens only on loopback."""
    assert AddressGuard(loopback_allowed=True).why_forbidden(address) is None
    assert "loopback" in str(AddressGuard().why_forbidden(address))


def test_allowing_loopback_allows_nothing_else() -> None:
    """The unspecified address reaches loopback too, and so do others: they stay forbidden."""
    loopback = {"127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1"}
    passed = {address for address in SPECIAL if classify(address, (), loopback_allowed=True) is None}
    assert passed == loopback


def test_what_an_operator_allows_passes_in_either_notation() -> None:
    """``guard.allow`` adds networks, nothing around them."""
    guard = AddressGuard(allow=(ip_network("10.1.0.0/16"), ip_network("fd12::/16")))
    assert guard.why_forbidden("10.1.2.3") is None
    assert guard.why_forbidden("::ffff:10.1.2.3") is None
    assert guard.why_forbidden("fd12::7") is None
    assert guard.why_forbidden("10.2.0.1")
    assert guard.why_forbidden("fd13::1")


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "0x7f000001", "2130706433", "127.0.0.1:80", "[::1]"])
def test_what_is_not_a_numeric_address_is_forbidden(text: str) -> None:
    """Names and odd spellings never pass as they stand: they are resolved first, and the result is judged."""
    assert classify(text, (ip_network("0.0.0.0/0"), ip_network("::/0")), loopback_allowed=True)


def test_an_operator_may_allow_some_ports_only() -> None:
    """INTERFACES 1, ``guard.allow``: ``CIDR:PORTS`` allows those ports, and its neighbours nothing."""
    guard = AddressGuard(allow=(NetworkPorts(ip_network("10.1.0.0/16"), 8_000, 8_999),))
    assert guard.why_forbidden("10.1.2.3", 8_000) is None
    assert guard.why_forbidden("::ffff:10.1.2.3", 8_999) is None
    assert guard.why_forbidden("10.1.2.3", 7_999)
    assert guard.why_forbidden("10.1.2.3", 9_000)
    assert guard.why_forbidden("10.2.0.1", 8_000)


def own_addresses() -> list[str]:
    """Every way to reach this machine that there is here: loopback, the unspecified addresses, its own address."""
    addresses = ["127.0.0.1", "127.8.9.10", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"]
    for family, elsewhere in ((socket.AF_INET, "8.8.8.8"), (socket.AF_INET6, "2606:4700:4700::1111")):
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 53))  # sends nothing; the kernel chooses the address it would be sent from
            address = probe.getsockname()[0]
            addresses += [address, f"::ffff:{address}"] if family == socket.AF_INET else [address]
    return addresses


@pytest.mark.parametrize("address", own_addresses())
def test_own_sockets_are_refused_on_every_address_of_the_machine(address: str) -> None:
    """INTERFACES 1, ``guard.allow``: whatever allows the address, the broker's own sockets are refused there, also on
    the address that the internet knows; other ports of it are as they were."""
    everywhere = (ip_network("0.0.0.0/0"), ip_network("::/0"))
    guard = AddressGuard(everywhere, loopback_allowed=True, own=OwnSockets(lambda: [10_000]))
    assert "this broker itself" in str(guard.why_forbidden(address, 10_000))
    assert guard.why_forbidden(address, 10_001) is None
    for ports, passes in (((10_000, 10_000), True), ((1, 9_999), False)):
        named = tuple(NetworkPorts(network, *ports) for network in everywhere)
        assert (guard._replace(allow=everywhere + named).why_forbidden(address, 10_000) is None) is passes


@pytest.mark.parametrize("address", PUBLIC)
def test_other_machines_are_not_this_one(address: str) -> None:
    """The control: a port of ours on another machine is another's."""
    assert not is_local(address)
    assert AddressGuard(own=OwnSockets(lambda: [10_000])).why_forbidden(address, 10_000) is None
