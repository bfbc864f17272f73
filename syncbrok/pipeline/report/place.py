"""Where a report is written: a folder of any file system that Hadoop's client knows."""

from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from syncbrok.pipeline.archive.write import set_for_now

_SETTINGS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""else times are written in a form of 96 bits that others read as nanoseconds without a zone"""


class ReportPlace:
    """Replaces what stands there. A table is written beside the one before it and takes its name when it is whole: who
    reads meets the old table or the new one, or for a moment none where the file system cannot exchange two folders."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        self._spark = spark
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  # Hadoop's client has no other door to Python
        context: Any = spark.sparkContext._jsc  # noqa: SLF001
        self._path = jvm.org.apache.hadoop.fs.Path
        root = self._path(out)
        self._fs: Any = root.getFileSystem(context.hadoopConfiguration())
        self._root: Any = self._fs.makeQualified(root)

    def write_table(self, name: str, table: DataFrame) -> None:
        """Small: one file."""
        target = self._at(name)
        fresh, old = target.suffix(".new"), target.suffix(".old")
        with set_for_now(self._spark, _SETTINGS):
            table.coalesce(1).write.mode("overwrite").parquet(fresh.toString())
        self._fs.delete(old, True)  # Hadoop's word for everything below
        if self._fs.exists(target):
            self._fs.rename(target, old)
        self._fs.rename(fresh, target)
        self._fs.delete(old, True)

    def read_table(self, name: str) -> DataFrame:
        return self._spark.read.parquet(self._at(name).toString())

    def write_text(self, name: str, text: str) -> str:
        """Where it is then."""
        target = self._at(name)
        where = target.toUri()
        if where.getScheme() == "file":
            path = Path(str(where.getPath()))
            fresh = path.with_name(f".{path.name}.new")
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(path)
            return str(path)
        self._write(target.suffix(".new"), text)
        self._fs.delete(target, False)
        self._fs.rename(target.suffix(".new"), target)
        return str(target.toString())

    def _write(self, path: Any, text: str) -> None:
        stream = self._fs.create(path, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _at(self, name: str) -> Any:
        return self._path(self._root, name)
