"""A listener that ends, as it does each time a node begins to lead: nobody is left waiting."""

import asyncio
import socket
import ssl
from pathlib import Path

from syncbrok.frontends.bounds import Bounds
from syncbrok.frontends.listening import ListenerTls, Listening, open_sockets, server_context
from tests.support.certificates import Authority
from tests.support.polling import eventually


async def test_a_handshake_that_has_not_begun_is_ended_with_the_listener(tmp_path: Path) -> None:
    """INTERFACES 5: a client that is let in at the very moment the listener stops is closed, and counted no more. It
    waited for its handshake for ever, and the broker kept its descriptor."""
    signed = Authority(tmp_path).signs("node")
    tls = ListenerTls(server_context(signed.cert, signed.key))
    bounds = Bounds()
    for _ in range(20):
        connections = bounds.connections(100, 100)
        listening = Listening(asyncio.Protocol, connections, bounds.addresses, 30.0, tls)
        (one,) = open_sockets("127.0.0.1", 0)
        with socket.create_connection(one.getsockname(), 10) as client:
            await listening.start(one, 16)
            while not connections.count:  # noqa: ASYNC110  nobody is told of it
                await asyncio.sleep(0)
            await listening.stop()
            client.setblocking(False)
            await eventually(lambda client=client: _is_closed(client), "the client is told", 5.0)
            assert connections.count == 0


def test_tls_before_1_2_is_not_spoken(tmp_path: Path) -> None:
    """INTERFACES 1, TLS: whatever the system's own library would let pass."""
    signed = Authority(tmp_path).signs("node")
    assert server_context(signed.cert, signed.key).minimum_version is ssl.TLSVersion.TLSv1_2


def _is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
