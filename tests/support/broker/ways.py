"""A way to a broker that a test can cut, freeze, or have swallow an answer: one broker behind several addresses."""

import select
import socket
import socketserver
import threading
from contextlib import suppress
from typing import Final, Self

_LOOK_S: Final = 0.02


class Way:
    """Passes bytes both ways between whoever connects to ``url`` and ``port`` of loopback. ``taken`` counts those who
    have connected."""

    def __init__(self, port: int) -> None:
        self.taken = 0
        self.frozen = False
        """nothing is passed on, and nobody is told"""
        self.swallow = b""
        """the first answer that has these bytes is not passed on: the connection breaks instead"""
        self._port = port
        self._cut = False
        way = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                way.taken += 1
                with suppress(OSError), socket.create_connection(("127.0.0.1", way._port)) as there:
                    way._pass_on(self.request, there)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """From now on connections are refused, and those there are have ended when this returns."""
        if not self._cut:
            self._cut = True
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()  # waits for the threads of connections

    def _pass_on(self, here: socket.socket, there: socket.socket) -> None:
        while not self._cut:
            for one in [] if self.frozen else select.select([here, there], [], [], _LOOK_S)[0]:
                some = one.recv(65_536)
                if not some:
                    return
                if one is there and self.swallow and self.swallow in some:
                    self.swallow = b""
                    return
                (there if one is here else here).sendall(some)
            if self.frozen:
                select.select([], [], [], _LOOK_S)
