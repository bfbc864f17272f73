"""Bits turn in a log while the broker runs and while it does not (``tests/whole/disk/test_rot.py``)."""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.disk import rotting
from tests.support.http.recorder import Recorder


@contextmanager
def rounds(_asked: argparse.Namespace) -> Iterator[object]:
    with tempfile.TemporaryDirectory() as told, Recorder() as subscriber:
        story = rotting.make_story(Path(told), subscriber, families=3)
        stories = (story, rotting.carried(story, Path(told)))

        def one_round(directory: Path, seed: int) -> tuple[str, list[str]]:
            return rotting.ordeal(stories[seed % 3 == 0], directory / "log", seed)

        yield one_round
