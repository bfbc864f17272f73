"""Writes a file that stands beside the log and is no part of it: whole, or the one before."""

import os
from collections.abc import Iterable
from pathlib import Path


def replace_whole(path: Path, pieces: Iterable[bytes]) -> None:
    """``path`` has these bytes, for its owner alone. Its name is not durable yet: after a power failure it may be the
    file before. Raises ``OSError``; ``path`` is as it was then."""
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fdatasync(file.fileno())
    new.replace(path)
