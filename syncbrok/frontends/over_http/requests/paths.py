"""Names in paths and queries: percent-encoded (RFC 3986), read strictly.

What is no escape, or is no UTF-8, is refused: a reader that guesses (``%zz`` as it stands, ``%FF`` as U+FFFD) would
speak of another queue than its client. In a path a plus is a plus.
"""

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from aiohttp import web

from syncbrok.model.errors import Malformed
from syncbrok.model.names import QueueName, parse_queue_name

_NO_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_QUEUE_AT: Final = 3
"""of ``/v1/queues/{queue}``, parted at its slashes"""


def segment(name: str) -> str:
    """``name`` as one segment of a path: all but letters, digits and ``-._~`` encoded."""
    return quote(name, safe="")


def queue_url(name: str) -> str:
    """The path of a queue."""
    return f"/v1/queues/{segment(name)}"


def decoded(text: str, what: str) -> str:
    """``text`` without its percent-encoding; errors name it by ``what``. Raises ``Malformed``."""
    if "%" not in text:
        return text
    if _NO_ESCAPE.search(text):
        raise Malformed(f"{what} holds a % that begins no escape; a percent sign is written %25")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise Malformed(f"{what} is not UTF-8 once its escapes are decoded") from None


def queue_of(request: web.Request) -> QueueName:
    """The queue in the path. Raises ``BadName`` and ``Malformed``. It is read from the path as it was sent: the form
    that aiohttp makes of it no longer tells a bad escape from text."""
    return parse_queue_name(decoded(request.rel_url.raw_path.split("/")[_QUEUE_AT], "the queue in the path"))
