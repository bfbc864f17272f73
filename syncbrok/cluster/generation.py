"""Which stream a node's log has followed: the generation of it, a file beside the log.

A stream that was made anew begins to count its messages again. So its generation stands in each epoch, above the rest,
and must be greater than those before: receivers refuse what comes with an older epoch.
"""

from pathlib import Path
from typing import Final

from syncbrok.log.segments import files
from syncbrok.model.errors import LogDiverged

NAME: Final = "generation"


def remembered(directory: Path) -> int:
    """The generation of the last stream that the log there has followed; 0 where it has followed none. Raises
    ``LogDiverged`` for a file that says no number, and ``OSError``."""
    path = directory / NAME
    try:
        text = path.read_text("ascii").strip()
        return int(text)
    except FileNotFoundError:
        return 0
    except ValueError as problem:
        raise LogDiverged(f"{path} says no number; remove it once you know that the engine's stream is today's") from (
            problem
        )


def remember(directory: Path, generation: int) -> None:
    """From now on the log there has followed a stream of this generation. Raises ``LogDiverged`` where it has followed
    a later one, and ``OSError``."""
    known = remembered(directory)
    if generation < known:
        what = f"the stream is of generation {generation}, and this log has followed one of generation {known}"
        raise LogDiverged(f"{what}: the engine has come back with an old stream")
    if generation > known:
        files.replace_file(directory / NAME, b"%d\n" % generation)


def has_followed(directory: Path) -> bool:
    """Whether the log there has followed a stream."""
    return (directory / NAME).exists()
