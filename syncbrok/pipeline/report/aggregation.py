"""Groups the rows of a table. Pure."""

from collections.abc import Iterable

import pyarrow as pa


def aggregated(table: pa.Table, keys: Iterable[str], **columns: tuple[str, str]) -> pa.Table:
    """A table with a row for each combination of ``keys``. ``columns``: by its new name the column that is aggregated,
    and how (an aggregation of Arrow's: sum, min, max)."""
    names = list(keys)
    found = table.group_by(names).aggregate(list(columns.values()))
    return found.select([*names, *("_".join(pair) for pair in columns.values())]).rename_columns([*names, *columns])
