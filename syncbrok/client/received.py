"""A message as a consumer receives it, and how the consumer refuses it."""

import base64
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import orjson

log = logging.getLogger(__name__)

_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"
_BYTES = "application/octet-stream"

Handle = Callable[["Received"], Awaitable[object]]


class Refuse(Exception):
    """Raised by a handler: this message was not handled. ``delay_s``: not again before."""

    def __init__(self, reason: str = "", delay_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay_s = delay_s


class Received(NamedTuple):
    """A message given to this consumer. It must be acknowledged in time; else it goes to another."""

    id: str
    queue: str
    sequence: int
    attempt: int
    parents: tuple[str, ...]
    key: str
    content_type: str
    headers: dict[str, str]
    content: bytes
    lease: str
    """its name, where it was pulled; empty where it came over a stream"""
    epoch: int = 0
    """from a cluster: a number that grows with each leader; who has seen a greater one has this message from a leader
    of before"""
    replay: int = 0
    """number of the replay it belongs to, 0 for none"""
    previous: int = 0
    """the greatest sequence below its own that had been delivered to the subscriber (the group), 0 for none"""
    complete_through: int = 0
    """everything of the subscriber (the group) up to this sequence had ended"""

    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return orjson.loads(self.content)


async def handled(handle: Handle, message: Received) -> Refuse | None:
    """Hand it over; what its handler raised as a refusal, or None where it has taken the message."""
    try:
        await handle(message)
    except Refuse as refusal:
        return refusal
    except Exception as error:
        log.exception("syncbrok.client.handler_failed", extra={"id": message.id})
        return Refuse(f"{type(error).__name__}: {error}")
    return None


def messages_of(body: bytes) -> list[Received]:
    """The messages of a request to a subscriber with ``batch``, in order. ``verify`` the request first; drop those
    whose ``id`` you have seen: they may come again in other company. JSON (``data``) is written anew. Raises
    ``ValueError`` for any other body."""
    try:
        return [_of_line(json.loads(line)) for line in body.removesuffix(b"\n").split(b"\n")]
    except (KeyError, TypeError, AttributeError) as wrong:
        raise ValueError(f"this is no request with several messages: {wrong!r}") from None


def _of_line(line: dict[str, Any]) -> Received:
    headers = {**line["headers"]}
    if "data" in line:
        content, usual = json.dumps(line["data"], ensure_ascii=False, separators=(",", ":")).encode(), _JSON
    elif "content" in line:
        content, usual = line["content"].encode(), _TEXT
    else:
        content, usual = base64.b64decode(line["content_base64"]), _BYTES
    return Received(
        line["id"],
        line["queue"],
        line["sequence"],
        line["attempt"],
        tuple(line.get("parents", ())),
        line.get("key", ""),
        headers.pop("content-type", usual),
        headers,
        content,
        "",
        0,
        line.get("replay", 0),
        line.get("previous", 0),
        line.get("complete_through", 0),
    )


def received(shown: dict[str, Any]) -> Received:
    """The message in the broker's JSON."""
    content = shown["content"].encode() if "content" in shown else base64.b64decode(shown["content_base64"])
    return Received(
        shown["id"],
        shown["queue"],
        shown["sequence"],
        shown["attempt"],
        tuple(shown["parents"]),
        shown["key"] or "",
        shown["content_type"] or "",
        shown["headers"],
        content,
        shown.get("lease", ""),
        shown.get("epoch", 0),
        shown.get("replay", 0),
        shown.get("previous", 0),
        shown.get("complete_through", 0),
    )
