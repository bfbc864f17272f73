"""Reads the head of a simple publish, strictly: a head that is in any doubt is not one.

Publishers repeat themselves: at most the length changes from head to head. The same bytes always mean the same, so a
head that was seen before costs one look-up instead of the whole reading.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from syncbrok.frontends.over_http.publishing.cloud_events import STRUCTURED
from syncbrok.frontends.over_http.publishing.headers import bare_type
from syncbrok.frontends.over_http.requests.paths import decoded
from syncbrok.model.errors import BadName, ClientFault, Malformed
from syncbrok.model.names import QueueName, parse_queue_name

BEGIN: Final = b"POST /v1/queues/"
_END: Final = "/messages HTTP/1.1"
_NOT_SIMPLE: Final = frozenset(
    {
        *("ce-causationid", "content-encoding", "expect", "http2-settings", "keep-alive", "prefer", "proxy-connection"),
        *("origin", "sec-fetch-site", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%-]+")
"""of a path, as RFC 3986 has it. A ``?`` or ``#`` would end the path, and what else is none is not read here."""
_REPEATABLE: Final = "syncbrok-"
_STAYS: Final = "keep-alive"
_LENGTH_DIGITS: Final = 8
_CACHED_MAX: Final = 2_048
_CACHED_BYTES_MAX: Final = 1_024
"""longer heads are not cached"""


class RequestHead(NamedTuple):
    """The head of a simple publish: all that stands before the content."""

    queue: QueueName
    content_bytes: int
    host: str
    authorization: str
    headers: list[tuple[str, str]]
    """names in lower case"""
    content_type: str | None = None
    """where no header asks for more than publishing a bare message; else it is still to be read"""


def parse_head(head: bytes) -> RequestHead | None:
    """Request line and headers, without the empty line after them; None for whatever is not, word for word, a simple
    publish."""
    try:
        lines = head.decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        return None
    request = lines.pop(0)
    if not request.endswith(_END) or not "".join(lines).isprintable():
        return None
    named = request[len(BEGIN) : -len(_END)]
    if not _SEGMENT.fullmatch(named):
        return None
    try:
        queue = parse_queue_name(decoded(named, "the queue in the path"))
    except (BadName, Malformed):
        return None
    headers = []
    given: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name, value = name.lower(), value.strip(" ")
        if not colon or name in _NOT_SIMPLE or not name.replace("-", "").isalnum():
            return None
        if name in given and not name.startswith(_REPEATABLE):
            return None
        given[name] = value
        headers.append((name, value))
    length = given.get("content-length", "")
    if not length.isdigit() or len(length) > _LENGTH_DIGITS or "host" not in given:
        return None
    if given.get("connection", _STAYS).lower() != _STAYS or given.get("content-type", "").lower().startswith(
        STRUCTURED
    ):
        return None
    return RequestHead(queue, int(length), given["host"], given.get("authorization", ""), headers)


class RequestHeadCache:
    """Reads heads and caches those that are likely to come again: at most 2,048 of 1 KiB each. Heads that differ from
    message to message are not cached. A head says what is asked, never that a token grants it; nothing about that is
    kept."""

    def __init__(self, content_bytes_max: int, answers_for: Callable[[str], bool]) -> None:
        """A publish of more than ``content_bytes_max`` is not simple, nor one to a host that ``answers_for`` does not
        know; aiohttp's way refuses both. Heads read once are cached; see ``clear``."""
        self._content_bytes_max = content_bytes_max
        self._answers_for = answers_for
        self._cached: dict[bytes, RequestHead] = {}
        self.cached = self._cached.get
        """gives the head that these bytes are, None where that is not known; asked for every publish, so it is no
        function of its own"""

    def read(self, text: bytes) -> RequestHead | None:
        """See ``parse_head``."""
        head = self._cached.get(text)
        if head is not None:
            return head
        head = parse_head(text)
        if head is None or head.content_bytes > self._content_bytes_max or not self._answers_for(head.host):
            return None
        try:
            content_type = bare_type(head.headers)
        except ClientFault:
            return head  # whoever parses it will say what is wrong
        if content_type is None:
            return head
        head = head._replace(content_type=content_type)
        if len(text) <= _CACHED_BYTES_MAX:
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            self._cached[text] = head
        return head

    def clear(self) -> None:
        """Forget all heads: ``answers_for`` may answer otherwise from now on."""
        self._cached.clear()

    def __len__(self) -> int:
        """The number of heads cached."""
        return len(self._cached)

    def __repr__(self) -> str:
        return f"<RequestHeadCache heads={len(self)}>"
