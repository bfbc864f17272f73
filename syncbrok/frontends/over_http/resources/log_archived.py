"""The notes of what a cluster has archived of its log: jobs on any node ask the leader to note it, for all nodes.

The leader answers once a quorum has the lines and its own file has them. One request at a time may wait for that.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
from aiohttp import web

from syncbrok.frontends.over_http.requests import render
from syncbrok.frontends.over_http.requests.body import read_body
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.routes import JSON, Body, Reply, Route
from syncbrok.frontends.over_http.shapes.bodies import ArchivedBody
from syncbrok.frontends.over_http.shapes.log_answers import ArchivedSegmentsAnswer, NotedAnswer
from syncbrok.model import limits
from syncbrok.model.content_digest import CONTENT_DIGEST, content_digest
from syncbrok.model.errors import LogFailed, LogUnavailable, Malformed, Overloaded
from syncbrok.model.tokens import ADMIN

T = TypeVar("T")
PATH: Final = "/v1/log/archived"


class ArchivedSegments(NamedTuple):
    """``log``: its uuid, in hexadecimal. ``lines`` as in the file ``archived``. ``job``: who asks, empty where it does
    not say; ``phase``: a word of ``JobPhase``."""

    log: str
    lines: Sequence[str]
    job: str = ""
    phase: str = "goes_on"


class ArchiveLeader(Protocol):
    """A node that leads. All of it blocks."""

    def archived(self) -> ArchivedSegments:
        """The copies noted of segments that the log still has. Raises ``OSError``."""
        ...

    def note_archived(self, asked: ArchivedSegments) -> int:
        """Note it for all nodes; how many of the lines are new. Raises ``BadSetting``, ``Overloaded`` and ``Conflict``
        where nothing is noted; ``LogFull``, ``LogFailed`` and ``OSError`` where that is not known."""
        ...

    def forget_archived(self) -> None:
        """Take all of it back, on all nodes. Raises as ``note_archived``."""
        ...


def routes(leader: ArchiveLeader) -> tuple[Route, ...]:
    """The routes of a node that leads; one that follows passes such requests on to it."""
    waiting = _Waiting()

    async def show(_context: HttpContext, _request: web.Request) -> web.StreamResponse:
        found = await waiting.until_done(leader.archived)
        return render.json(ArchivedSegmentsAnswer(found.log, list(found.lines)))

    async def note(context: HttpContext, request: web.Request) -> web.StreamResponse:
        body = await read_body(request, limits.json_bytes_max, context.options.body_timeout_s)
        check_digest(request, body)
        try:
            given = msgspec.json.decode(body, type=ArchivedBody)
        except msgspec.MsgspecError as wrong:
            raise Malformed(f'the body is {{"log": UUID, "lines": [...]}}: {wrong}') from None
        asked = ArchivedSegments(given.log, given.lines, given.job, given.phase)
        return render.json(NotedAnswer(await waiting.until_done(lambda: leader.note_archived(asked))))

    async def forget(_context: HttpContext, _request: web.Request) -> web.StreamResponse:
        await waiting.until_done(leader.forget_archived)
        return web.Response(status=204)

    return (
        Route(
            "GET",
            PATH,
            show,
            ADMIN,
            "cluster",
            "What of the log is noted as archived",
            {200: Reply("Of segments that the log still has.", ArchivedSegmentsAnswer)},
            (429, 503),
            of_peers=True,
            operation="get_archived",
        ),
        Route(
            "POST",
            PATH,
            note,
            ADMIN,
            "cluster",
            "Note that segments are archived, for all nodes: retention may then drop them",
            {200: Reply("Noted, by a quorum and by the leader.", NotedAnswer)},
            (409, 429, 503, 507),
            body=Body({JSON: ArchivedBody}),
            of_peers=True,
            operation="note_archived",
        ),
        Route(
            "DELETE",
            PATH,
            forget,
            ADMIN,
            "cluster",
            "Take back all that is noted as archived: the archive is lost",
            {204: Reply("Nothing is noted.")},
            (429, 503),
            operation="forget_archived",
        ),
    )


class _Waiting:
    """Lets one request at a time wait in a thread: for an engine without a quorum it may take minutes."""

    def __init__(self) -> None:
        self._busy = False

    async def until_done(self, work: Callable[[], T]) -> T:
        """Raises ``Overloaded`` while another one waits, what ``work`` raises, and ``LogUnavailable`` for errors of the
        disk or the log."""
        if self._busy:
            raise Overloaded("another request of this kind is being worked on", retry_after_s=1)
        self._busy = True
        try:
            return await asyncio.to_thread(work)
        except (OSError, LogFailed) as problem:
            what = f"what is archived could not be noted or read: {problem}"
            raise LogUnavailable(what, mend="ask again: what is noted already is noted once") from problem
        finally:
            self._busy = False


def check_digest(request: web.Request, body: bytes) -> None:
    """Raises ``Malformed`` where the body is not what its ``Content-Digest`` says, with which a node has signed it."""
    given = request.headers.get(CONTENT_DIGEST)
    if given is not None and given != content_digest(body):
        raise Malformed(f"the body is not what {CONTENT_DIGEST} says; expected sha-256=:BASE64: of it")
