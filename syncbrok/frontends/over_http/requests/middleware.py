"""Middleware that every request passes. The request must be meant for this broker, no page of another site may act for
the browser's user, the token must fit, and all that is asked must be known to the route. Any failure becomes a problem
document.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final, Protocol, cast

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from multidict import istr

from syncbrok.delivery.leader_lease import SINGLE_NODE, LeaderLease
from syncbrok.frontends.over_http.requests import problems
from syncbrok.frontends.over_http.requests.auth import Tokens, check_queue, now_us
from syncbrok.frontends.over_http.requests.authorities import Authorities
from syncbrok.frontends.over_http.requests.body import refuse_no_json
from syncbrok.frontends.over_http.requests.context import LEADER, SYNC, HttpOptions
from syncbrok.frontends.over_http.requests.parameters import check_query
from syncbrok.frontends.over_http.requests.paths import queue_of
from syncbrok.frontends.over_http.requests.payload import PiecewisePayload
from syncbrok.frontends.over_http.requests.reach import LOCAL, LOOKED_ONLY, NARROWED, SPOKEN_BY, spoken_by
from syncbrok.frontends.over_http.requests.refused_tokens import RefusedTokens
from syncbrok.frontends.over_http.requests.routes import JSON, Route
from syncbrok.frontends.over_http.requests.scrapes import Scrapes
from syncbrok.model.content_digest import CONTENT_DIGEST
from syncbrok.model.errors import Forbidden, NoQuorum, Overloaded, SyncbrokError, Unauthorized
from syncbrok.model.tokens import ADMIN, PUBLISH, Token

_log = logging.getLogger(__name__)

SERVER = "Syncbrok"
"""instead of the names and versions of what it is built with"""
_JSON_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
JSON_LINES = "".join(f"{name}: {value}\r\n" for name, value in _JSON_HEADERS.items())
"""of every answer that is JSON: nobody keeps it, nobody takes it for a page"""


def put_common_headers(response: web.StreamResponse) -> None:
    """Say what every answer says, and what every JSON does."""
    response.headers["Server"] = SERVER
    if response.content_type.endswith("json"):
        for name, value in _JSON_HEADERS.items():
            response.headers.setdefault(name, value)


_FETCH_SITE = istr("Sec-Fetch-Site")
_COUNTED = (bytes, PiecewisePayload)
_OTHER_SITES = ("cross-site", "same-site")
_READING = ("GET", "HEAD")
_ALERTED = (429, 500, 503)
"""statuses that are shown before there was one: an alert does not see the first of a counter that comes with it"""
_SAYS_HOW_IT_STANDS = (404, 409, 410, 422)
"""no such queue, no such lease: who led last would say so of what the next leader has been told since"""
_STRICT = "/v1/"
"""The routes of ours. The original's never looked at a query, and what asks for the page or the health may add one."""
_ANY_HOST = ("/healthz", "/readyz", "/metrics")
"""Whatever watches a broker calls it by an address, or a name, of its own."""
_OWN_TARGETS = ("/", "*")
"""how a target begins that names no authority (RFC 9112, 3.2)"""
_PREFLIGHT_S = 600
_READABLE = "Location, Retry-After, Syncbrok-Sync, WWW-Authenticate"
"""headers of an answer that a page of ``http.origins`` may read"""


class Requester(Protocol):
    """The sender of a request as its connection knows it (``connection.HttpConnection``)."""

    payer: str
    """who answers for the bytes of the request under way"""

    def speaks_for(self, token: str | None, forwarded: str) -> None: ...

    def has_turn(self) -> bool: ...

    async def turn(self, *, goes_on: bool = False) -> None: ...

    def may_ask(self) -> bool: ...

    def may_answer(self, amount: int, *, refusable: bool) -> bool: ...

    def answered(self) -> None: ...

    def message_taken(self) -> None: ...

    def ends_with_client(self) -> None: ...

    async def until_sent(self) -> None: ...


def client_of(request: web.Request) -> Requester:
    return cast("Requester", request.protocol)


def check_unread(request: web.Request) -> None:
    """Raises ``Overloaded`` where the client leaves too much unread to be answered more."""
    if not client_of(request).may_ask():
        raise unread()


def check_lease(lease: LeaderLease) -> None:
    """Raises ``NoQuorum`` where another broker may lead by now."""
    if not lease.holds():
        raise no_quorum()


def no_quorum() -> NoQuorum:
    return NoQuorum("this node led last and has no answer of a quorum now: what it knows may be old")


def unread() -> Overloaded:
    return Overloaded("too much of what this client was answered is still unread; read it, then ask again")


class HttpMiddleware:
    """``routes``: handler -> its row of the table, for what it is guarded by. ``answers`` counts by status.
    ``lease``: what is asked of the log is answered while it holds."""

    def __init__(self, options: HttpOptions, routes: Mapping[Handler, Route], lease: LeaderLease = SINGLE_NODE) -> None:
        self.answers: Counter[int] = Counter(dict.fromkeys(_ALERTED, 0))
        self.refused_tokens = RefusedTokens()
        self.scrapes = Scrapes()
        self.configured: tuple[Token, ...] = options.tokens
        """the tokens that the configuration names"""
        self._created: tuple[Token, ...] = ()
        self._tokens = _tokens_of(options.tokens)
        self._expiry_us = 0
        """when the next token expires; 0: none will"""
        self._is_peer = options.is_peer
        self._peer_challenge = options.peer_challenge
        self._any_host_with_tokens = not options.hosts
        self._authorities = Authorities(
            (*options.hosts, *options.machine_names),
            options.origins,
            any_host=bool(options.tokens) and self._any_host_with_tokens,
        )
        self._routes = routes
        self._sync = options.sync
        self._leader_url = options.leader_url
        self._lease = None if lease is SINGLE_NODE else lease
        self._under_way: dict[int, tuple[web.Request, Route]] = {}
        """by ``id``: what asks for a token, where some are set, and has not been answered; with the route it takes"""

    def set_tokens(self, tokens: Sequence[Token]) -> None:
        """Replace the configured tokens. Requests under way that would no longer be let in are ended, with their token
        or, where these are the first, without one: a stream lasts for days, and an operator who closes a door means at
        once."""
        self.configured = (*tokens,)
        self._tokens_changed()

    def set_created(self, tokens: Sequence[Token]) -> None:
        """As ``set_tokens``, those that were created."""
        self._created = (*tokens,)
        self._tokens_changed()

    def let_end(self, request: web.Request) -> None:
        """Do not end this request, whatever becomes of its token: it is the one that changes them, and is answered."""
        self._under_way.pop(id(request), None)

    @property
    def configures_operator(self) -> bool:
        """Whether one that is configured may create others."""
        return any(one.is_operator for one in self.configured)

    def check_expired(self) -> None:
        """End the requests under way whose token has expired. Called about once a second."""
        if self._expiry_us and self._expiry_us <= now_us():
            self._tokens_changed()

    def _tokens_changed(self) -> None:
        tokens = (*self._created, *self.configured)
        self._tokens = _tokens_of(tokens)
        self._expiry_us = 0 if self._tokens is None else self._tokens.next_expiry_us()
        self._authorities.any_host = bool(tokens) and self._any_host_with_tokens
        for request, route in list(self._under_way.values()):
            try:
                self._check_token(request, route)
            except SyncbrokError:
                if request.transport is not None:
                    request.transport.abort()

    def as_aiohttp(self) -> Middleware:
        """As ``web.Application`` takes it."""

        @web.middleware
        async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
            client = client_of(request)
            response = await self._answer(request, handler, client)
            body = None if response.prepared else getattr(response, "body", None)
            if isinstance(body, _COUNTED) and not client.may_answer(
                len(body), refusable=request.method in _READING and request.path not in _ANY_HOST
            ):
                response = problems.answer(unread())
            self.answers[response.status] += 1
            if not response.prepared:  # an event stream is under way already
                put_common_headers(response)
            return response

        return middleware

    async def allow_reading(self, request: web.Request, response: web.StreamResponse) -> None:
        """Let pages of ``http.origins``, and no others, read the answer (CORS). Called before its headers go out."""
        origin = request.headers.get("Origin")
        if origin is not None and self._authorities.trusts(origin):
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = _READABLE
            response.headers.add("Vary", "Origin")

    async def name_leader(self, _request: web.Request, response: web.StreamResponse) -> None:
        """Say on the answer who leads: this broker. Called before its headers go out."""
        response.headers[LEADER] = self._leader_url

    def authorize(
        self, authorization: str, scope: str, or_scope: str | None = None, queue: str | None = None
    ) -> Token | None:
        """The token, None where there are none. Raises ``Unauthorized`` or ``Forbidden`` where there are and this one
        does not do (in ``queue``)."""
        return None if self._tokens is None else self._tokens.check(authorization, scope, or_scope, queue)

    def narrows(self, authorization: str) -> bool:
        """Whether this is a token that is for some queues only."""
        return self._tokens is not None and self._tokens.narrows(authorization)

    def answers_for(self, host: str) -> bool:
        """Whether the value of a ``Host`` header names this broker."""
        return self._authorities.answers_for(host)

    def _check_token(self, request: web.Request, route: Route) -> Token | None:
        if self._tokens is None or route.scope is None:
            return None
        authorization = request.headers.get("Authorization", "")
        digest = request.headers.get(CONTENT_DIGEST, "")
        if route.of_peers and self._is_peer(authorization, request.method, request.path, digest):
            return None
        token = self._tokens.check(authorization, route.scope, route.or_scope)
        if token.narrowed and token.reach(route.scope, route.or_scope) is not None:
            _check_reach(request, route, token)
        return token

    async def _answer(self, request: web.Request, handler: Handler, client: Requester) -> web.StreamResponse:
        route = self._routes.get(request.match_info.handler)
        try:
            if not client.has_turn():
                await client.turn()
            self._check_source(request, route)
            if request.method == "OPTIONS" and self._is_preflight(request):
                return _preflight(request)
            await self._let_in(request, route, client)
            return await self._handled(request, route, handler)
        except SyncbrokError as error:
            response = problems.answer(error)
            if response.status in _SAYS_HOW_IT_STANDS and self._may_be_old(route):
                response = problems.answer(no_quorum())
            if problems.comes_again_if_cut_off(request, response.status) and request.transport is not None:
                request.transport.close()
        except web.HTTPException as error:
            return problems.from_aiohttp(error, request)
        except Exception as error:  # noqa: BLE001 (whatever it is, the client gets an answer and the log the trace)
            if isinstance(error, ConnectionResetError) and _has_gone(request):
                return web.Response()  # before its stream began; nobody reads this, and nothing is wrong
            response = problems.answer(problems.unforeseen(request.method, request.path, error))
        finally:
            self._under_way.pop(id(request), None)
        if route is not None:
            response.headers.update(self._said_besides(route, response.status))
        return response

    async def _let_in(self, request: web.Request, route: Route | None, client: Requester) -> None:
        """As ``_check_route``; a request that its token does not let in is counted, logged, and refused when it should
        be answered."""
        try:
            self._check_route(request, route, client)
        except (Unauthorized, Forbidden) as refused:
            asks_for_challenge = type(refused) is Unauthorized and route is not None and route.of_peers
            if not asks_for_challenge:
                delay_s = self.refused_tokens.note(refused, client.payer, request.method, request.path)
                if delay_s:
                    await asyncio.sleep(delay_s)
            raise

    def _said_besides(self, route: Route, status: int) -> Mapping[str, str]:
        """Headers of a problem that this route answers."""
        if route.of_peers and status == HTTPStatus.UNAUTHORIZED:
            return self._peer_challenge()
        return {SYNC: self._sync} if route.scope == PUBLISH else {}

    async def _handled(self, request: web.Request, route: Route | None, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if not response.prepared:
            self._check_lease(request, route)  # again: what was read is of a time when nobody else led
        if route is not None and route.scope == ADMIN and request.method not in _READING and response.status < 400:
            told = {"by": spoken_by(request), "method": request.method, "path": request.path[:200]}
            dry_run = {"dry_run": True} if request.get(LOOKED_ONLY) else {}
            _log.info("syncbrok.http.managed", extra={**told, "status": response.status, **dry_run})
        return response

    def _check_route(self, request: web.Request, route: Route | None, client: Requester) -> None:
        """Check the sender, and that it may make this request now. Raises ``SyncbrokError``."""
        named = request.headers.getall(hdrs.X_FORWARDED_FOR, ())
        forwarded = ",".join(named) if named else ""
        try:
            token = None if route is None else self._check_token(request, route)
        except (Unauthorized, Forbidden):
            client.speaks_for(None, forwarded)
            raise
        client.speaks_for(None if token is None else token.name, forwarded)
        if route is None:
            return
        request[SPOKEN_BY] = LOCAL if token is None else token.name
        if route.scope is not None:
            self._under_way[id(request)] = (request, route)
        self._check_lease(request, route)
        if route.path not in _ANY_HOST and route.scope is not None and request.method in _READING:
            check_unread(request)
        if route.lasts:
            client.ends_with_client()
        if request.query_string and route.path.startswith(_STRICT):
            check_query(request, [one.name for one in route.query])

    def _check_lease(self, request: web.Request, route: Route | None) -> None:
        """Raises ``NoQuorum`` for what is read of the log, where another broker may lead by now."""
        if request.method in _READING and self._may_be_old(route):
            raise no_quorum()

    def _may_be_old(self, route: Route | None) -> bool:
        """Whether the route is about the log, and another broker may lead by now."""
        if self._lease is None or route is None or route.scope is None or route.of_node:
            return False
        return not self._lease.holds()

    def _check_source(self, request: web.Request, route: Route | None) -> None:
        """Which name the request is for, and which page it comes from. Raises ``ClientFault``."""
        headers = request.headers
        hosts = headers.getall(hdrs.HOST, [])
        if route is None or route.path not in _ANY_HOST:
            self._authorities.check_host(hosts, optional=request.version < (1, 1))
            if not request.raw_path.startswith(_OWN_TARGETS):  # "http://name/path": the name is whom it is for
                self._authorities.check_name(request.url.raw_authority)
        origins = headers.getall(hdrs.ORIGIN, ())
        if origins:
            self._authorities.check_origin(", ".join(origins), hosts[0] if hosts else "")
            if route is not None and route.body is not None and [*route.body.media] == [JSON]:
                refuse_no_json(request)
            return
        # Older browsers, and requests that carry no Origin, say at least whether another site has sent them.
        if headers.get(_FETCH_SITE) not in _OTHER_SITES:
            return
        if request.method not in _READING or hdrs.UPGRADE in headers:
            raise Forbidden("a page of another site may not act here")

    def _is_preflight(self, request: web.Request) -> bool:
        """Whether a browser asks if a page of ``http.origins`` may send a request (CORS)."""
        asks = "Access-Control-Request-Method" in request.headers
        return asks and self._authorities.trusts(request.headers.get("Origin", ""))


def _check_reach(request: web.Request, route: Route, token: Token) -> None:
    """Raises ``Forbidden`` for what is not for a token of some queues; else the handler gets to know of it."""
    scope = route.scope or ""
    if "queue" in request.match_info:
        check_queue(token, queue_of(request), scope, route.or_scope)
    elif not route.narrowed:
        what = f"token {token.name!r} is for some queues only, and this is about all of them"
        raise Forbidden(f"{what}: it needs the scope {scope!r} without queues", scope=scope)
    request[NARROWED] = token


def _tokens_of(tokens: Sequence[Token]) -> Tokens | None:
    """None where everybody may do everything."""
    return Tokens(tokens) if tokens else None


def _has_gone(request: web.Request) -> bool:
    """Whether the client has closed the connection."""
    return request.transport is None or request.transport.is_closing()


def _preflight(request: web.Request) -> web.Response:
    headers = {
        "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
        "Access-Control-Allow-Headers": request.headers.get("Access-Control-Request-Headers", "Content-Type"),
        "Access-Control-Max-Age": str(_PREFLIGHT_S),
    }
    return web.Response(status=204, headers=headers)


MIDDLEWARE: Final = web.AppKey("middleware", HttpMiddleware)
