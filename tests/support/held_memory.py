"""How much memory something holds: what was taken in some files and is there still."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def held_by(files: str) -> Iterator[Callable[[], int]]:
    """Gives a function: bytes that lines of such files (a pattern) have taken since, and that are held now."""
    tracemalloc.start()
    try:
        yield lambda: _held_bytes(files)
    finally:
        tracemalloc.stop()


def _held_bytes(files: str) -> int:
    gc.collect()
    traces = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(inclusive=True, filename_pattern=files)])
    return sum(trace.size for trace in traces.traces)
