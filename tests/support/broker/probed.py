"""A broker that tells how long the longest callback of its loop took: ``python -m tests.support.broker.probed FILE
serve ...``

Processor time of the loop's thread, not time on the clock: what other processes of the machine do is not its fault.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Final

from syncbrok.cli.main import main
from syncbrok.cli.serve import serve

TOLD_FROM_S: Final = 0.004

_run = asyncio.Handle._run


def watch(file: Path) -> None:
    """From now on ``file`` has the seconds of the longest callback since it was last removed, and its name."""
    longest_s = 0.0

    def run(handle: asyncio.Handle) -> None:
        nonlocal longest_s
        began_s = time.thread_time()
        _run(handle)
        took_s = time.thread_time() - began_s
        if took_s > TOLD_FROM_S:
            if not file.exists():
                longest_s = 0.0
            if took_s > longest_s:
                longest_s = took_s
                file.write_text(f"{took_s:.4f} {handle!r:.300}")

    asyncio.Handle._run = run  # type: ignore[method-assign]
    serve._loop_factory = lambda: asyncio.SelectorEventLoop  # uvloop's handles are its own


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
    sys.argv = ["syncbrok", *sys.argv[2:]]
    main()
