"""Passes on what Spark's Java writes to standard error, without lines that mean nothing.

Java inherits standard error, and so do Spark's Python daemons through it. When a worker has been idle for a minute its
daemon is told to end by a socket that closes; the worker answers into it and reports, with a stack, that nobody
listens. That is no error, and no setting keeps it quiet. So Java gets a pipe, and a thread passes on what comes.
"""

import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_STDERR: Final = 2
_DRAIN_S: Final = 2.0
_TRACEBACK: Final = b"Traceback (most recent call last):"
_SAYS_NOTHING: Final = re.compile(rb"WARNING: (Using incubator modules:|package \S+ not in java\.)")
"""of modules that Spark asks for, and that a Java of another year has otherwise or not at all"""


@contextmanager
def filtered() -> Iterator[None]:
    """Filters what processes started in the block write to standard error, and passes it on to ours, as long as they
    live. If starting one fails, everything it wrote is passed on before the block ends."""
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
    """Yield the lines that say something. Stacks are held back until their last lines, which say what they are about;
    those of several workers may come mixed line by line, and then all of them are noise or none. Pure."""
    held: list[bytes] = []
    unended = 0
    for line in lines:
        if line.startswith(_TRACEBACK):
            unended += 1
        elif not held:
            if not _SAYS_NOTHING.match(line):
                yield line
            continue
        elif not line[:1].isspace():
            unended -= 1
        held.append(line)
        if not unended:
            yield from () if _is_noise(held) else held
            held = []
    yield from held


def _is_noise(stacks: list[bytes]) -> bool:
    source = b"    "
    known = (_TRACEBACK, source, b"BrokenPipeError")
    return all(line.startswith(known) or b"/pyspark/daemon.py" in line for line in stacks)


def _pass_on(reading: int) -> None:
    with os.fdopen(reading, "rb") as lines, suppress(OSError):  # our own standard error may be closed
        for line in without_noise(lines):
            os.write(_STDERR, line)
