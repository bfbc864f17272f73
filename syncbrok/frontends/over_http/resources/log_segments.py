"""The sealed segments that a node of a cluster holds, for its peers and for operators: a list, and their bytes.

A node answers from its own files, whoever leads. A segment goes out in pieces that are read in a thread, and the next
one is read once the client has taken nearly all of the one before; so many at a time, and no more.
"""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from aiohttp import web

from syncbrok.frontends.over_http.requests import problems, render
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.middleware import client_of, unread
from syncbrok.frontends.over_http.requests.parameters import whole_number
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.frontends.over_http.shapes.answers import SegmentAnswer, SegmentsAnswer
from syncbrok.model import limits
from syncbrok.model.errors import Overloaded, UnknownSegment
from syncbrok.model.names import SEQUENCE_MAX
from syncbrok.model.tokens import ADMIN

PATH: Final = "/v1/log/segments"
_PIECE_BYTES: Final = 256 * limits.KIB
_MEDIA: Final = "application/octet-stream"


class HeldSegment(NamedTuple):
    """A sealed segment in the file at ``path``; see ``SegmentAnswer``."""

    path: Path
    first: int
    last: int
    bytes: int
    checksum: str


class SegmentHolder(Protocol):
    """A node that holds segments. What is held is asked for in a thread."""

    def held_segments(self) -> Sequence[HeldSegment]:
        """Oldest first. Raises ``OSError``."""
        ...

    def erased_before(self) -> int | None:
        """See ``SegmentsAnswer``."""
        ...

    def held_segment(self, first: int) -> HeldSegment | None:
        """The one that begins with this sequence, if it is here and sealed."""
        ...


def routes(holder: SegmentHolder) -> tuple[Route, ...]:
    """The routes of what a node holds of the log, whether it leads or not."""
    sending = _Sending()

    async def list_them(_context: HttpContext, _request: web.Request) -> web.StreamResponse:
        before = holder.erased_before()
        held = await asyncio.to_thread(holder.held_segments)
        erased = before if holder.erased_before() == before else None
        return render.json(SegmentsAnswer([_shown(one) for one in held], erased))

    async def send(_context: HttpContext, request: web.Request) -> web.StreamResponse:
        asked = request.match_info["first"]
        first = whole_number(asked, 1, SEQUENCE_MAX)
        held = None if first is None else await asyncio.to_thread(holder.held_segment, first)
        if held is None:
            what = f"no sealed segment of this node begins with {asked[:40]!r}"
            raise UnknownSegment(what, mend=f"GET {PATH} lists those that it holds")
        with sending.one_more():
            return await _send(request, held)

    return (
        Route(
            "GET",
            PATH,
            list_them,
            ADMIN,
            "cluster",
            "The sealed segments that this node holds",
            {200: Reply("Oldest first.", SegmentsAnswer)},
            of_node=True,
            of_peers=True,
        ),
        Route(
            "GET",
            f"{PATH}/{{first}}",
            send,
            ADMIN,
            "cluster",
            "A sealed segment, byte for byte; a single range of it with `Range`",
            {
                200: Reply("All of the file.", {"type": "string", "format": "binary"}, _MEDIA, ("ETag",)),
                206: Reply("A part.", {"type": "string", "format": "binary"}, _MEDIA, ("ETag", "Content-Range")),
            },
            (404, 416, 429),
            of_node=True,
            of_peers=True,
        ),
    )


def _shown(held: HeldSegment) -> SegmentAnswer:
    return SegmentAnswer(held.path.name, held.first, held.last, held.bytes, held.checksum)


class _Sending:
    """How many go out now. Two followers that fetch what they miss are served; a crowd is not."""

    def __init__(self) -> None:
        self._count = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Raises ``Overloaded``."""
        if self._count >= limits.segments_sent_max:
            raise Overloaded("enough segments are being sent now", retry_after_s=1)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


async def _send(request: web.Request, held: HeldSegment) -> web.StreamResponse:
    tag = f'"{held.checksum}"'
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
        descriptor = await asyncio.to_thread(os.open, held.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        client.answered()
        raise UnknownSegment(f"retention has just dropped {held.path.name}") from None
    headers = {"ETag": tag, "Accept-Ranges": "bytes", "Content-Type": _MEDIA, "Server": "Syncbrok"}
    answer = web.StreamResponse(status=200, headers=headers)
    if (begin, end) != (0, held.bytes):
        answer.set_status(206)
        answer.headers["Content-Range"] = f"bytes {begin}-{end - 1}/{held.bytes}"
    answer.content_length = end - begin
    try:
        await answer.prepare(request)
        while begin < end and request.method != "HEAD":
            piece = await asyncio.to_thread(os.pread, descriptor, min(_PIECE_BYTES, end - begin), begin)
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
        await asyncio.to_thread(os.close, descriptor)
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
