"""A route as one row: what registers it, what guards it and what describes it in ``/openapi.json`` are the same."""

from collections.abc import Mapping
from types import GenericAlias
from typing import Any, Final, NamedTuple

from syncbrok.frontends.over_http.requests.context import Handler
from syncbrok.frontends.over_http.requests.parameters import Parameter

JSON: Final = "application/json"

Shape = type | GenericAlias | Mapping[str, Any]
"""a type of ``shapes``, a list of one, or JSON Schema where there is none"""


class Body(NamedTuple):
    """The bodies that a route takes: media type -> what it looks like."""

    media: Mapping[str, Shape]
    required: bool = True
    doc: str = ""
    also: Mapping[str, Shape] = {}
    """media types that a generator of clients makes nothing of: any at all, lines of JSON, a second list. A client made
    with them could not send what stands in ``media`` either"""


BYTES: Final = "application/octet-stream"
ANY: Final = "*/*"
CONTENT: Final[Mapping[str, Any]] = {"type": "string", "format": "binary"}
"""of a message: any bytes"""


class Reply(NamedTuple):
    """An answer that is no problem. ``also``: as a ``Body`` has it."""

    doc: str
    shape: Shape | None = None
    media: str = JSON
    headers: tuple[str, ...] = ()
    also: Mapping[str, Shape] = {}


class Route(NamedTuple):
    """A route. ``scope``: the scope that a token needs, None for routes open to everybody. ``problems``: statuses of
    its errors besides those of every route (400, 401, 403, 500) and of every route with a body (408, 413, 415).
    ``bytes_max``: the field of ``HttpOptions`` that bounds the body, ``""`` where the body is settings or nothing."""

    method: str
    path: str
    handler: Handler
    scope: str | None
    tag: str
    summary: str
    replies: Mapping[int, Reply]
    problems: tuple[int, ...] = ()
    body: Body | None = None
    query: tuple[Parameter[Any], ...] = ()
    headers: tuple[Parameter[Any], ...] = ()
    bytes_max: str = ""
    or_scope: str | None = None
    """does as well as ``scope``"""
    lasts: bool = False
    """it waits for what may come, or goes on for ever; it ends when its client says that it sends no more"""
    of_peers: bool = False
    """a node of the same cluster may do it as well, without a token"""
    narrowed: bool = False
    """it looks itself at what a token for some queues may see; of others those are for such a token whose path names a
    queue"""
    operation: str = ""
    """its name in ``/openapi.json``, which is that of a function in generated clients and never changes; empty: it is
    not described there (files of the page)"""
    of_node: bool = False
    """about this node and not about the log: answered whoever leads, and by a follower too"""
