"""What is decoded for thousands of records at once is what decoding each by itself says."""

import random
from pathlib import Path
from typing import Any

import pytest

from syncbrok.log import sidecar
from syncbrok.model.errors import BadSetting, Gone, LogCorrupt
from syncbrok.pipeline import decode, log_files, schema
from syncbrok.pipeline.decode_query import CarriedRule, Condition, Query
from syncbrok.pipeline.log_files import Log
from tests.support import expected_rows
from tests.support.expected_rows import EVERY_CARRIED, Rows
from tests.support.random_facts import START_US, random_story
from tests.support.segment_files import flip, offsets, write_log


def query(kind: str, columns: str | None = None, **more: Any) -> Query:
    return Query(kind, schema.columns_of(kind, columns), **more)


@pytest.fixture
def story_log(tmp_path: Path, seed: int) -> Log:
    """Three segments of random facts."""
    write_log(tmp_path / "log", random_story(random.Random(seed)))
    return log_files.look(tmp_path / "log")


def expected(log: Log, kind: str) -> Rows:
    found = list(expected_rows.records(Path(log.directory), log.durable))
    return {
        "messages": expected_rows.messages,
        "deliveries": expected_rows.deliveries,
        "facts": expected_rows.facts,
    }[kind](found)


@pytest.mark.parametrize("sidecars", ["right", "none", "wrong", "of another segment"])
@pytest.mark.parametrize("kind", schema.KINDS)
def test_rows_are_what_the_records_say(story_log: Log, kind: str, sidecars: str) -> None:
    """Every kind, extras, carried messages, any text: all columns of all three kinds are exactly what ``codec.decode``
    makes of each record, with sidecars, without, and with sidecars that lie."""
    first, second = (Path(one.path).with_suffix(".idx") for one in story_log.segments[:2])
    if sidecars == "none":
        first.unlink()
        second.unlink()
    if sidecars == "wrong":
        flip(first, 2_000)
        _lie(second, story_log)
    if sidecars == "of another segment":
        second.write_bytes(first.read_bytes())
    for verify in (True, False):
        assert expected_rows.read(story_log, query(kind, verify=verify)) == expected(story_log, kind)


def _lie(path: Path, log: Log) -> None:
    """A sidecar with the right checksums, one of whose offsets points between two records."""
    one = log.segments[1]
    sealed = sidecar.Sealed(log.uuid, one.base, one.end, one.crc)
    index = sidecar.read(path.parent, sealed)
    assert index is not None
    wrong = index.sparse.copy()
    wrong[1] += 4
    index._snapshot = index._snapshot._replace(sparse=wrong)
    path.write_bytes(sidecar.encode(index, sealed))
