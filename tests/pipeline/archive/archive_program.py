"""Archives a log in a process of its own, and kills itself (SIGKILL) at a point that a test has chosen.

Arguments: storage, out, ``rename:N`` (before the Nth rename of a file), ``note:N`` (before retention is told for the
Nth time) or ``write:N`` (while Spark writes rows of a kind for the Nth time)."""

import itertools
import os
import signal
import sys
import threading
from typing import Any

from syncbrok.log.segments import retention
from syncbrok.pipeline.archive import group_writer
from syncbrok.pipeline.archive import job as archive
from syncbrok.pipeline.archive.store import ArchiveStore
from syncbrok.pipeline.session import session
from tests.pipeline.conftest import SETTINGS


def die_at(owner: Any, name: str, number: int, *, meanwhile: bool = False) -> None:
    """Before call ``number`` of a function the process ends; ``meanwhile``: a moment after it has begun."""
    real, calls = getattr(owner, name), itertools.count(1)

    def instead(*arguments: Any, **named: Any) -> Any:
        if next(calls) == number:
            if not meanwhile:
                os.kill(os.getpid(), signal.SIGKILL)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return real(*arguments, **named)

    setattr(owner, name, instead)


def main() -> None:
    storage, out, point = sys.argv[1:]
    where, number = point.split(":")
    match where:
        case "rename":
            die_at(ArchiveStore, "rename", int(number))
        case "note":
            die_at(retention, "note", int(number))
        case "write":
            die_at(group_writer, "write_rows", int(number), meanwhile=True)
    spark = session("local[2]", "archive", SETTINGS)
    archive.archive(spark, storage, out, group_bytes=1)


if __name__ == "__main__":
    main()
