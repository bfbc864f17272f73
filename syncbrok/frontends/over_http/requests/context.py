"""The context of every handler: the channels, the view, and the options."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web

from syncbrok.delivery.leader_lease import SINGLE_NODE, LeaderLease
from syncbrok.model import limits
from syncbrok.model.message import QueueSettings
from syncbrok.model.tokens import Token
from syncbrok.space.channels import Channels
from syncbrok.space.queries.view import View

SYNC = "Syncbrok-Sync"
"""the header that names the policy, on every answer to a publish (RULES 1)"""

LEADER = "Syncbrok-Leader"
"""the header that names the URL of the broker that leads, on every answer of a node of a cluster"""


def nobody(_authorization: str, _method: str, _path: str, _digest: str) -> bool:
    """See ``HttpOptions.is_peer``: of a broker without peers."""
    return False


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The options of a deployment. Without ``tokens`` everybody who can connect may do everything."""

    host: str = "127.0.0.1"
    port: int = 10_000
    sync: str = "always"
    """what an acknowledgement means, ``always``, ``interval:<ms>`` or that of a cluster: named in answers to publishes
    that were refused"""
    tokens: tuple[Token, ...] = ()
    """those that are configured; others are created (``/v1/tokens``)"""
    may_be_open: bool = True
    """without any token it is open no further than ``http.insecure`` says: so the last one may be taken away"""
    hosts: tuple[str, ...] = ()
    """names by which clients may call this broker; if empty, any name may be used once tokens are set"""
    machine_names: tuple[str, ...] = ()
    """this machine's own, which are always taken"""
    leader_url: str = ""
    """of this broker, which leads a cluster: all its answers name it; empty: there is no cluster"""
    node_name: str = ""
    """of this broker in its cluster, where its listener asks for certificates: who shows one of this name is another
    node, and says for whom it relays; empty: nobody is believed"""
    is_peer: Callable[[str, str, str, str], bool] = nobody
    """whether this Authorization header of a request (method, path, Content-Digest) is another node's; of one with a
    body it is so once. It makes no system call. A route that takes a body from nodes checks its digest"""
    peer_challenge: Callable[[], Mapping[str, str]] = dict
    """headers of the answer to a request with a body which ``is_peer`` has not believed"""
    node_metrics: Callable[[], bytes] = bytes
    """of this broker as a node of a cluster, to be shown behind its own; nothing where there is none"""
    origins: tuple[str, ...] = ()
    """sites whose web pages may ask this broker, such as ``https://shop.example``"""
    queue_defaults: QueueSettings = field(default_factory=QueueSettings)
    """of a queue that is made, where nothing else is said"""
    content_bytes_max: int = limits.content_bytes_max
    batch_lines_max: int = limits.batch_lines_max
    batch_bytes_max: int = limits.batch_bytes_max
    parents_max: int = limits.parents_max
    headers_timeout_s: float = limits.request_headers_timeout_s
    body_timeout_s: float = limits.request_body_timeout_s
    keepalive_timeout_s: float = 300.0
    """how long a connection may rest between requests"""
    linger_s: float = 2.0
    """how long a refused body is still read, so that the client gets to see the refusal"""
    connections_max: int = limits.http_connections_max
    connections_per_address_max: int = limits.http_connections_per_address_max
    stop_timeout_s: float = 5.0
    """how long answers under way may take once the server stops"""


@dataclass(frozen=True, slots=True)
class HttpContext:
    """The context of a handler: where to write, where to read, the options. ``lease``: what is read is of now while it
    holds."""

    channels: Channels
    view: View
    options: HttpOptions
    lease: LeaderLease = SINGLE_NODE


Handler = Callable[[HttpContext, web.Request], Awaitable[web.StreamResponse]]
"""A handler of this frontend. Handlers keep nothing between requests."""
