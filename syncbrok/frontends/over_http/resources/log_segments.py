"""The log as files, for those who read it over the network: a list of its segments, their bytes, their sidecars. And
for the other nodes of a cluster, which fetch what they lack.

A node answers from its own files, whoever leads. Bytes go out in pieces that are read in a thread, and the next one is
read once the client has taken nearly all of the one before; so many at a time, and no more.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import aiofiles
from aiofiles.os import wrap
from aiohttp import web

from syncbrok.frontends.over_http.requests import problems, render
from syncbrok.frontends.over_http.requests.context import Handler, HttpContext
from syncbrok.frontends.over_http.requests.middleware import client_of, unread
from syncbrok.frontends.over_http.requests.parameters import whole_number
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.frontends.over_http.shapes.log_answers import SegmentAnswer, SegmentsAnswer
from syncbrok.model import limits
from syncbrok.model.errors import Draining, Overloaded, UnknownSegment
from syncbrok.model.names import SEQUENCE_MAX
from syncbrok.model.tokens import ADMIN, READ
from syncbrok.model.units import render_time

PATH: Final = "/v1/log/segments"
_PIECE_BYTES: Final = 256 * limits.KIB
_MEDIA: Final = "application/octet-stream"
_OF_NODES: Final = "syncbrok-node "
"""how another node says who it is (``cluster.peer_signature``)"""

_pread = wrap(os.pread)


class HeldSegment(NamedTuple):
    """A segment in the file at ``path``, or its sidecar; see ``SegmentAnswer``. ``checksum`` is empty where there is
    none."""

    path: Path
    first: int
    last: int
    bytes: int
    checksum: str
    sealed: bool = True
    records: int | None = None
    first_time_us: int | None = None
    last_time_us: int | None = None


class ReadableLog(NamedTuple):
    """The log as it may be read: its uuid in hexadecimal, and its segments, oldest first, up to the sequence
    ``durable``."""

    log: str
    durable: int
    segments: Sequence[HeldSegment]


class SegmentHolder(Protocol):
    """A broker or node that holds segments. What is held is asked for in a thread."""

    def held_segments(self) -> Sequence[HeldSegment]:
        """The sealed ones, oldest first. Raises ``OSError``."""
        ...

    def erased_before(self) -> int | None:
        """See ``SegmentsAnswer``."""
        ...

    def readable(self) -> ReadableLog | None:
        """The log up to what is durable; None while it is not open. Raises ``OSError``."""
        ...

    def held_segment(self, first: int) -> HeldSegment | None:
        """The one that begins with this sequence, if it is here, as far as it is durable. Raises ``Gone`` where
        retention has dropped all up to there."""
        ...

    def held_index(self, first: int) -> HeldSegment | None:
        """The sidecar of that one, if it is sealed and has one. Raises as ``held_segment``."""
        ...


def routes(holder: SegmentHolder) -> tuple[Route, ...]:
    """The routes of what is here of the log, whether this is a broker of its own, leads or follows."""
    to_nodes, to_readers = _Sending(limits.segments_sent_max), _Sending(limits.segments_read_max)
    held_segments, readable = wrap(holder.held_segments), wrap(holder.readable)
    held_segment, held_index = wrap(holder.held_segment), wrap(holder.held_index)

    async def list_them(_context: HttpContext, request: web.Request) -> web.StreamResponse:
        before = holder.erased_before()
        if _is_node(request):  # one of an older version would take the open one for sealed
            answer = SegmentsAnswer([_shown(one) for one in await held_segments()])
        else:
            log = await readable()
            if log is None:
                raise Draining("the log is not open here yet")
            answer = SegmentsAnswer([_shown(one) for one in log.segments], log=log.log, durable=log.durable)
        answer.erased_before = before if holder.erased_before() == before else None
        return render.json(answer)

    async def send(_context: HttpContext, request: web.Request) -> web.StreamResponse:
        first = _first(request)
        held = None if first is None else await held_segment(first)
        if held is None:
            raise _unknown(request, "no segment here")
        with (to_nodes if _is_node(request) else to_readers).one_more():
            return await _send(request, held)

    async def send_index(_context: HttpContext, request: web.Request) -> web.StreamResponse:
        first = _first(request)
        held = None if first is None else await held_index(first)
        if held is None:
            raise _unknown(request, "no sealed segment here that has a sidecar")
        with to_readers.one_more():
            return await _send(request, held)

    listed = {200: Reply("Oldest first.", SegmentsAnswer)}
    problems_of_bytes = (404, 410, 412, 416, 429)
    return (
        _route(
            PATH,
            list_them,
            "The segments of the log, as far as it is durable",
            listed,
            (503,),
            of_peers=True,
            operation="list_segments",
        ),
        _route(
            f"{PATH}/{{first}}",
            send,
            "A segment, byte for byte; a single range of it with `Range`",
            _BYTES,
            problems_of_bytes,
            of_peers=True,
            operation="get_segment",
        ),
        _route(
            f"{PATH}/{{first}}/index",
            send_index,
            "The sidecar of a sealed segment: where its records begin; `Range` as of the segment",
            _BYTES,
            problems_of_bytes,
            operation="get_segment_index",
        ),
    )


_BYTES: Final = {
    200: Reply("All of the file.", {"type": "string", "format": "binary"}, _MEDIA, ("ETag",)),
    206: Reply("A part.", {"type": "string", "format": "binary"}, _MEDIA, ("ETag", "Content-Range")),
}


def _route(
    path: str,
    handler: Handler,
    summary: str,
    replies: Mapping[int, Reply],
    may_fail: tuple[int, ...],
    *,
    operation: str,
    of_peers: bool = False,
) -> Route:
    """A route of the log as a whole: for those who may read all of it."""
    return Route(
        "GET",
        path,
        handler,
        READ,
        "log",
        summary,
        replies,
        may_fail,
        or_scope=ADMIN,
        of_node=True,
        of_peers=of_peers,
        operation=operation,
    )


def _is_node(request: web.Request) -> bool:
    return request.headers.get("Authorization", "").lower().startswith(_OF_NODES)


def _first(request: web.Request) -> int | None:
    return whole_number(request.match_info["first"], 1, SEQUENCE_MAX)


def _unknown(request: web.Request, what: str) -> UnknownSegment:
    asked = request.match_info["first"]
    return UnknownSegment(f"{what} begins with {asked[:40]!r}", mend=f"GET {PATH} lists those there are")


def _shown(held: HeldSegment) -> SegmentAnswer:
    return SegmentAnswer(
        held.path.name,
        held.first,
        held.last,
        held.bytes,
        held.checksum or None,
        held.sealed,
        held.records,
        None if held.first_time_us is None else render_time(held.first_time_us),
        None if held.last_time_us is None else render_time(held.last_time_us),
    )


class _Sending:
    """How many go out now: ``most`` are served, a crowd is not."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Raises ``Overloaded``."""
        if self._count >= self._most:
            raise Overloaded("enough segments are being sent now", retry_after_s=1)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


async def _send(request: web.Request, held: HeldSegment) -> web.StreamResponse:
    tag = f'"{held.checksum}"' if held.checksum else ""
    wanted = request.headers.get("If-Match", tag)
    if wanted not in (tag, "*"):
        return problems.answer_status(412, f"{held.path.name} was written anew; its ETag is {tag or 'none'}")
    span = _span(request, held.bytes, tag)
    if span is None:
        response = problems.answer_status(416, f"{held.path.name} has {held.bytes} bytes")
        response.headers["Content-Range"] = f"bytes */{held.bytes}"
        return response
    begin, end = span
    client = client_of(request)
    if not client.may_answer(_PIECE_BYTES, refusable=True):
        raise unread()
    try:
        file = await aiofiles.open(held.path, "rb", buffering=0)
    except FileNotFoundError:
        client.answered()
        raise UnknownSegment(f"retention has just dropped {held.path.name}") from None
    headers = {"Accept-Ranges": "bytes", "Content-Type": _MEDIA, "Server": "Syncbrok"} | ({"ETag": tag} if tag else {})
    answer = web.StreamResponse(status=200, headers=headers)
    if (begin, end) != (0, held.bytes):
        answer.set_status(206)
        answer.headers["Content-Range"] = f"bytes {begin}-{end - 1}/{held.bytes}"
    answer.content_length = end - begin
    try:
        await answer.prepare(request)
        while begin < end and request.method != "HEAD":
            piece = await _pread(file.fileno(), min(_PIECE_BYTES, end - begin), begin)
            if not piece:  # it is shorter than it was; who reads must not take it for whole
                raise ConnectionAbortedError
            await answer.write(piece)
            begin += len(piece)
    except OSError:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError from None
    finally:
        client.answered()
        await file.close()
    return answer


def _span(request: web.Request, size: int, tag: str) -> tuple[int, int] | None:
    """Which bytes are asked for, from and up to; None where the file has none of them. A range that cannot be read, or
    of another file than this one (``If-Range``), is as if it were not there (RFC 9110, 14.2)."""
    try:
        asked = request.http_range
    except ValueError:
        return 0, size
    start, stop = asked.start, asked.stop
    if (start is None and stop is None) or request.headers.get("If-Range", tag) != tag:
        return 0, size
    begin = max(0, size + start) if start is not None and start < 0 else start or 0
    end = size if stop is None else min(stop, size)
    return (begin, end) if begin < end else None
