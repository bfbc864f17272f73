"""A page of a file that the disk cannot read, or all pages of a directory: whoever asks for a byte of them is answered
EIO, as by a worn-out disk.

In the test's own process, or in a broker of its own: ``python -m tests.support.disk.bad_sector FILE OFFSET serve ...``
"""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from syncbrok.cli.main import main

PAGE_BYTES = 4096


@contextmanager
def unreadable(path: Path, offset: int) -> Iterator[None]:
    """The page of ``offset`` cannot be read by this process meanwhile."""
    inode, start = path.stat().st_ino, offset // PAGE_BYTES * PAGE_BYTES

    def is_hit(descriptor: int, at: int, length: int) -> bool:
        hit = at < start + PAGE_BYTES and at + length > start
        return hit and length > 0 and os.fstat(descriptor).st_ino == inode

    with _failing(is_hit):
        yield


@contextmanager
def dead_disk(directory: Path) -> Iterator[None]:
    """No file in ``directory`` can be read by this process meanwhile; all can be written."""
    with _failing(lambda descriptor, _, __: directory in Path(f"/proc/self/fd/{descriptor}").resolve().parents):
        yield


@contextmanager
def _failing(is_hit: Callable[[int, int, int], bool]) -> Iterator[None]:
    """Reads of these (descriptor, offset, length) fail."""
    real = {name: getattr(os, name) for name in ("pread", "preadv")}

    def failing(name: str) -> Callable[..., Any]:
        def call(descriptor: int, wanted: Any, at: int) -> Any:
            if is_hit(descriptor, at, wanted if name == "pread" else sum(map(len, wanted))):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real[name](descriptor, wanted, at)

        return call

    for name in real:
        setattr(os, name, failing(name))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)


if __name__ == "__main__":
    file, place, *arguments = sys.argv[1:]
    sys.argv = ["syncbrok", *arguments]
    with unreadable(Path(file), int(place)):
        main()
