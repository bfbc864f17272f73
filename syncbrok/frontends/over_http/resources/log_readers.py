"""The named readers of the log: how far each has come, and which of them retention waits for.

Who may read all of the log may say how far it has read. To begin to hold retention back, and to take a reader away,
needs ``admin``: the first fills the disk, the second lets go what somebody has not read.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
from aiohttp import hdrs, web

from syncbrok.frontends.over_http.requests import render
from syncbrok.frontends.over_http.requests.body import read_body
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.middleware import MIDDLEWARE
from syncbrok.frontends.over_http.requests.reach import spoken_by
from syncbrok.frontends.over_http.requests.routes import JSON, Body, Reply, Route
from syncbrok.frontends.over_http.shapes.bodies import LogReaderPlaceBody
from syncbrok.frontends.over_http.shapes.log_answers import LogReaderAnswer, LogReadersAnswer
from syncbrok.model import limits
from syncbrok.model.errors import Forbidden, Malformed
from syncbrok.model.names import SEQUENCE_MAX
from syncbrok.model.tokens import ADMIN, READ, parse_name
from syncbrok.model.units import render_time
from syncbrok.space.operations.log_reader_places import ReaderPlace
from syncbrok.space.reports import LogReaderReport

PATH: Final = "/v1/log/readers"


class LogReaders(Protocol):
    """The readers of the log that a Space keeps."""

    def reports(self) -> Sequence[LogReaderReport]: ...

    def is_held(self, name: str) -> bool:
        """Whether there is a reader of this name that asks to hold retention back."""
        ...

    async def tell(self, place: ReaderPlace) -> LogReaderReport:
        """Take in a reader's place. Raises ``Conflict``, ``LogFull`` and ``LogUnavailable``."""
        ...

    async def forget(self, name: str) -> None:
        """Raises ``UnknownReader``."""
        ...


def routes(readers: LogReaders) -> tuple[Route, ...]:
    """The three routes."""

    async def index(_context: HttpContext, _request: web.Request) -> web.StreamResponse:
        return render.json(LogReadersAnswer([_shown(one) for one in readers.reports()]))

    async def tell(context: HttpContext, request: web.Request) -> web.StreamResponse:
        name = parse_name("reader", request.match_info["reader"])
        body = await read_body(request, limits.json_bytes_max, context.options.body_timeout_s)
        try:
            given = msgspec.json.decode(body or b"{}", type=LogReaderPlaceBody)
        except msgspec.MsgspecError as wrong:
            raise Malformed(f'the body is {{"sequence": N, "hold": BOOL}}, either or both: {wrong}') from None
        if given.sequence is not None and given.sequence > SEQUENCE_MAX:
            raise Malformed(f"sequence is {given.sequence}, more than any log has")
        if given.hold and not readers.is_held(name):
            _check_may_hold(request)
        place = ReaderPlace(name, given.sequence, given.hold, spoken_by(request))
        return render.json(_shown(await readers.tell(place)))

    async def forget(_context: HttpContext, request: web.Request) -> web.StreamResponse:
        await readers.forget(request.match_info["reader"])
        return web.Response(status=204)

    return (
        Route(
            "GET",
            PATH,
            index,
            READ,
            "log",
            "The named readers of the log, and how far each has come",
            {200: Reply("All of them, by name.", LogReadersAnswer)},
            or_scope=ADMIN,
            operation="list_log_readers",
        ),
        Route(
            "PUT",
            f"{PATH}/{{reader}}",
            tell,
            READ,
            "log",
            "Say how far a reader has come; one that is not known yet is made",
            {200: Reply("It is noted.", LogReaderAnswer)},
            (409, 503, 507),
            body=Body({JSON: LogReaderPlaceBody}, required=False),
            or_scope=ADMIN,
            operation="tell_log_reader",
        ),
        Route(
            "DELETE",
            f"{PATH}/{{reader}}",
            forget,
            ADMIN,
            "log",
            "Forget a reader: retention waits for it no more",
            {204: Reply("It is gone.")},
            (404,),
            operation="delete_log_reader",
        ),
    )


def _check_may_hold(request: web.Request) -> None:
    """Raises ``Forbidden`` where the token has not the scope ``admin`` in all queues."""
    token = request.app[MIDDLEWARE].authorize(request.headers.get(hdrs.AUTHORIZATION, ""), ADMIN)
    if token is not None and not token.is_operator:
        what = f"token {token.name!r} is admin in some queues only, and this is about all of them"
        raise Forbidden(f"{what}: it needs the scope 'admin' without queues", scope=ADMIN)


def _shown(one: LogReaderReport) -> LogReaderAnswer:
    return LogReaderAnswer(one.name, one.sequence, one.lag, one.hold, one.holding, render_time(one.heard_us))
