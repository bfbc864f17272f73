"""Which address is asked next, and which name a client follows: without a socket, by the clock of the test.

Broken by hand to see these fail: any leader followed; https left for http; an address that failed followed by its name
at once; two failures of one address that skip another.
"""

import pytest

from syncbrok.client.addresses import BrokerAddresses

A, B, C = "https://a.example:10000", "https://b.example:10000", "https://c.example"


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_one_address_is_all_there_is() -> None:
    """As without a cluster: whatever happens there, it is asked again."""
    only = BrokerAddresses("http://a.example/below/")
    only.failed(only.current)
    assert (only.current, only.next({only.current}), only.known) == ("http://a.example/below", None, 1)
    assert str(only) == "http://a.example/below"


def test_none_is_a_mistake() -> None:
    """CONTRIBUTING, errors: said where it is given."""
    with pytest.raises(ValueError, match="found none"):
        BrokerAddresses([])


def test_each_is_tried_once_in_a_round_and_the_one_that_answers_stays() -> None:
    """INTERFACES 7: the next one is asked, however often one failure is told; then who answered is asked first."""
    several = BrokerAddresses([A, B, C, A + "/"])
    assert BrokerAddresses(f"{A}, {B},{C}").given == several.given, "as commands and SYNCBROK_URL have them"
    assert several.given == (A, B, C)
    several.failed(A)
    several.failed(A)
    assert several.current == B
    several.failed(B)
    assert several.next({A, B}) == C
    several.failed(C)
    assert several.next({A, B, C}) is None
    assert several.next() in (A, B, C)
    several.answered(B)
    assert several.current == B


@pytest.mark.parametrize(
    ("by", "leader", "followed"),
    [
        (A, B, B),
        (A, "https://B.example:10000/", B),
        (A, C + ":443", C),
        (A, "https://new.example", "https://new.example"),
        (A, "http://new.example", None),
        (A, "http://127.0.0.1:10000", None),
        (A, "http://b.example:10000", None),
        ("http://plain.example", B, B),
        ("http://plain.example", "http://new.example", None),
        ("http://plain.example", "https://new.example", None),
        ("http://127.0.0.1:1", "http://127.0.0.1:3", "http://127.0.0.1:3"),
        ("http://127.0.0.1:1", "http://[::1]:3", "http://[::1]:3"),
        ("http://127.0.0.1:1", "http://localhost:3", "http://localhost:3"),
        ("http://127.0.0.1:1", "https://new.example", "https://new.example"),
        ("http://127.0.0.1:1", "http://new.example", None),
        ("http://127.0.0.1:1", "http://127.0.0.1.example", None),
        ("http://127.0.0.1:9", "http://127.0.0.1:3", None),
        ("https://not-given.example", "https://new.example", None),
        (A, "https://user:password@new.example", None),
        (A, "https://new.example/?a=b", None),
        (A, "https://new.example#a", None),
        (A, "ftp://new.example", None),
        (A, "new.example:10000", None),
        (A, "https://new.example:99999", None),
        (A, "", None),
        (A, None, None),
    ],
)
def test_a_leader_is_followed_where_a_token_may_go(by: str, leader: str | None, followed: str | None) -> None:
    """INTERFACES 7, who may speak: to an address that was given; else only where a given one has named it over TLS or
    on loopback, and never from TLS into the clear, nor in the clear to another machine."""
    several = BrokerAddresses(["http://127.0.0.1:1", "http://plain.example", A, B, C])
    several.named(by, leader)
    assert several.current == (followed or "http://127.0.0.1:1")
    assert several.known == 5 + (several.current not in several.given)


def test_a_name_that_cannot_be_reached_is_not_followed_for_a_time() -> None:
    """INTERFACES 7: what the nodes call each other may lead nowhere from here; the relay is taken, and the name tried
    again after pauses that double."""
    clock = Clock()
    several = BrokerAddresses(A, clock)
    for wait_s in (5, 10, 20, 40, 80, 160, 300, 300):
        several.named(A, B)
        assert several.current == B
        several.failed(B)
        for _ in range(2):
            several.answered(A)
            several.named(A, B)
            assert several.current == A
        clock.now_s += wait_s
    several.named(A, B)
    several.answered(B)
    several.failed(B)
    several.named(A, B)
    assert several.current == A
    clock.now_s += 5
    several.named(A, B)
    assert several.current == B


def test_what_is_remembered_of_failures_is_bounded() -> None:
    """DESIGN 1, bounded: however many names a node gives."""
    clock = Clock()
    several = BrokerAddresses(A, clock)
    for number in range(200):
        several.named(A, f"https://n{number}.example")
        several.failed(several.current)
    several.named(A, "https://n0.example")
    assert several.current == "https://n0.example"
    several.named(A, "https://n199.example")
    assert several.current == "https://n0.example"
