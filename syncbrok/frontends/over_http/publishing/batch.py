"""Publishing many messages as one unit: all of it is accepted or none, with one fsync (RULES 5)."""

from collections.abc import Generator
from typing import Any, Final

import numpy as np
from aiohttp import hdrs, web
from multidict import CIMultiDict

from syncbrok.frontends.over_http.publishing import cloud_events, json_array, publish
from syncbrok.frontends.over_http.publishing.cloud_events import Cause
from syncbrok.frontends.over_http.publishing.headers import check_headers_size, check_parents_count
from syncbrok.frontends.over_http.publishing.ndjson import refused, unit_in_steps
from syncbrok.frontends.over_http.requests.body import read_body
from syncbrok.frontends.over_http.requests.context import SYNC, HttpContext, HttpOptions
from syncbrok.frontends.over_http.requests.exact_json import without_mark
from syncbrok.frontends.over_http.requests.paths import queue_of
from syncbrok.frontends.over_http.requests.problems import UnsupportedMedia
from syncbrok.frontends.over_http.requests.reach import check_parents
from syncbrok.frontends.over_http.requests.routes import JSON, Body, Reply, Route
from syncbrok.frontends.over_http.requests.time_slices import at_once, in_slices
from syncbrok.frontends.over_http.shapes.answers import BatchAnswer, MistakeAnswer
from syncbrok.frontends.over_http.shapes.bodies import LineBody
from syncbrok.model import limits
from syncbrok.model.errors import ClientFault, Malformed, TooLarge, UnknownParent
from syncbrok.model.message import Message
from syncbrok.model.names import MessageId, QueueName, id_text
from syncbrok.space.channels import Accepted, Publish

NDJSON: Final = "application/x-ndjson"
CLOUD_EVENTS: Final = "application/cloudevents-batch+json"
_MEDIA: Final = (NDJSON, JSON, CLOUD_EVENTS)

_ID_LINE: Final = b'"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx",'
_ID_PARTS: Final = ((1, 0, 8), (10, 8, 4), (15, 12, 4), (20, 16, 4), (25, 20, 12))
"""(place in the line, place among the digits, how many)"""
_SMALL_BYTES: Final = 4 * limits.KIB
"""a batch of so many is taken apart in less than a millisecond, whatever its lines are"""
_FEW: Final = 8
_PER_MESSAGE: Final = "idempotency-key"
_PER_MESSAGE_PREFIXES: Final = ("syncbrok-", "ce-")


async def publish_batch(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """``POST /v1/queues/{queue}/messages:batch``: 201, 200 where every line was known, 202 under a weaker policy."""
    queue = queue_of(request)
    _refuse_headers(request)
    options = context.options
    media = request.headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower()
    if media not in _MEDIA:
        raise UnsupportedMedia(
            f"a batch is {NDJSON}, {JSON} (an array) or {CLOUD_EVENTS}, not {media[:80] or 'without Content-Type'!r}",
            expected=[*_MEDIA],
        )
    body = without_mark(await read_body(request, options.batch_bytes_max, options.body_timeout_s))
    if media == JSON and not json_array.begins_array(body):
        raise UnsupportedMedia(f"a batch that is {JSON} is an array, [...]; one object a line is {NDJSON}")
    if media != CLOUD_EVENTS:
        is_small = len(body) <= _SMALL_BYTES
        steps = _steps(queue, body, media, options)
        del body  # what is made of it for the log takes as much again
        receipt = await _put(context, request, at_once(steps) if is_small else await in_slices(request, steps))
    elif messages := await _events(body, context):
        receipt = await _put(context, request, Publish.of(queue, messages))
    else:  # of CloudEvents an empty batch is one (JSON format 4); nothing is new
        context.view.queue(queue)
        receipt = Accepted(0, b"", options.sync)
    headers = CIMultiDict({"Content-Type": JSON, SYNC: receipt.sync})
    return web.Response(status=publish.status_of(receipt), body=ids_document(receipt.id_bytes), headers=headers)


def _steps(queue: QueueName, body: bytes, media: str, options: HttpOptions) -> Generator[None, None, Publish]:
    bounds = options.batch_lines_max, options.content_bytes_max, options.parents_max
    return unit_in_steps(queue, body, *bounds) if media == NDJSON else _array_in_steps(queue, body, *bounds)


def _array_in_steps(queue: QueueName, body: bytes, *bounds: int) -> Generator[None, None, Publish]:
    """The unit that the elements of an array are. The array is let go once there are lines of it."""
    lines = yield from json_array.lines_in_steps(body)
    del body
    return (yield from unit_in_steps(queue, lines, *bounds))


def ids_document(ids: bytes) -> bytes:
    """``{"ids": [...]}`` with ``names.id_text`` of each 16 bytes, all at once: 0.05 us each, where one after the other
    takes ten times as long."""
    count = len(ids) // 16
    if count <= _FEW:  # below that making arrays takes longer than all the rest
        named = '","'.join([id_text(MessageId(ids[at : at + 16])) for at in range(0, len(ids), 16)])
        return f'{{"ids":["{named}"]}}'.encode() if ids else b'{"ids":[]}'
    digits = np.frombuffer(ids.hex().encode(), np.uint8).reshape(count, 32)
    lines = np.frombuffer(bytearray(_ID_LINE * count), np.uint8).reshape(count, len(_ID_LINE))
    for line_at, digits_at, width in _ID_PARTS:
        lines[:, line_at : line_at + width] = digits[:, digits_at : digits_at + width]
    return b'{"ids":[' + lines.tobytes()[:-1] + b"]}"


def _refuse_headers(request: web.Request) -> None:
    """Raises ``Malformed`` for headers of a single publish, which would silently do nothing here: the lines say it."""
    for name in request.headers:
        low = name.lower()  # programs write names as they like, proxies often in lower case
        if low == _PER_MESSAGE or low.startswith(_PER_MESSAGE_PREFIXES):
            raise Malformed(f"{name[:80]} is for one message; in a batch each line says it", header=name[:80])


async def _put(context: HttpContext, request: web.Request, unit: Publish) -> Accepted:
    """The receipt of ``unit``. Errors name its line counted from 1; the Space counts from 0."""
    try:
        await check_parents(context, request, unit)
        accepted: Accepted = await context.channels.messages.put(unit)
    except ClientFault as error:
        position = error.members.get("line")
        if not isinstance(position, int):
            raise
        raise _at_line(error, position) from None
    return accepted


def _at_line(error: ClientFault, position: int) -> ClientFault:
    """``error`` as one of the line at ``position``, counted from 0."""
    return type(error)(f"line {position + 1}: {error.detail}", **error.members | {"line": position + 1})


async def _events(body: bytes, context: HttpContext) -> tuple[Message, ...]:
    """The events of a CloudEvents batch. ``causationid`` may name an earlier event of the same batch."""
    options = context.options
    events = _load(body, options.batch_lines_max)
    messages: list[Message] = []
    known: dict[str, int] = {}
    mistakes: list[MistakeAnswer] = []
    unknown: ClientFault | None = None
    for position, event in enumerate(events):
        try:
            message, identity = cloud_events.from_json(event)
            check_headers_size(message.headers)
            if identity.cause is not None:
                parents = await _parents(identity.cause, known, context)
                check_parents_count(len(parents), options.parents_max)
                message = message._replace(parents=parents)
        except UnknownParent as error:
            unknown = unknown or _at_line(error, position)
            continue
        except ClientFault as error:
            mistakes.append({"line": position + 1, "detail": error.detail})
            continue
        if len(message.content) > options.content_bytes_max:
            raise TooLarge(
                f"event {position + 1}: content may have {options.content_bytes_max} bytes, this has more",
                line=position + 1,
                bytes_max=options.content_bytes_max,
            )
        known.setdefault(identity.key, position)
        messages.append(message)
    if mistakes:
        raise refused(mistakes)
    if unknown:
        raise unknown
    return tuple(messages)


def _load(body: bytes, events_max: int) -> list[Any]:
    events = cloud_events.load(body)
    if not isinstance(events, list):
        raise Malformed("a CloudEvents batch is a JSON list of events")
    if len(events) > events_max:
        raise TooLarge(f"a batch may have {events_max} events, this one has {len(events)}", lines_max=events_max)
    return events


async def _parents(cause: Cause, known: dict[str, int], context: HttpContext) -> tuple[MessageId | int, ...]:
    position = known.get(cloud_events.key_of(*cause))
    return await cloud_events.resolve(cause, context.view) if position is None else (position,)


ROUTES: Final = (
    Route(
        "POST",
        "/v1/queues/{queue}/messages:batch",
        publish_batch,
        "publish",
        "messages",
        "Publish a batch, all or nothing",
        {
            200: Reply("Every line was known by its idempotency key.", BatchAnswer, headers=(SYNC,)),
            201: Reply("Written and fsynced as one unit.", BatchAnswer, headers=(SYNC,)),
            202: Reply("Accepted under a weaker policy.", BatchAnswer, headers=(SYNC,)),
        },
        publish.PROBLEMS,
        body=Body(
            {JSON: list[LineBody]},
            doc=f"{JSON}: an array of lines; `#n` names the n-th, counted from 1. Also {NDJSON}: one such object a "
            f"line, no empty lines; and {CLOUD_EVENTS}.",
            also={NDJSON: LineBody, CLOUD_EVENTS: {"type": "array", "items": {"type": "object"}}},
        ),
        bytes_max="batch_bytes_max",
        operation="publish_batch",
    ),
)
