"""All that a node of a cluster listens on while it follows: HTTP, and the TCP formats that are on."""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Protocol, Self

from syncbrok.cli.serve.certificates import Certificates
from syncbrok.cli.serve.reload import Reload
from syncbrok.config import Config, port_keys
from syncbrok.frontends.bounds import Bounds
from syncbrok.frontends.listening import ListenerTls
from syncbrok.frontends.over_http.follower_server import FollowerNode, FollowerServer
from syncbrok.frontends.over_http.requests.connection import Limits
from syncbrok.frontends.over_http.requests.context import HttpOptions
from syncbrok.frontends.over_http.resources.cluster import LeadingNode
from syncbrok.frontends.relay import Relay, TcpRelay, Upstream
from syncbrok.model.tokens import Token


class RelayingNode(FollowerNode, LeadingNode, Protocol):
    """A node of a cluster, while it follows and when it leads."""

    tokens_changed: Callable[[Sequence[Token]], None]
    """called on the event loop with the tokens that were created, when they are others"""

    def created_tokens(self) -> Sequence[Token]:
        """The tokens that this node knows of."""
        ...

    def is_peer(self, authorization: str, method: str, path: str, digest: str) -> bool:
        """See ``HttpOptions``."""
        ...

    def peer_challenge(self) -> Mapping[str, str]:
        """See ``HttpOptions``."""
        ...

    def upstream(self, listener: str = "http") -> Upstream | None:
        """As ``FollowerNode``'s; and of a TCP format the leader's ``listener`` of this name (framed.port, ...)."""
        ...


class FollowerFront:
    """As a context manager it listens; the sockets of HTTP (``sockets``) go on listening at its end, the others are
    opened again by whoever serves them then. Raises ``OSError`` where one cannot listen."""

    def __init__(
        self, config: Config, options: HttpOptions, bounds: Bounds, node: RelayingNode, tls: ListenerTls | None
    ) -> None:
        http = config.http
        connections = bounds.connections(http.connections_max, http.connections_per_address_max)
        self._relay = Relay(bounds)
        limits = Limits(http.headers_timeout_s, bounds, connections)
        self.http = FollowerServer(options, limits, node, self._relay, tls)
        self._node = node
        self._tcp = [
            TcpRelay(self._relay, settings.host, getattr(settings, key), _upstream_of(node, f"{name}.{key}"))
            for name, settings in config.frontends.on()
            for key in port_keys(settings)
            if getattr(settings, key)  # a port that nobody can know beforehand is no use to a client here
        ]
        self.reloaded = False
        """the configuration was read again meanwhile: whoever serves next does so too"""
        self._reloads: set[asyncio.Task[None]] = set()
        self._running: AsyncExitStack

    @property
    def sockets(self) -> Sequence[socket.socket]:
        return self.http.sockets

    async def __aenter__(self) -> Self:
        self._node.tokens_changed = self.http.set_created_tokens
        self.http.set_created_tokens(self._node.created_tokens())
        async with AsyncExitStack() as running:
            self._relay.start()
            running.push_async_callback(self._relay.stop)
            for one in self._tcp:
                running.push_async_callback(one.stop)
                await one.start()
            await running.enter_async_context(self.http)
            self._running = running.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*self._reloads)
        await self._running.__aexit__(kind, error, trace)

    def reload_of(self, config: Config, read: Callable[[], Config], certificates: Certificates) -> Reload:
        """A reload for ``reload``, of this front."""
        return Reload(config, read, self.http.set_tokens, certificates, lambda: bool(self._node.created_tokens()))

    def reload(self, again: Reload) -> None:
        """Read the configuration again, in a task; the front ends after it."""
        self.reloaded = True
        task = asyncio.get_running_loop().create_task(again.run(), name="syncbrok reload")
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    def close(self) -> None:
        """Stop listening, where no broker came to take the sockets over."""
        self.http.close()


def _upstream_of(node: RelayingNode, listener: str) -> Callable[[], Upstream | None]:
    return lambda: node.upstream(listener)
