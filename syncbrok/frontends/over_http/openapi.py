"""``/openapi.json`` (OpenAPI 3.1), made of the same rows the routes are registered from."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from types import GenericAlias
from typing import Any, Final

import orjson
from aiohttp import web

import syncbrok
from syncbrok.frontends.over_http.requests import problems
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.parameters import SEQUENCE, Parameter
from syncbrok.frontends.over_http.requests.routes import JSON, Reply, Route, Shape
from syncbrok.frontends.over_http.schemas import QUEUE_NAME, SUBSCRIBER_NAME, components, reference
from syncbrok.model.tokens import ANY_SCOPE

ALSO: Final = "x-also-takes"
"""of a request's body: further media types, as ``content`` has them"""
_IN_PATH: Final = re.compile(r"\{(\w+)\}")
_PATH_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "queue": QUEUE_NAME,
    "subscriber": SUBSCRIBER_NAME,
    "id": {"type": "string", "format": "uuid"},
    "job": {"type": "string"},
    "lease": {"type": "string"},
    "token": {"type": "string"},
    "reader": {"type": "string"},
    "first": SEQUENCE,
}


def route(others: Sequence[Route]) -> Route:
    """The route of the document that describes ``others`` and itself.

    The document is made when it is asked for, and kept: it takes some 40 ms of a processor, which most brokers need not
    spend at their start. A thread makes it, so the loop goes on; two who ask at once may both have it made.
    """
    text = b""

    async def show(_context: HttpContext, _request: web.Request) -> web.StreamResponse:
        nonlocal text
        text = text or await asyncio.to_thread(lambda: orjson.dumps(describe((*others, own))))
        return web.Response(body=text, headers={"Content-Type": JSON})

    own = Route(
        "GET",
        "/openapi.json",
        show,
        None,
        "health",
        "This description",
        {200: Reply("OpenAPI 3.1.", {"type": "object"})},
        operation="get_openapi",
    )
    return own


def describe(routes: Sequence[Route]) -> dict[str, Any]:
    """The OpenAPI document of ``routes``."""
    paths: dict[str, dict[str, Any]] = {}
    for one in filter(_is_described, routes):
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Syncbrok",
            "version": syncbrok.__version__,
            "description": "A message broker that delivers a message only after its parents are complete.",
        },
        "servers": [{"url": "./", "description": "The broker that serves this description, below the same path."}],
        "paths": paths,
        "components": {
            "schemas": components(_shapes(filter(_is_described, routes))),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(one: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": one.operation,
        "tags": [one.tag],
        "summary": one.summary,
        "parameters": [
            *(_in_path(name) for name in _IN_PATH.findall(one.path)),
            *(_parameter(given, "query") for given in one.query),
            *(_parameter(given, "header") for given in one.headers),
        ],
        "responses": _responses(one),
    }
    if one.body is not None:
        operation["requestBody"] = {
            "required": one.body.required,
            "content": _content(one.body.media),
            **({"description": one.body.doc} if one.body.doc else {}),
            **({ALSO: _content(one.body.also)} if one.body.also else {}),
        }
    if one.scope is not None:
        # Or no token at all: a broker without configured tokens asks for none.
        scopes = [[scope] for scope in (one.scope, one.or_scope) if scope and scope != ANY_SCOPE]
        operation["security"] = [{}, *({"token": some} for some in scopes or [[]])]
    return operation


def _is_described(one: Route) -> bool:
    return bool(one.operation)


def _content(media: Mapping[str, Shape]) -> dict[str, Any]:
    return {name: {"schema": _schema(shape)} for name, shape in media.items()}


def _responses(one: Route) -> dict[str, Any]:
    common = (400, 401, 403, 421, 429, 500, 503) if one.scope is not None else (500,)
    of_bodies = (408, 413, 415) if one.body is not None else ()
    responses = {str(status): _reply(reply) for status, reply in one.replies.items()}
    for status in sorted({*common, *of_bodies, *one.problems} - set(one.replies)):
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {problems.CONTENT_TYPE: {"schema": _schema(problems.ProblemAnswer)}},
        }
    return responses


def _reply(reply: Reply) -> dict[str, Any]:
    shown: dict[str, Any] = {"description": reply.doc}
    if reply.shape is not None:
        shown["content"] = _content({reply.media: reply.shape, **reply.also})
    if reply.headers:
        shown["headers"] = {name: {"schema": {"type": "string"}} for name in reply.headers}
    return shown


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS[name]}


def _parameter(given: Parameter[Any], where: str) -> dict[str, Any]:
    return {
        "name": given.name,
        "in": where,
        "description": given.doc,
        "required": given.required,
        "schema": given.schema,
    }


def _schema(shape: Shape) -> Mapping[str, Any]:
    if isinstance(shape, GenericAlias):
        return {"type": "array", "items": reference(*shape.__args__)}
    return reference(shape) if isinstance(shape, type) else shape


def _shapes(routes: Iterable[Route]) -> Iterator[type]:
    """Every type that ``routes`` take or answer with."""
    yield problems.ProblemAnswer
    for one in routes:
        of_body = () if one.body is None else (*one.body.media.values(), *one.body.also.values())
        for shape in (*of_body, *(reply.shape for reply in one.replies.values())):
            if isinstance(shape, GenericAlias):
                yield from shape.__args__
            elif isinstance(shape, type):
                yield shape
