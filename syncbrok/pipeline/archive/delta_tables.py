"""The archive's rows as three Delta tables, which any reader of Delta reads: ``OUT/facts``, ``deliveries`` and
``messages``, each with a ``_delta_log``.

The manifests say what is archived, the tables follow them: one commit a table adds the files that manifests name and
removes those that none names any more, so a reader sees each row once, also while files are put together. A commit
notes the log (as application) and its last archived sequence (as version). The order is facts, deliveries, messages: a
run that was killed in between is made good by the next one, and a reader of several tables takes the lowest sequence.

Two runs at once add the same files by the same names, which is the same as once, and one that knows less than a table
has is refused. What a table has is looked at again after each commit: delta-rs notes application and version, and
checks neither.

A commit says nothing of what is in the rows but sequences, times and the names of queues: nothing that is erased.
"""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    RemoveAction,
    Transaction,
    create_table_with_add_actions,
)

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline import schema
from syncbrok.pipeline.archive.manifest import DataFile, Manifest
from syncbrok.pipeline.archive.parquet_rows import PARTITIONED_BY
from syncbrok.pipeline.archive.store import ArchiveStore, ArchiveUnreachable

ORDER: Final = ("facts", "deliveries", "messages")
_LOG: Final = "_delta_log"
_TRIES: Final = 5


class _Held(NamedTuple):
    """A file as a table has it; ``path`` is relative to the table."""

    path: str
    bytes: int


class DeltaTables:
    """The tables of the archive in ``store``, which is one of ``log`` (its uuid)."""

    def __init__(self, store: ArchiveStore, log: str) -> None:
        self._store, self._log = store, log

    def exist(self) -> bool:
        """True if at least one of them has been begun."""
        return self._store.local is not None and any(_LOG in self._store.names(kind) for kind in ORDER)

    def follow(self, manifests: Sequence[Manifest], *, rearranged: bool = False) -> dict[str, int]:
        """Bring the tables in line with all ``manifests`` and make what is missing of them; the version of each.
        ``rearranged``: the rows are the same as before, so that a stream of a table's changes has none. Raises
        ``ArchiveUnreachable``, and ``BadSetting`` where no tables can be kept."""
        if self._store.local is None:
            raise BadSetting(
                f"{self._store.uri} cannot have Delta tables: they are kept in a folder that this machine sees, a "
                "shared or mounted one too. Archive there, or without --delta"
            )
        through = max((one.name.last for one in manifests), default=0)
        versions = {}
        for kind in ORDER:
            files = [one for manifest in manifests for one in manifest.files if one.kind == kind]
            versions[kind] = self._follow(kind, files, through, change=not rearranged)
        return versions

    def _follow(self, kind: str, files: Sequence[DataFile], through: int, *, change: bool) -> int:
        wanted = {_Held(one.path.removeprefix(f"{kind}/"), one.bytes): one for one in files}
        paths = {one.path for one in wanted}
        noted = CommitProperties(app_transactions=[Transaction(self._log, through)])
        uri = f"{self._store.local}/{kind}"
        try:
            for _ in range(_TRIES):
                table = DeltaTable(uri) if DeltaTable.is_deltatable(uri) else None
                has = {} if table is None else self._held(table, through)
                adds = [_added(held, one, change) for held, one in wanted.items() if held not in has]
                removes = [_removed(held, values, change) for held, values in has.items() if held.path not in paths]
                if table is None:
                    _create(uri, kind, adds, noted)
                elif adds or removes or table.transaction_version(self._log) != through:
                    _commit(table, kind, [*adds, *removes], noted)
                else:
                    self._settle(kind)
                    return table.version()
        except (DeltaError, OSError) as problem:
            raise ArchiveUnreachable(
                f"the Delta table {uri} cannot be read or changed ({type(problem).__name__}: {problem}). The archive "
                f"itself is whole: remove {uri}/{_LOG}, and archive with --delta makes the table anew"
            ) from problem
        raise ArchiveUnreachable(
            f"the Delta table {uri} was not brought in line with the archive in {_TRIES} attempts: somebody else "
            "changes it. Let nothing but syncbrok pipeline archive write there, and run it again"
        )

    def _held(self, table: DeltaTable, through: int) -> dict[_Held, Mapping[str, str | None]]:
        """The files that a table has, each with the values of its folder. Raises ``ArchiveUnreachable`` where it goes
        beyond the archive: another run is further, and this one would take its files out."""
        ends = table.transaction_version(self._log)
        if ends is not None and ends > through:
            raise ArchiveUnreachable(
                f"the Delta table {table.table_uri} goes up to sequence {ends} and the archive's manifests up to "
                f"{through}: another run is archiving there, so wait until it has ended; or a manifest was moved away, "
                f"then remove the folder {_LOG} in the table, and archive with --delta makes it anew"
            )
        return _files_of(table)

    def _settle(self, kind: str) -> None:
        """Make the last commit as durable as the manifests."""
        folder = f"{kind}/{_LOG}"
        names = [one for one in self._store.names(folder) if one.endswith(".json")]
        self._store.settle(f"{folder}/{one}" for one in names[-1:])
        self._store.sync_folders([folder])


def _create(uri: str, kind: str, adds: list[AddAction], noted: CommitProperties) -> None:
    """Make a table that has these files from its first version on. Passes where somebody else has just made it."""
    by, columns = list(PARTITIONED_BY[kind]), _columns(kind)
    with suppress(CommitFailedError):
        create_table_with_add_actions(uri, columns, adds, "ignore", by, f"syncbrok {kind}", commit_properties=noted)


def _commit(table: DeltaTable, kind: str, actions: list[AddAction | RemoveAction], noted: CommitProperties) -> None:
    """Commit ``actions``. Passes where somebody else has committed what contradicts them."""
    by, columns = list(PARTITIONED_BY[kind]), _columns(kind)
    with suppress(CommitFailedError):
        table.create_write_transaction(actions, "append", columns, by, commit_properties=noted)


def _columns(kind: str) -> Schema:
    """The columns of a table. Each may be null, since files of before have no such column as were added later."""
    columns = [pa.field(one.name, one.arrow) for one in schema.columns_of(kind)]
    return Schema.from_arrow(pa.schema([*columns, pa.field("day", pa.date32())]))


def _files_of(table: DeltaTable) -> dict[_Held, Mapping[str, str | None]]:
    by = table.metadata().partition_columns
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return {
        # As a table's log has it, escaped; what is added or removed is told as the file system has it.
        _Held(unquote(row["path"]), row["size_bytes"]): {
            name: None if (value := row[f"partition.{name}"]) is None else str(value) for name in by
        }
        for row in rows
    }


def _added(held: _Held, file: DataFile, change: bool) -> AddAction:  # as Delta names it
    values = {"queue": file.queue, "day": file.day}
    folder = {name: values[name] for name in PARTITIONED_BY[file.kind]}
    extremes = {
        "numRecords": file.rows,
        "minValues": {"sequence": file.first, "time": _millis(file.from_us)},
        "maxValues": {"sequence": file.last, "time": _millis(file.to_us + 999)},
        "nullCount": {"sequence": 0, "time": 0},
    }
    return AddAction(held.path, held.bytes, folder, _now_ms(), change, json.dumps(extremes))


def _removed(held: _Held, folder: Mapping[str, str | None], change: bool) -> RemoveAction:
    return RemoveAction(held.path, change, _now_ms(), held.bytes, dict(folder))


def _millis(time_us: int) -> str:
    """A time as Delta's statistics have it, which know milliseconds; a part of one is left out."""
    seconds, millis = divmod(time_us // 1_000, 1_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"


def _now_ms() -> int:
    return int(time.time() * 1_000)
