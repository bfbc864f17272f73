"""Looks at the Delta tables of an archive: which files the rows of a kind stand in, and how far the three tables go.

Facts are committed first, then deliveries, then messages. Whoever reads several takes rows up to the lowest end of the
three, so a frame of each kind ends there: frames of several kinds that were looked at while a run commits fit each
other up to the lower of their ends.
"""

import json
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import fs, parquet

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline.decode.query import Query
from syncbrok.pipeline.object_store import ArchivePlace
from syncbrok.pipeline.schema import KINDS
from syncbrok.pipeline.tables.table_place import MANIFESTS
from syncbrok.pipeline.tables.table_rows import TableFile

_READER_MAX: Final = 1
"""the version of Delta's protocol for readers: later ones have rows that are deleted inside a file"""


class TableSnapshot(NamedTuple):
    """The table of a kind at one of its versions. ``log``: the uuid of the log, in hexadecimal; ``through``: the last
    sequence that all three tables have."""

    place: ArchivePlace
    log: str
    through: int
    files: tuple[TableFile, ...]

    def shared_out(self, query: Query, target_bytes: int, least: int) -> list[list[TableFile]]:
        """The files that may have rows of ``query``, in parts of about ``target_bytes``, at least ``least`` of them if
        there are so many files."""
        conditions = query.everything()
        files = [
            one
            for one in self.files
            if (query.queues is None or one.queue in query.queues or query.kind == "facts")
            and all(one.may_have(condition) for condition in conditions)
        ]
        total = sum(one.bytes for one in files)
        parts: list[list[TableFile]] = [[] for _ in range(min(len(files), max(least, -(-total // target_bytes))))]
        waiting = [(0, number) for number in range(len(parts))]
        for one in sorted(files, key=lambda one: (-one.bytes, one.path)):
            filled, number = heappop(waiting)
            parts[number].append(one)
            heappush(waiting, (filled + one.bytes, number))
        return parts

    def queues(self) -> Iterator[str]:
        """Yield the names of queues in the tables, those first that cost little: of queues that have messages. One that
        was only declared is that of a fact."""
        for kind in ("messages", "deliveries"):
            yield from {one.queue for one in _files(_table(self.place, kind), kind) if one.queue is not None}
        system = self.place.file_system()
        for one in _files(_table(self.place, "facts"), "facts"):
            with parquet.ParquetFile(self.place.full(f"facts/{one.path}"), filesystem=system) as file:
                names = file.read(columns=["queue"])["queue"].unique().to_pylist()
            yield from (name for name in names if name is not None)


def take_tables(place: ArchivePlace, kind: str) -> TableSnapshot:
    """The table of ``kind`` now. Raises ``BadSetting`` where the archive has no tables, or some that this program does
    not read."""
    log = _log_of(place)
    tables = {one: _table(place, one) for one in KINDS}
    ends = [end for table in tables.values() if (end := table.transaction_version(log)) is not None]
    if len(ends) < len(KINDS):
        raise BadSetting(
            f"the tables in {place} are not all of log {log}, whose archive it is: look at what else writes there"
        )
    return TableSnapshot(place, log, min(ends), tuple(_files(tables[kind], kind)))


def _table(place: ArchivePlace, kind: str) -> DeltaTable:
    uri = f"{place.uri}/{kind}"
    try:
        table = DeltaTable(uri, storage_options=place.for_delta())
        reader = table.protocol().min_reader_version
    except TableNotFoundError:
        raise BadSetting(
            f"{place} has no Delta table {kind}: syncbrok pipeline archive --delta makes the three of an archive. "
            "Without them LogAndArchive(spark, None, ...) reads the archive, by its manifests"
        ) from None
    except (DeltaError, OSError) as problem:
        raise BadSetting(f"the Delta table {uri} cannot be read ({type(problem).__name__}: {problem})") from problem
    if reader > _READER_MAX:
        raise BadSetting(
            f"the Delta table {uri} wants readers of version {reader}, and this is one of version {_READER_MAX}: "
            "somebody else has changed it. Read it with deltalake, or let archive make it anew"
        )
    return table


def _files(table: DeltaTable, kind: str) -> Iterator[TableFile]:
    for row in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        day = row.get("partition.day")
        yield TableFile(
            # As a table's log has it, escaped.
            unquote(row["path"]),
            row["size_bytes"],
            None if kind == "facts" else row["partition.queue"],
            f"{day}",
            row.get("min.sequence"),
            row.get("max.sequence"),
            _micros(row.get("min.time")),
            _micros(row.get("max.time")),
        )


def _micros(time: object) -> int | None:
    return None if time is None else int(pa.scalar(time, pa.timestamp("us", tz="UTC")).value)


def _log_of(place: ArchivePlace) -> str:
    """The uuid of the log whose archive it is. Raises ``BadSetting`` where none is there."""
    files = place.file_system()
    try:
        folder = fs.FileSelector(place.full(MANIFESTS), allow_not_found=True)
        names = {one.base_name for one in files.get_file_info(folder)}
        # An archive of before has it in its manifests alone.
        said = "log" if "log" in names else max((one for one in names if one.endswith(".json")), default=None)
        if said is not None:
            with files.open_input_file(place.full(f"{MANIFESTS}/{said}")) as file:
                return str(json.loads(file.read())["log"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise BadSetting(
            f"{place} cannot be read as an archive ({type(problem).__name__}: {problem}). For a bucket of S3 the "
            "endpoint and the keys are AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION"
        ) from problem
    raise BadSetting(f"there is no archive at {place}: it has nothing in {MANIFESTS}/. syncbrok pipeline archive "
                     "writes one")  # fmt: skip
