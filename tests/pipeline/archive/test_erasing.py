"""What the broker has erased goes from the archive at its next run, and a log that was written anew stays the archive's
own."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession

from syncbrok.log.segments import retention
from syncbrok.log.segments.options import PIPELINE
from syncbrok.model.facts import Erased, StoredMessage
from syncbrok.pipeline import log_and_archive
from syncbrok.pipeline.archive.commit import AnotherLog
from syncbrok.pipeline.archive.job import archive
from tests.support.pipeline.archive_log import WrittenLog

pytestmark = pytest.mark.usefixtures("cheap_plans")


def stored(log: WrittenLog, sequence: int) -> StoredMessage:
    (found,) = log.journal.read_many([sequence])
    assert found is not None
    return found


def say_erased(log: WrittenLog, *sequences: int) -> None:
    ids = tuple(stored(log, one).id for one in sequences)
    log.write(Erased(log.journal.next_sequence, log.now_us, log.now_us, ids))


def rows(spark: SparkSession, log: Path | None, out: Path, kind: str) -> dict[int, Row]:
    """Of messages by sequence, of deliveries by message."""
    by = "message" if kind == "deliveries" else "sequence"
    return {row[by]: row for row in log_and_archive.read(spark, log, str(out), kind).collect()}


def everything_in(out: Path) -> list[dict[str, Any]]:
    """All rows of all Parquet files that lie there, current or not."""
    kinds = ("messages", "deliveries")
    return [row for kind in kinds for one in (out / kind).rglob("*.parquet") for row in
            pq.ParquetFile(one).read().to_pylist()]  # fmt: skip


def check_gone(spark: SparkSession, out: Path, before: dict[str, dict[int, Row]], gone: set[int]) -> None:
    """These messages say nothing any more, in no file; all else is what it was."""
    after = {kind: rows(spark, None, out, kind) for kind in before}
    for kind, were in before.items():
        assert {key: row for key, row in after[kind].items() if key in were and key not in gone} == {
            key: row for key, row in were.items() if key not in gone
        }
    for one in gone:
        row, was = after["messages"][one], before["messages"][one]
        assert (row.content, row.headers, row.erased) == (None, {}, True)
        assert (row.key, row.idempotency_key) == (None, None)
        assert (row.id, row.queue, row.parents, row.time) == (was.id, was.queue, was.parents, was.time)
        assert after["deliveries"][one] == Row(**{**before["deliveries"][one].asDict(), "detail": b""})
    lying = everything_in(out)
    assert {row["erased"] for row in lying if "content" in row and row["sequence"] in gone} == {True}
    assert {row["detail"] for row in lying if "detail" in row and row["message"] in gone} == {b""}


def test_what_is_erased_goes_from_the_archive_at_its_next_run(
    spark: SparkSession, log: WrittenLog, tmp_path: Path
) -> None:
    """RULES 32: as soon as the log says it, wherever it is: in files that were compacted, in those that were replaced
    and still lie there, and in segments that are added. The broker writes its segments anew afterwards: the archive
    takes them for what they are, tells retention so, and writes nothing again."""
    out = tmp_path / "out"
    log.fill(2, messages=20)
    archive(spark, log.directory, str(out), compact=True)
    log.fill(1, messages=20)
    before = {kind: rows(spark, log.directory, out, kind) for kind in ("messages", "deliveries")}
    with_headers = next(one for one in log.messages if before["messages"][one].headers)
    gone = {with_headers, log.messages[7], log.messages[45]}
    say_erased(log, *sorted(gone))
    done = archive(spark, log.directory, str(out))
    assert done.erased_files > 0
    check_gone(spark, out, before, gone)
    again = archive(spark, log.directory, str(out))
    assert (again.segments, again.erased_files) == (0, 0)
    assert log.journal.erase(gone) > 1
    union = rows(spark, log.directory, out, "messages")  # before the archive knows the new seals
    assert {one for one, row in union.items() if row.erased} == gone
    assert archive(spark, log.directory, str(out)).erased_files == 0
    check_gone(spark, out, before, gone)
    assert all(retention.may_drop(one.path, PIPELINE) for one in log.sealed())
    log.fill(1, messages=10)
    assert archive(spark, log.directory, str(out)).segments == 1


def test_a_rewritten_segment_of_another_past_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A log that was restored and went on otherwise stays another past, though its segments are as long and something
    was erased there too: the facts differ."""
    out = tmp_path / "out"
    log = WrittenLog(tmp_path / "log")
    log.fill(1, messages=10)
    archive(spark, log.directory, str(out))
    log.journal.erase({log.messages[0]})
    facts = out / "facts"
    for path in facts.rglob("*.parquet"):
        found = pq.ParquetFile(path).read()
        at = found.schema.get_field_index("offset")
        pq.write_table(found.set_column(at, "offset", found["bytes"]), path)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    with pytest.raises(AnotherLog, match="restored from a backup"):
        archive(spark, log.directory, str(out))
    log.close()
