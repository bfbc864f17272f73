"""What Spark's Java says on standard error, without what says nothing.

Java inherits standard error, and so do Spark's Python daemons through it. A daemon whose worker has been idle for a
minute is told to end by a socket that closes; the worker answers into it and reports, with a stack, that nobody
listens. Nothing is wrong then, and no setting keeps it quiet. So Java gets a pipe, and a thread passes on what comes.
"""

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_STDERR: Final = 2
_DRAIN_S: Final = 2.0
_TRACEBACK: Final = b"Traceback (most recent call last):"
_NOISE: Final = (b"WARNING: Using incubator modules:",)


@contextmanager
def filtered() -> Iterator[None]:
    """A process that is started inside has a standard error that is passed on to ours without noise, as long as it
    lives. Where starting it fails, all it has said is there when the block ends."""
    reading, writing = os.pipe()
    ours = os.dup(_STDERR)
    listener = threading.Thread(target=_pass_on, args=(reading,), name="syncbrok-java-stderr", daemon=True)
    listener.start()
    try:
        os.dup2(writing, _STDERR)
        yield
    except BaseException:
        os.dup2(ours, _STDERR)
        os.close(writing)
        writing = -1
        listener.join(_DRAIN_S)
        raise
    finally:
        os.dup2(ours, _STDERR)
        os.close(ours)
        if writing >= 0:
            os.close(writing)


def without_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that say something. A stack is held back until its last line, which says what it is about. Pure."""
    held: list[bytes] = []
    for line in lines:
        if held:
            held.append(line)
            if not line[:1].isspace():
                yield from () if _is_noise(held) else held
                held = []
        elif line.startswith(_TRACEBACK):
            held = [line]
        elif not line.startswith(_NOISE):
            yield line
    yield from held


def _is_noise(traceback: list[bytes]) -> bool:
    return traceback[-1].startswith(b"BrokenPipeError") and b"/pyspark/daemon.py" in traceback[-2]


def _pass_on(reading: int) -> None:
    with os.fdopen(reading, "rb") as lines, suppress(OSError):  # our own standard error may be closed
        for line in without_noise(lines):
            os.write(_STDERR, line)
