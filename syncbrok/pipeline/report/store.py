"""The folder that a report is written to, on any file system that Hadoop's client knows."""

from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from syncbrok.model.limits import MIB

_FILE: Final = "part-0.parquet"
_CHUNK_BYTES: Final = MIB  # what goes to the JVM at once, in a form a third larger


class ReportStore:
    """The folder of a report. What stands there is replaced. A table is written beside the one before it and takes its
    name when it is whole: who reads meets the old table or the new one, or for a moment none where the file system
    cannot exchange two folders."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  # Hadoop's client has no other door to Python
        context: Any = spark.sparkContext._jsc  # noqa: SLF001
        self._path = jvm.org.apache.hadoop.fs.Path
        root = self._path(out)
        self._fs: Any = root.getFileSystem(context.hadoopConfiguration())
        self._root: Any = self._fs.makeQualified(root)

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write a small table as one file."""
        target = self._at(name)
        fresh, old = target.suffix(".new"), target.suffix(".old")
        self._fs.delete(fresh, True)  # Hadoop's word for everything below
        self._fs.mkdirs(fresh)
        file = BytesIO()
        pq.write_table(table, file, compression="zstd")
        self._write(self._path(fresh, _FILE), file.getbuffer())
        self._fs.delete(old, True)
        if self._fs.exists(target):
            self._fs.rename(target, old)
        self._fs.rename(fresh, target)
        self._fs.delete(old, True)

    def write_text(self, name: str, text: str) -> str:
        """Write a file and return where it is."""
        target = self._at(name)
        fresh = self._path(target.getParent(), f".{target.getName()}.new")
        self._write(fresh, text.encode())
        where, written = _local(target), _local(fresh)
        if where is not None and written is not None:
            written.replace(where)
            return str(where)
        self._fs.delete(target, False)
        self._fs.rename(fresh, target)
        return str(target.toString())

    def _write(self, path: Any, data: bytes | memoryview) -> None:
        where = _local(path)
        if where is not None:  # Hadoop would put a file with its checksum beside it
            where.write_bytes(data)
            return
        stream = self._fs.create(path, True)
        try:
            for start in range(0, len(data), _CHUNK_BYTES):
                stream.write(bytearray(data[start : start + _CHUNK_BYTES]))
        finally:
            stream.close()

    def _at(self, name: str) -> Any:
        return self._path(self._root, name)


def _local(path: Any) -> Path | None:
    """``path`` as one of this machine; None where it is not."""
    where = path.toUri()
    return Path(str(where.getPath())) if where.getScheme() == "file" else None
