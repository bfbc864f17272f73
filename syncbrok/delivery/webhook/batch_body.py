"""The body of a request with several messages: NDJSON, a line for each. Pure.

A line has the members that a publisher's line may have (``frontends/over_http/publishing/ndjson.py`` reads those), and
``id``, ``queue``, ``sequence``, ``attempt``: who takes these four away has what it may publish. Text is ``content``,
JSON is ``data``, byte for byte but for line ends, other bytes are ``content_base64``; a content type other than theirs
stands among the ``headers``, as a publisher says it there.
"""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

import orjson

from syncbrok.delivery.handler import Delivery
from syncbrok.model.facts import StoredMessage
from syncbrok.model.message import HOPS
from syncbrok.model.names import id_text

MEDIA: Final = "application/x-ndjson"
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"


def batch_id(first: StoredMessage, count: int) -> str:
    """``webhook-id`` of a request with so many messages."""
    return f"batch-{id_text(first.id)}-{count}"


def batch_line(delivery: Delivery, queue: str, headers: Sequence[tuple[str, str]], hops: int) -> bytes:
    """The message as a line, without a line end. ``headers``: those of its own that go out; ``hops``: how many
    deliveries it will have gone through with this one."""
    attempt, message, _ = delivery
    line: dict[str, Any] = {
        "id": id_text(message.id),
        "queue": queue,
        "sequence": attempt.message,
        "attempt": attempt.number,
    }
    if attempt.replay:
        line["replay"] = attempt.replay
    previous, complete_through = attempt.confirmed
    if previous:
        line["previous"] = previous
    if complete_through:
        line["complete_through"] = complete_through
    if message.parents:
        line["parents"] = [id_text(parent) for parent in message.parents]
    if message.key:
        line["key"] = _text(message.key)
    kept = {name.lower(): _text(value) for name, value in headers}
    member, value, usual = _content(message)
    if message.content_type not in ("", usual):
        kept["content-type"] = _text(message.content_type)
    kept[HOPS] = str(hops)
    line["headers"] = kept
    line[member] = value
    return orjson.dumps(line)


def _content(message: StoredMessage) -> tuple[str, Any, str]:
    """The member that it stands in, its value, and the content type that this means."""
    content = message.content
    media = message.content_type.partition(";")[0].strip().lower()
    if media == _JSON or media.endswith("+json"):
        try:
            orjson.loads(content)
        except orjson.JSONDecodeError:
            pass
        else:  # a line end of JSON stands between two tokens, where a blank means the same
            return "data", orjson.Fragment(content.replace(b"\r", b" ").replace(b"\n", b" ")), _JSON
    if media and media != _BYTES:
        try:
            return "content", content.decode(), _TEXT
        except UnicodeDecodeError:
            pass
    return "content_base64", b64encode(content).decode("ascii"), _BYTES


def _text(value: str) -> str:
    """JSON has no raw bytes: what was not UTF-8 in a header becomes U+FFFD."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
