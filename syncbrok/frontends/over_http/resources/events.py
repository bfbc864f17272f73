"""``GET /v1/events``: what happens, live, as Server-Sent Events (WHATWG HTML, section 9.2).

The ``id`` of an event is the sequence of its record, written with the last event of that record. So a client that
resumes with ``Last-Event-ID`` gets whole records; one in which the stream broke comes again as a whole.
"""

from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

import orjson
from aiohttp import web

from syncbrok.frontends.over_http.requests import parameters
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.middleware import SERVER, client_of
from syncbrok.frontends.over_http.requests.parameters import Parameter
from syncbrok.frontends.over_http.requests.reach import check_named, name_seen, narrowed
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.model import limits
from syncbrok.model.errors import Draining, Malformed
from syncbrok.model.names import SEQUENCE_MAX, id_text, parse_queue_name
from syncbrok.model.tokens import READ, Token
from syncbrok.model.units import render_time
from syncbrok.space.queries.events import EventStream
from syncbrok.space.reports import Event

_IDLE_S: Final = 15.0
"""after so long without an event a comment is sent: proxies keep the stream open, and a listener that has gone shows"""
_PIECE_BYTES: Final = 64 * limits.KIB
HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "Server": SERVER,  # the middleware comes too late for a stream
}


async def stream(context: HttpContext, request: web.Request) -> web.StreamResponse:
    queue = _QUEUE.in_query(request)
    if queue is not None:
        check_named(request, queue, READ)
    listener = context.view.listen(
        None if queue is None else parse_queue_name(queue),
        _after(request),
        _RATE.in_query(request),
    )
    response = web.StreamResponse(headers=HEADERS)
    with listener:
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        try:
            await write(request, response, opening(listener.begins_behind))
            await _copy(listener, request, response)
        except ConnectionError:
            # The listener has gone, or has stopped reading. There is nobody to tell.
            if request.transport is not None:
                request.transport.abort()
        except Draining:
            pass  # the threads that read the log have gone before this stream: it ends here
    return response


async def _copy(listener: EventStream, request: web.Request, response: web.StreamResponse) -> None:
    token = narrowed(request)
    async with aclosing(listener.batches(_IDLE_S)) as batches:
        async for batch in batches:
            seen = batch if token is None else _seen(request, batch, token)
            if seen or not batch:
                await write(request, response, _text(seen) if seen else b": still here\n\n")


def _seen(request: web.Request, batch: tuple[Event, ...], token: Token) -> tuple[Event, ...]:
    """The events that a token for some queues may know of, with no name of another token; what is about the stream
    itself is in no queue."""
    some = (one for one in batch if not one.queue or token.may(READ, one.queue))
    return tuple(replace(one, by=name_seen(request, one.by) or "") if one.by else one for one in some)


def opening(sequence: int) -> bytes:
    """The beginning of an event stream that tells what comes behind ``sequence``. An id without data dispatches
    nothing, but a reader that is cut off before the first event goes on from there (WHATWG HTML, 9.2.6)."""
    return b"retry: 2000\nid: %d\n\n" % sequence


async def write(request: web.Request, response: web.StreamResponse, text: bytes) -> None:
    """Write a piece of an event stream; returns when nearly all of it was read. Raises ``ConnectionError`` where the
    client has gone, reads nothing for too long, or leaves too much unread on other connections: it resumes later."""
    await count(request, len(text))
    await write_counted(request, response, text)


async def count(request: web.Request, size_bytes: int) -> None:
    """Count so many bytes as the client's, which ``write_counted`` is to write next. Raises as ``write``."""
    client = client_of(request)
    await client.turn()  # a thousand streams have something to tell in the same moment
    if not client.may_answer(size_bytes, refusable=True):
        raise ConnectionAbortedError


async def write_counted(request: web.Request, response: web.StreamResponse, text: bytes) -> None:
    """See ``count`` and ``write``."""
    try:
        for at in range(0, len(text), _PIECE_BYTES):  # else it would stand in the socket's buffer a second time
            await response.write(text[at : at + _PIECE_BYTES])
    finally:
        client_of(request).answered()


def _after(request: web.Request) -> int | None:
    """The sequence to go on behind. A browser sends the header by itself; ``?after=`` is for the first time."""
    resumed = request.headers.get(_LAST_EVENT_ID.name)
    return _LAST_EVENT_ID.read(resumed) if resumed else _AFTER.in_query(request)


def _sequence(text: str) -> int:
    found = parameters.whole_number(text, 0, SEQUENCE_MAX)
    if found is None:
        raise Malformed(f"Last-Event-ID is the id of an event, a whole number, not {text[:40]!r}")
    return found


def _text(batch: tuple[Event, ...]) -> bytes:
    parts: list[bytes] = []
    for position, event in enumerate(batch):
        if position + 1 == len(batch) or batch[position + 1].id != event.id:
            parts.append(b"id: %d\n" % event.id)
        parts.append(b"event: %s\ndata: %s\n\n" % (event.kind.encode(), orjson.dumps(shown(event))))
    return b"".join(parts)


def shown(event: Event) -> dict[str, Any]:
    """The event as JSON, without fields that do not apply to its kind."""
    members: dict[str, Any] = {"id": event.id, "kind": event.kind, "time": render_time(event.time_us)}
    if event.message is not None:
        members["message"] = id_text(event.message)
    for name in ("queue", "subscriber", "attempt", "status", "reason", "text", "count", "by"):
        value = getattr(event, name)
        if value:
            members[name] = value
    if event.latency_us:
        members["latency_ms"] = round(event.latency_us / 1_000, 3)
    if event.due_us:
        members["next_attempt_at"] = render_time(event.due_us)
    if event.parents:
        members["parents"] = [id_text(parent) for parent in event.parents]
    return members


_QUEUE: Final = parameters.text("queue", "Only what happens in this queue.")
_AFTER: Final[Parameter[int | None]] = Parameter(
    "after", "As Last-Event-ID, for the first time.", parameters.SEQUENCE, _sequence, None
)
_RATE: Final = parameters.number(
    "rate", "At most so many events a second; what is left out is counted. 0: all.", 0, 0, 100_000
)
_LAST_EVENT_ID: Final = Parameter("Last-Event-ID", "Go on after this event.", parameters.SEQUENCE, _sequence, 0)

ROUTES: Final = (
    Route(
        "GET",
        "/v1/events",
        stream,
        "read",
        "events",
        "What happens, live",
        {
            200: Reply(
                "Server-Sent Events without an end. Kinds: published, delivered, skipped, failed, dead, expired, "
                "dropped, complete, replayed, queue, queue_deleted, subscriber, subscriber_deleted, breaker_opened, "
                "breaker_closed (told live only); "
                "gap where some are not told, thinned where `rate` left some out, "
                "cut at the end of a stream that was read too slowly.",
                {"type": "string"},
                "text/event-stream",
            )
        },
        (404, 429, 503),
        query=(_QUEUE, _AFTER, _RATE),
        headers=(_LAST_EVENT_ID,),
        lasts=True,
        narrowed=True,
        operation="stream_events",
    ),
)
