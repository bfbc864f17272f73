"""CloudEvents 1.0 as they come in: attributes of the binary mode, events of the JSON format alone or in a batch.

An event's ``source`` and ``id`` together are its idempotency key; ``causationid`` names a parent, by the CloudEvents id
of an event of the same source or by a Syncbrok id. Attributes travel on as ``ce-*`` headers, percent-encoded as the
HTTP binding asks (space, ``"``, ``%`` and what is not printable ASCII).
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import orjson

from syncbrok.frontends.over_http.publishing.quoted import unquote_header
from syncbrok.frontends.over_http.requests import exact_json
from syncbrok.model import limits
from syncbrok.model.errors import Malformed, UnknownParent
from syncbrok.model.message import Message
from syncbrok.model.names import MessageId, parse_message_id
from syncbrok.space.queries.view import View

STRUCTURED = "application/cloudevents+json"
REQUIRED = ("id", "source", "specversion", "type")
SPECVERSION = "1.0"
CAUSE = "causationid"
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


class Cause(NamedTuple):
    """The value of ``causationid``, and the source of the event that has it."""

    source: str
    id: str


class Identity(NamedTuple):
    """The identity of an event: its idempotency key and its cause."""

    key: str
    cause: Cause | None


def key_of(source: str, id: str) -> str:  # noqa: A002 (the word of the specification)
    """The idempotency key of an event. A source is a URI reference and has no blank, so this joins without doubt."""
    return f"{source} {id}"


def identify(attributes: Mapping[str, str]) -> Identity:
    """Check what every event must have. ``attributes`` are decoded; raises ``Malformed`` naming what is missing."""
    for name in REQUIRED:
        if not attributes.get(name):
            raise Malformed(f"a CloudEvent needs {name!r} (ce-{name} in binary mode)", attribute=name)
    if attributes["specversion"] != SPECVERSION:
        what = f"specversion {attributes['specversion'][:20]!r} is not known here, {SPECVERSION} is"
        raise Malformed(what, attribute="specversion")
    source = attributes["source"]
    if " " in source:
        raise Malformed("the source of a CloudEvent is a URI reference: no blanks", attribute="source")
    key = key_of(source, attributes["id"])
    if len(key.encode()) > limits.key_bytes_max:
        raise Malformed(
            f"source and id of a CloudEvent may have {limits.key_bytes_max} bytes together, these have more",
            bytes_max=limits.key_bytes_max,
        )
    cause = attributes.get(CAUSE)
    return Identity(key, Cause(source, cause) if cause else None)


def decode(value: str, header: str) -> str:
    """An attribute's value out of its header (HTTP binding 3.1.3.2): quotes around it are taken off first, then escapes
    are decoded. Raises ``Malformed`` where they are not UTF-8: two such ids would become one."""
    value = unquote_header(value)
    if "%" not in value:
        return value
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise Malformed(f"{header}: its escapes are not UTF-8", header=header) from None


def encode(value: str) -> str:
    """An attribute's value as its header carries it."""
    return quote(value, safe=_SAFE)


def one_form(value: str, header: str) -> str:
    """A header's value as ``encode`` writes what it means, however it was written. Raises ``Malformed``."""
    return encode(decode(value, header))


def load(body: bytes) -> Any:
    """The event, or events, of a body. Raises ``Malformed``."""
    try:
        return exact_json.loads(exact_json.without_mark(body))
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the body is not JSON: {error.msg}", line_of_body=error.lineno) from None


def from_json(event: Any) -> tuple[Message, Identity]:
    """The message in one event, and the event's identity. Raises ``Malformed``."""
    if not isinstance(event, dict):
        raise Malformed("a CloudEvent is a JSON object")
    attributes = {
        name: _text(name, value)
        for name, value in event.items()
        if name not in ("data", "data_base64") and value is not None  # null: as if it were not there (JSON format 2.2)
    }
    identity = identify(attributes)
    content_type = attributes.pop("datacontenttype", "")
    if content_type and not (content_type.isascii() and content_type.isprintable()):
        raise Malformed("datacontenttype is not a media type", attribute="datacontenttype")
    content = _content(event, content_type)
    headers = tuple((f"ce-{name}", encode(value)) for name, value in attributes.items())
    if not content_type and "data" in event:
        content_type = "application/json"
    return Message(content, content_type, idempotency_key=identity.key, headers=headers), identity


async def resolve(cause: Cause, view: View) -> tuple[MessageId, ...]:
    """The message that ``cause`` names, or all of them if the event was published to several queues: then the child
    waits for each, whichever the publisher meant. Raises ``UnknownParent``, and ``Malformed`` for more parents than a
    message may have.

    It is looked up as a CloudEvents id first: such an id may have the form of a Syncbrok id, but no source of events
    would make up the id of a message.
    """
    found = await view.published_as(key_of(*cause), limits.parents_max + 1)
    if len(found) > limits.parents_max:
        raise Malformed(
            f"ce-causationid {cause.id[:80]!r} names an event of more than {limits.parents_max} queues: name the "
            "message by its Syncbrok id",
            parent=cause.id[:80],
        )
    if found:
        return found
    try:
        return (parse_message_id(cause.id),)
    except Malformed:
        raise UnknownParent(
            f"ce-causationid {cause.id[:80]!r} is neither the id of an event of source {cause.source[:80]!r} "
            "that is known here nor a message id",
            parent=cause.id[:80],
        ) from None


def _text(name: str, value: Any) -> str:
    if not (name.isascii() and name.isalnum() and name == name.lower()):
        raise Malformed(f"{name[:40]!r} is not an attribute name: lower-case letters and digits", attribute=name[:40])
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise Malformed(f"attribute {name[:40]!r} must be a string, a number or a boolean", attribute=name[:40])
    return value


def _content(event: Mapping[str, Any], content_type: str) -> bytes:
    if event.get("data_base64") is not None:
        if event.get("data") is not None:
            raise Malformed("a CloudEvent has 'data' or 'data_base64', not both")
        try:
            return base64.b64decode(event["data_base64"], validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise Malformed("data_base64 is not base64", attribute="data_base64") from None
    if "data" not in event:
        return b""
    data = event["data"]
    if isinstance(data, str) and content_type and not _is_json(content_type):
        return data.encode()
    return exact_json.dumps(data)


def _is_json(content_type: str) -> bool:
    media = content_type.partition(";")[0].strip().lower()
    return media.endswith(("/json", "+json"))
