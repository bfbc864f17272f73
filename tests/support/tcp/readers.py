"""Consumers over TCP in threads of their own, which come back as often as their broker is killed."""

import base64
import json
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from tests.support.tcp.wire_clients import framed_frame

_PAUSE_S = 0.02
_CONSUME = 3


class TcpReader(threading.Thread, ABC):
    """Takes what ``queue`` has for its format until told to stop, and calls ``taken`` with each content that came
    whole."""

    def __init__(self, port: int, queue: str, taken: Callable[[bytes], None], stop: threading.Event) -> None:
        super().__init__(name=f"{type(self).__name__} of {queue}", daemon=True)
        self._port = port
        self._queue = queue
        self._taken = taken
        self._stop_asked = stop

    def run(self) -> None:
        while not self._stop_asked.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self._port), timeout=0.5) as connection:
                    self._read(connection)
            except OSError:
                self._stop_asked.wait(_PAUSE_S)  # it is being killed

    @abstractmethod
    def _read(self, connection: socket.socket) -> None:
        """Until told to stop. Raises ``OSError`` when the broker has gone."""

    def _exactly(self, connection: socket.socket, count: int) -> bytes:
        got = b""
        while len(got) < count:
            try:
                some = connection.recv(count - len(got))
            except TimeoutError:
                if self._stop_asked.is_set():
                    raise
                continue
            if not some:
                raise ConnectionResetError("the broker has closed the connection")
            got += some
        return got


class FramedReader(TcpReader):
    """Asks for the next message, again and again."""

    def _read(self, connection: socket.socket) -> None:
        while not self._stop_asked.is_set():
            connection.sendall(framed_frame(_CONSUME, self._queue, b""))
            length, kind, _ = struct.unpack(">IBq", self._exactly(connection, 13))
            payload = self._exactly(connection, length - 9 + (2 if kind == _CONSUME else 0))
            if kind == _CONSUME:
                key_at = 1 + payload[0]
                self._taken(payload[key_at + 1 + payload[key_at] :])
            else:
                self._stop_asked.wait(_PAUSE_S)


class MultiplexedReader(TcpReader):
    """Asserts the queue and reads what comes."""

    def _read(self, connection: socket.socket) -> None:
        asked = {"MessageType": "Queue", "Name": self._queue, "Type": "P2P", "Durable": True, "StreamID": "reader"}
        written = json.dumps(asked).encode()
        connection.sendall(struct.pack("<I", len(written)) + written)
        while not self._stop_asked.is_set():
            (length,) = struct.unpack("<I", self._exactly(connection, 4))
            told = json.loads(self._exactly(connection, length))
            if told["MessageType"] == "EPMessage":
                self._taken(base64.b64decode(told["Body"]))
