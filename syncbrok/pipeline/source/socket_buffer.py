"""Makes room between a Python worker and its JVM for a whole batch of rows.

Spark hands batches over through a Unix domain socket, which holds 208 KiB where nobody says otherwise: a worker that
writes a batch of a MiB stops half a dozen times, each time the JVM takes the core, and both find the processor's cache
full of the other's. With room for all of it the worker goes on with the next batch: a tenth less time for a full read
(docs/performance.md). Spark has no setting for it, so the worker's own sockets are looked for.
"""

import os
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOM_BYTES: Final = 4 << 20
"""more than a batch of 8,192 rows of 250 bytes; the system gives at most ``net.core.wmem_max``"""


def give_room(descriptors: Iterable[int]) -> None:
    """Let each Unix domain socket among ``descriptors`` hold more of what is sent. TCP finds its own measure."""
    for descriptor in descriptors:
        with suppress(OSError), _copy(descriptor) as one:
            if one.family == socket.AF_UNIX:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM_BYTES)


def _copy(descriptor: int) -> socket.socket:
    copy = os.dup(descriptor)
    try:
        return socket.socket(fileno=copy)
    except OSError:  # it is no socket
        os.close(copy)
        raise


def own_sockets() -> Iterator[int]:
    """The descriptors of this process that are sockets; none where the system does not list them."""
    descriptors: list[int] = []
    with suppress(OSError):
        descriptors += [int(path.name) for path in Path("/dev/fd").iterdir()]
    for descriptor in descriptors:
        with suppress(OSError):  # the one that the listing itself needed is closed by now
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                yield descriptor
