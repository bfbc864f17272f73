"""The directory of the log that a command is about."""

import os
from pathlib import Path
from typing import Final

import click

from syncbrok.cli.exits import NOT_FOUND, CommandFailed
from syncbrok.config import load_config
from syncbrok.log.segments.segment import segment_bases

_CONFIG: Final = Path("config/broker.yml")


def find_log(_context: click.Context, _parameter: click.Parameter, given: Path | None) -> Path:
    """As ``log_directory``: a callback of click."""
    return log_directory(given)


def log_directory(given: Path | None) -> Path:
    """The directory that ``--storage`` gives, else the configured one. Raises ``CommandFailed`` where it has no log."""
    storage = given or load_config(_CONFIG if _CONFIG.exists() else None, os.environ, {}).storage.path
    if not _has_log(storage):
        below = [one for one in _directories(storage) if _has_log(one)]
        mend = f"there is one in {' and in '.join(map(str, below[:3]))}" if below else "--storage says where it is"
        raise CommandFailed(f"there is no log in {storage}", NOT_FOUND, mend)
    return storage


def _has_log(directory: Path) -> bool:
    return directory.is_dir() and bool(segment_bases(directory))


def _directories(directory: Path) -> list[Path]:
    """The directories in this one and in those: a node of a cluster keeps its log in one of its own."""
    inside = sorted(one for one in directory.glob("*") if one.is_dir())
    return [*inside, *(two for one in inside for two in sorted(one.glob("*")) if two.is_dir())]
