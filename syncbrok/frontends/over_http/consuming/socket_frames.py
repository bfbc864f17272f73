"""The frames of the WebSocket, each a JSON object with a ``type``. Pure.

From the client; ``ref`` is anything of at most 1 KiB, and comes back with the answer::

    {"type": "publish", "ref": 1, "content": "text", ...}     as a line of a batch: content, content_base64 or data,
                                                              parents, key, headers, idempotency_key, ...
    {"type": "ack", "sequence": 12}                           or "sequences": [12, 13]
    {"type": "nack", "sequence": 12, "reason": "busy", "delay": "5s"}
    {"type": "window", "size": 10}

From the broker::

    {"type": "subscribed", "queue": ..., "subscriber": ..., "window": ..., "sequence": 11}      messages come behind it
    {"type": "message", "sequence": 12, "id": ..., "attempt": 1, "content": ..., ...}
    {"type": "lapsed", "sequences": [12]}                     not acknowledged in time: they have failed
    {"type": "published", "ref": 1, "id": ..., "sequence": 14, "new": true}
    {"type": "problem", "ref": 1, "problem": {...}}           RFC 9457
"""

from typing import Any, NamedTuple

import orjson

from syncbrok.frontends.over_http.publishing import ndjson
from syncbrok.frontends.over_http.requests import exact_json, problems
from syncbrok.model import limits
from syncbrok.model.errors import BadSetting, Malformed, SyncbrokError
from syncbrok.model.message import Message
from syncbrok.model.names import id_text
from syncbrok.model.units import parse_duration_s
from syncbrok.space.channels import Accepted


class PublishOne(NamedTuple):
    message: Message


class Acknowledge(NamedTuple):
    sequences: list[int]


class RefuseFrame(NamedTuple):
    sequence: int
    reason: bytes
    delay_s: float | None


class Resize(NamedTuple):
    window: int


Frame = PublishOne | Acknowledge | RefuseFrame | Resize


class OpenedFrame(NamedTuple):
    """A frame whose kind and ``ref`` are known, so that further mistakes in it can be answered."""

    kind: Any
    ref: Any
    members: dict[str, Any]


def open_frame(written: str | bytes) -> OpenedFrame:
    """Raises ``Malformed``."""
    try:
        text = written.encode() if isinstance(written, str) else written
        given = exact_json.loads(exact_json.without_mark(text))
    except orjson.JSONDecodeError as error:
        raise Malformed(f"a frame is JSON: {error.msg}") from None
    if not isinstance(given, dict):
        raise Malformed('a frame is a JSON object with a type, as in {"type": "ack", "sequence": 12}')
    ref = given.pop("ref", None)
    if isinstance(ref, str | list | dict) and len(orjson.dumps(ref)) > limits.ref_bytes_max:
        raise Malformed(f"ref: at most {limits.ref_bytes_max} bytes come back with an answer")
    return OpenedFrame(given.pop("type", None), ref, given)


def read(opened: OpenedFrame, content_bytes_max: int, parents_max: int) -> Frame:
    """The request of an opened frame. Raises ``ClientFault``."""
    kind, _, given = opened
    if kind == "publish":
        return PublishOne(ndjson.parse_one(given, 0, content_bytes_max, parents_max))
    frame = _answer(kind, given)
    for name in given:
        raise BadSetting(f"unknown member {name[:80]!r} of {kind}", setting=name[:80])
    return frame


def _answer(kind: Any, given: dict[str, Any]) -> Frame:
    if kind == "ack":
        many = given.pop("sequences", None)
        sequences = [given.pop("sequence", None)] if many is None else many
        if not isinstance(sequences, list) or len(sequences) > limits.window_max:
            raise BadSetting("sequences: expected a list of whole numbers", setting="sequences")
        return Acknowledge([_number(one, "sequence") for one in sequences])
    if kind == "nack":
        reason = given.pop("reason", "")
        if not isinstance(reason, str):
            raise BadSetting("reason: expected text", setting="reason")
        delay_s = parse_duration_s(given.pop("delay")) if "delay" in given else None
        kept = reason.encode("utf-8", "replace")[: limits.response_bytes_kept]
        return RefuseFrame(_number(given.pop("sequence", None), "sequence"), kept, delay_s)
    if kind == "window":
        size = _number(given.pop("size", None), "size")
        if size > limits.window_max:
            raise BadSetting(f"size: expected a whole number from 0 to {limits.window_max}", setting="size")
        return Resize(size)
    raise Malformed(f"type {str(kind)[:40]!r}: known are publish, ack, nack and window")


def _number(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadSetting(f"{name}: expected a whole number", setting=name)
    return value


def published(ref: Any, receipt: Accepted) -> dict[str, Any]:
    """The answer to a publish that is durable."""
    return {
        "type": "published",
        "ref": ref,
        "id": id_text(receipt.ids[0]),
        "sequence": receipt.sequences[0],
        "new": not receipt.known,
    }


def problem(ref: Any, error: SyncbrokError) -> dict[str, Any]:
    """The answer to a frame that changed nothing."""
    _, document = problems.document(error)
    return {"type": "problem", "ref": ref, "problem": orjson.Fragment(document)}
