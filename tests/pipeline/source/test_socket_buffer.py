"""A batch goes into the socket to the JVM without waiting for it to be taken."""

import os
import socket
from pathlib import Path

import pytest

from syncbrok.pipeline.source.socket_buffer import ROOM_BYTES, give_room, own_sockets

_ALLOWED = Path("/proc/sys/net/core/wmem_max")


def _room(one: socket.socket) -> int:
    return one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def _taken(one: socket.socket) -> int:
    """How many bytes go in while nobody takes any out."""
    one.setblocking(False)
    sent = 0
    while True:
        try:
            sent += one.send(bytes(1 << 16))
        except BlockingIOError:
            return sent


def test_a_unix_socket_gets_room_for_a_batch() -> None:
    """As much as the system allows goes in at once; what is no such socket stays as it is. No descriptor is left."""
    if not _ALLOWED.exists():
        pytest.skip("not a Linux: nobody says what is allowed")
    allowed = min(ROOM_BYTES, int(_ALLOWED.read_text()))
    here, there = socket.socketpair(socket.AF_UNIX)
    tcp = socket.socket()
    reads, writes = os.pipe()
    with here, there, tcp:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        before = _room(tcp)
        descriptors = len(list(Path("/dev/fd").iterdir()))
        give_room([here.fileno(), tcp.fileno(), reads, 1 << 20])
        assert len(list(Path("/dev/fd").iterdir())) == descriptors
        assert _room(here) >= allowed
        assert _room(tcp) == before
        assert _taken(here) > allowed // 2
    os.close(reads)
    os.close(writes)


def test_sockets_are_found_among_what_is_open() -> None:
    """Every socket of the process, and nothing else."""
    here, there = socket.socketpair()
    with here, there, Path(__file__).open() as file:
        found = set(own_sockets())
        assert {here.fileno(), there.fileno()} <= found
        assert file.fileno() not in found
