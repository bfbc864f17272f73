"""The archive as Delta tables: every reader counts the same rows, at every moment."""

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline.archive import commit as archive_commit
from syncbrok.pipeline.archive.compaction import compact_all
from syncbrok.pipeline.archive.delta_tables import ORDER, DeltaTables
from syncbrok.pipeline.archive.job import archive
from syncbrok.pipeline.archive.manifest import DataFile, Manifest, ManifestName
from syncbrok.pipeline.archive.store import ArchiveStore, ArchiveUnreachable
from tests.pipeline.archive.test_erasing import check_gone, say_erased
from tests.pipeline.archive.test_erasing import rows as rows_by
from tests.support.http.hostile_names import IN_FOLDERS
from tests.support.pipeline.archive_log import DAY_US, WrittenLog

pytestmark = pytest.mark.usefixtures("cheap_plans")

Counts = dict[tuple[str | None, str], int]
"""rows of each queue and day"""


def table_of(out: Path, kind: str) -> DeltaTable:
    return DeltaTable(str(out / kind))


def by_pandas(table: DeltaTable) -> Counts:
    frame = table.to_pandas(columns=["sequence", "queue", "day"])
    return {(queue, f"{day}"): rows for (queue, day), rows in frame.groupby(["queue", "day"]).size().items()}


def by_arrow(table: DeltaTable) -> Counts:
    read = table.to_pyarrow_dataset().to_table(columns=["queue", "day"])
    found = read.group_by(["queue", "day"]).aggregate([([], "count_all")]).to_pylist()
    return {(row["queue"], f"{row['day']}"): row["count_all"] for row in found}


def by_duckdb(table: DeltaTable) -> Counts:
    rows = table.to_pyarrow_dataset()
    with duckdb.connect() as session:
        found = session.register("archived", rows).sql("select queue, day, count(*) from archived group by all")
        return {(queue, f"{day}"): count for queue, day, count in found.fetchall()}


def by_polars(table: DeltaTable, **how: bool) -> Counts:
    found = pl.scan_delta(table, **how).group_by("queue", "day").len().collect()
    return {(queue, f"{day}"): count for queue, day, count in found.rows()}


def by_spark(spark: SparkSession, table: DeltaTable) -> Counts:
    reader = spark.read.option("basePath", table.table_uri)
    found = reader.schema("sequence bigint, queue string, day date").parquet(*table.file_uris())
    return {(row["queue"], f"{row['day']}"): row["count"] for row in found.groupBy("queue", "day").count().collect()}


def by_this_format(spark: SparkSession, table: DeltaTable) -> Counts:
    """As ``load`` of the archive reads the table as it is now."""
    folder, _, kind = table.table_uri.rstrip("/").rpartition("/")
    found = spark.read.format("syncbrok").options(kind=kind, columns="sequence,queue,time").load(folder)
    if kind == "deliveries":
        found = spark.read.format("syncbrok").options(kind=kind, columns="queue,recorded").load(folder)
    days = found.selectExpr("queue", f"to_date({found.columns[-1]}) as day").groupBy("queue", "day").count()
    return {(row["queue"], f"{row['day']}"): row["count"] for row in days.collect()}


def named(out: Path, spark: SparkSession, kind: str) -> Counts:
    """What the manifests say."""
    counts: Counts = {}
    for one in (one for manifest in archive_commit.manifests(ArchiveStore(spark, str(out))) for one in manifest.files):
        if one.kind == kind:
            counts[one.queue, one.day] = counts.get((one.queue, one.day), 0) + one.rows
    return counts


def whole(counts: Counts) -> Counts:
    """Without what pandas leaves out: rows of no queue."""
    return {key: rows for key, rows in counts.items() if key[0] is not None}


def log_of(out: Path) -> str:
    return str(json.loads((out / "_syncbrok/log").read_text())["log"])


def age_manifests(out: Path, days: float) -> None:
    """As if that time had passed since they were written."""
    at = time.time() - days * 86_400
    for path in (out / "_syncbrok").glob("*.json"):
        os.utime(path, (at, at))


def test_all_readers_count_the_same_while_files_are_put_together(spark: SparkSession, tmp_path: Path) -> None:
    """pyarrow, pandas, DuckDB, Polars, Spark and this format, before a compaction, between its manifests, after it, and
    of the version before; plain readers of the folder counted compacted rows twice. Each table notes the archive's
    end."""
    out = tmp_path / "out"
    log = WrittenLog(tmp_path / "log", queues=("007",))
    for _ in range(2):
        log.fill(1, messages=10)
        log.now_us -= DAY_US // 3  # of the same day, so that there is something to compact
        done = archive(spark, log.directory, str(out), delta=True)
    store = ArchiveStore(spark, str(out))

    def check(version: int | None = None) -> None:
        for kind in ("messages", "deliveries"):
            table = DeltaTable(str(out / kind), version=version)
            expected = named(out, spark, kind)
            assert by_arrow(table) == by_duckdb(table) == by_polars(table) == by_spark(spark, table) == expected
            assert by_pandas(table) == whole(expected)
            if version is None:
                assert by_this_format(spark, table) == expected
            assert table.transaction_version(log_of(out)) == done.through
        facts = DeltaTable(str(out / "facts")).to_pyarrow_dataset()
        assert facts.count_rows() == sum(named(out, spark, "facts").values())

    before = table_of(out, "messages").version()
    steps: list[str] = []

    def between(step: str) -> None:
        steps.append(step)
        check()

    compact_all(spark, store, between)
    assert len(steps) == 3
    check()
    age_manifests(out, days=6.9)
    again = archive(spark, log.directory, str(out))
    check()
    check(before)
    assert len(table_of(out, "messages").file_uris()) == len(named(out, spark, "messages"))
    assert again.removed_files == 0, "replaced files stay for a week"
    age_manifests(out, days=7.1)
    assert archive(spark, log.directory, str(out)).removed_files > 0
    check()
    log.close()


def test_an_archive_of_before_is_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    """Exactly the files that its manifests name, not those that a compaction has replaced, under the queues' own names:
    the folders of some have others. A compaction is no change to a stream of a table's changes."""
    out = tmp_path / "an archive of 100% +?"
    log = WrittenLog(tmp_path / "log", queues=IN_FOLDERS)
    for number in range(2):
        log.fill(1)
        log.now_us -= DAY_US // 3
        assert archive(spark, log.directory, str(out), compact=number > 0).tables == {}
    assert archive(spark, log.directory, str(out), delta=True).tables == dict.fromkeys(ORDER, 0)
    for kind in ("messages", "deliveries"):
        table, expected = table_of(out, kind), named(out, spark, kind)
        assert by_arrow(table) == by_duckdb(table) == by_polars(table, use_pyarrow=True) == expected
    assert {queue for queue, _ in named(out, spark, "messages")} == set(IN_FOLDERS)
    log.close()
    store = ArchiveStore(spark, str(out))
    tables, manifests = DeltaTables(store, log_of(out)), archive_commit.manifests(store)
    (one,) = manifests
    assert tables.follow([one._replace(files=one.files[1:])], rearranged=True)["deliveries"] == 1
    assert tables.follow(manifests, rearranged=True)["deliveries"] == 2
    commits = [(out / "deliveries/_delta_log" / f"{version:020d}.json").read_text() for version in (1, 2)]
    actions = [json.loads(line) for text in commits for line in text.splitlines()]
    changes = [one[what]["dataChange"] for one in actions for what in ("add", "remove") if what in one]
    assert changes == [False, False]
    assert by_arrow(table_of(out, "deliveries")) == named(out, spark, "deliveries")


def test_a_run_that_was_killed_between_two_tables_is_made_good(
    spark: SparkSession, log: WrittenLog, tmp_path: Path
) -> None:
    """As a kill after the commit of deliveries leaves it: the lowest sequence is what a reader of all three may take,
    and each table goes on from where it ends. What somebody else has deleted in a table is there again."""
    out = tmp_path / "out"
    log.fill(1, messages=10)
    first = archive(spark, log.directory, str(out), delta=True)
    log.fill(1, messages=10)
    second = archive(spark, log.directory, str(out))
    (out / "messages/_delta_log" / f"{second.tables['messages']:020d}.json").unlink()
    ends = [table_of(out, kind).transaction_version(log_of(out)) for kind in ORDER]
    assert ends == [second.through, second.through, first.through]
    for kind in ORDER:
        rows = table_of(out, kind).to_pyarrow_dataset().to_table(columns=["sequence"])["sequence"].to_pylist()
        assert set(range(1, first.through + 1)) & set(log.messages) <= set(rows) or kind == "deliveries"
    table_of(out, "facts").delete("day = '2023-11-14'")
    third = archive(spark, log.directory, str(out))
    assert third.tables == {"facts": second.tables["facts"] + 2, **{one: second.tables[one] for one in ORDER[1:]}}
    for kind in ORDER:
        assert table_of(out, kind).to_pyarrow_dataset().count_rows() == sum(named(out, spark, kind).values())


def test_two_at_once_are_as_one(spark: SparkSession, tmp_path: Path) -> None:
    """Eight runs bring the same tables in line at the same moment, from nothing and from an earlier version: each file
    is in each table once. One that still knows less than a table has takes nothing out of it."""
    log = "ab" * 16
    tables = DeltaTables(ArchiveStore(spark, str(tmp_path / "out")), log)
    manifests = []
    for number in range(1, 4):
        files = [
            DataFile(kind, queue, "2026-11-29", f"{kind}/{queue}/{number}", 1, 1, number, number, 0, 0)
            for kind in ORDER
            for queue in ("a", "b")
        ]
        manifests.append(Manifest(ManifestName(number, number), log, "", (), (), tuple(files)))
        with ThreadPoolExecutor(8) as together:
            list(together.map(tables.follow, [manifests] * 8))
        for kind in ORDER:
            table = table_of(tmp_path / "out", kind)
            assert sorted(table.file_uris()) == sorted(
                f"{tmp_path}/out/{one.path}" for manifest in manifests for one in manifest.files if one.kind == kind
            )
            assert table.transaction_version(log) == number
    with pytest.raises(ArchiveUnreachable, match="goes up to sequence 3 and the archive's manifests up to 2: another"):
        tables.follow(manifests[:2])
    assert table_of(tmp_path / "out", "facts").transaction_version(log) == 3


def test_what_is_erased_goes_from_the_tables(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """RULES 32: the next version has the files that were written anew, and no earlier one can be read any more: their
    files are gone, whatever a week's time travel would allow. Nothing of a row stands in a table's own log."""
    out = tmp_path / "out"
    log.fill(1, messages=20)
    archive(spark, log.directory, str(out), delta=True)
    before = {kind: rows_by(spark, log.directory, out, kind) for kind in ("messages", "deliveries")}
    versions = {kind: table_of(out, kind).version() for kind in before}
    gone = {next(one for one in log.messages if before["messages"][one].key == "größe")}
    say_erased(log, *gone)
    assert archive(spark, log.directory, str(out)).erased_files > 0
    check_gone(spark, out, before, gone)
    rows = {row["sequence"]: row for row in table_of(out, "messages").to_pyarrow_table().to_pylist()}
    assert (rows[min(gone)]["content"], rows[min(gone)]["erased"]) == (None, True)
    assert len(rows) == len(before["messages"])
    for kind, version in versions.items():
        with pytest.raises((FileNotFoundError, OSError)):
            DeltaTable(str(out / kind), version=version).to_pyarrow_table()
        assert not any("größe" in path.read_text() for path in (out / kind / "_delta_log").glob("*.json"))
        listed = {path for path in (out / kind).rglob("*.parquet") if "_delta_log" not in path.parts}
        assert len(listed) == len(table_of(out, kind).file_uris())
        assert sum(pq.ParquetFile(path).metadata.num_rows for path in listed) == len(before[kind])


def test_refusals_name_the_table(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """A table that cannot be read says which folder to remove, and is made anew then; where no table can be kept
    nothing is archived."""
    out = tmp_path / "out"
    log.fill(1, messages=10)
    archive(spark, log.directory, str(out), delta=True)
    commit = out / "facts/_delta_log" / f"{0:020d}.json"
    commit.write_text("no commit")
    with pytest.raises(ArchiveUnreachable, match=f"remove {out}/facts/_delta_log"):
        archive(spark, log.directory, str(out))
    shutil.rmtree(commit.parent)
    archive(spark, log.directory, str(out))
    assert table_of(out, "facts").to_pyarrow_dataset().count_rows() == sum(named(out, spark, "facts").values())
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()  # Hadoop's viewfs stands for any store
    # In a table of mounts of its own: the session keeps a file system as it was first used.
    hadoop.set("fs.viewfs.mounttable.delta.link./there", f"file://{tmp_path}/elsewhere")
    with pytest.raises(BadSetting, match="without --delta"):
        archive(spark, log.directory, "viewfs://delta/there/archive", delta=True)
    assert not (tmp_path / "elsewhere/archive/messages").exists()
