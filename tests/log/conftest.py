"""What tests of the log share."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 256 << 20


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """As ``tmp_path``, in memory where there is room: for tests that kill a process a hundred times. What one that is
    killed has written is in the page cache either way, and each fsync of a disk would take its time."""
    if not _MEMORY.is_dir() or shutil.disk_usage(_MEMORY).free < _ROOM_BYTES:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        yield Path(folder)
