"""A PostgreSQL of its own for a test: the server comes with the package ``pgserver``."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A server on a socket in ``folder``; how to connect to it."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))  # it makes a directory there as it is imported
    import pgserver

    server = pgserver.get_server(folder / "postgres")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
