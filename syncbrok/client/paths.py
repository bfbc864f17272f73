"""Addresses of brokers as they are written, and the paths of their routes."""

from typing import NamedTuple
from urllib.parse import quote, urlsplit


class BrokerAddress(NamedTuple):
    """``path`` stands before every path asked for; it does not end with a slash."""

    scheme: str
    host: str
    port: int | None
    path: str


def broker_address(url: str) -> BrokerAddress:
    """The parts of ``url``, the broker's address. Raises ``ValueError`` unless it is an http or https URL."""
    parts = urlsplit(url)
    plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise ValueError(f"expected a URL such as http://127.0.0.1:10000, found {url!r}")
    return BrokerAddress(parts.scheme, parts.hostname, parts.port, parts.path.rstrip("/"))


def split_urls(text: str) -> list[str]:
    """The URLs of ``text``, separated by commas, as commands and settings have them; each stays as it is written."""
    return [url.strip(" ") for url in text.split(",")]


def segment(name: str) -> str:
    """A name, an id or a lease as one percent-encoded segment of a path. The names ``.`` and ``..`` are encoded too,
    because a proxy would take them for steps in the path. Raises ``UnicodeEncodeError``."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def queue_path(queue: str) -> str:
    """The path of a queue."""
    return f"/v1/queues/{segment(queue)}"
