"""Lets Spark show an error of ours as its sentence, without the frames of its Python worker above it.

Spark 4 asks the environment of the worker whether to leave them out (``SPARK_HIDE_TRACEBACK``, which one of its
settings fills in for all functions of a session). So it is filled in where an error of ours is raised, in the workers
that plan and no others, and taken back at the next call. Errors that nobody foresaw keep their frames.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from syncbrok.model.errors import SyncbrokError

_HIDE: Final = "SPARK_HIDE_TRACEBACK"
_OURS: Final = "syncbrok"


@contextmanager
def in_one_sentence() -> Iterator[None]:
    """A context in which an error of ours is shown without frames, if this is a worker of Spark."""
    if os.environ.get(_HIDE) == _OURS:
        del os.environ[_HIDE]
    try:
        yield
    except SyncbrokError:
        if _is_worker():
            os.environ.setdefault(_HIDE, _OURS)
        raise


def _is_worker() -> bool:
    """False in a program of its own, whose environment others inherit."""
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    return started is not None and str(started.name).startswith("pyspark.")
