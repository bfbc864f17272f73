"""The addresses of a broker, or of the nodes of a cluster, and which of them is asked next.

**Where a token may go.** The answer of a node may name the node that leads (the header ``Syncbrok-Leader``). Whoever
goes there takes token and content along, and a header is no reason to hand them to anybody. The name is followed only

- where it is an address that was given, by scheme, host and port; then it is asked as it was given; or
- where a given address has named it over TLS, whose certificate says who speaks, and it is https itself; or
- where a given address on loopback has named it, and it is on loopback or https itself.

So no name leads from https to http, or in the clear to another machine that was not given. An address that was only
named is not believed when it names others. A name that is not followed costs a relay: the node that was asked goes on
passing everything to the leader.
"""

import time
from collections.abc import Callable, Collection, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from syncbrok.client.paths import broker_address, split_urls

LEADER: Final = "Syncbrok-Leader"
"""the header by which an answer names the node that leads: its URL"""
_AVOID_S: Final = 5.0
_AVOID_MAX_S: Final = 300.0
_AVOIDED_MAX: Final = 64
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Scheme, host and port of a URL: two URLs with the same are one server."""

    scheme: str
    host: str
    port: int

    @property
    def on_loopback(self) -> bool:
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class BrokerAddresses:
    """``urls``: one, or several that lead to the same messages, in one text with commas between or each by itself.
    ``clock`` says seconds. Raises ``ValueError`` for none."""

    def __init__(self, urls: str | Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        given = split_urls(urls) if isinstance(urls, str) else urls
        self.given = tuple(dict.fromkeys(url.rstrip("/") for url in given))
        if not self.given:
            raise ValueError("expected the URL of a broker, such as http://127.0.0.1:10000, or several; found none")
        self._clock = clock
        self._by_origin = {origin: url for url in reversed(self.given) if (origin := _origin(url)) is not None}
        self._avoided: dict[str, tuple[float, float]] = {}
        """until when an address that failed is gone to only where there is no other, and for how long that was"""
        self.current = self.given[0]
        """which is asked first"""

    def __str__(self) -> str:
        return ", ".join(self.given)

    @property
    def known(self) -> int:
        """How many there are to ask now."""
        return len(self.given) + (self.current not in self.given)

    def next(self, tried: Collection[str] = ()) -> str | None:
        """Which to ask after those; None where each of them was tried."""
        if self.current not in tried:
            return self.current
        rest = [url for url in self._others(self.current) if url not in tried]
        return next((url for url in rest if not self._is_avoided(url)), rest[0] if rest else None)

    def named(self, by: str, leader: str | None) -> None:
        """An answer from the URL ``by`` had this header. From now on the leader is asked first, if it may be followed
        and has not just failed."""
        origin = _origin(leader or "")
        speaker = _origin(by)
        if origin is None or leader is None or speaker is None:
            return
        url = self._by_origin.get(origin)
        if url is None and speaker in self._by_origin and _may_lead(speaker, origin):
            url = leader.rstrip("/")
        if url is not None and not self._is_avoided(url):
            self.current = url

    def answered(self, url: str) -> None:
        """Note that the broker at ``url`` did what it was asked: it is avoided no more."""
        self._avoided.pop(url, None)
        if self._is_avoided(self.current):
            self.current = url

    def failed(self, url: str) -> None:
        """Note that the broker at ``url`` refused the connection, was silent or sent us away: another is asked first,
        and who names it leads there again only after a time, twice as long after each failure. (What cannot be reached
        from here may well be named.)"""
        _, before_s = self._avoided.pop(url, (0.0, _AVOID_S / 2))
        pause_s = min(2 * before_s, _AVOID_MAX_S)
        self._avoided[url] = self._clock() + pause_s, pause_s
        if len(self._avoided) > _AVOIDED_MAX:
            del self._avoided[next(iter(self._avoided))]
        if self.current == url:
            others = self._others(url)
            self.current = next((one for one in others if not self._is_avoided(one)), others[0] if others else url)

    def _others(self, url: str) -> list[str]:
        """The other addresses that were given, in their order, from the one behind ``url`` on."""
        at = self.given.index(url) + 1 if url in self.given else 0
        return [one for one in (*self.given[at:], *self.given[:at]) if one != url]

    def _is_avoided(self, url: str) -> bool:
        return self._avoided.get(url, (0.0, 0.0))[0] > self._clock()


def _may_lead(by: Origin, leader: Origin) -> bool:
    """Whether a leader that was not given is followed; see the module."""
    if by.scheme == "https":
        return leader.scheme == "https"
    return by.on_loopback and (leader.on_loopback or leader.scheme == "https")


def _origin(url: str) -> Origin | None:
    """None for what is no URL of a broker: one with a user, a query or a fragment neither."""
    try:
        scheme, host, port, _ = broker_address(url)
    except ValueError:
        return None
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        return None
    return Origin(scheme, host, port or _DEFAULT_PORTS[scheme])
