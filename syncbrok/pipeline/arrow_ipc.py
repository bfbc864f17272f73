"""A table as one value: the bytes of an Arrow IPC stream, for rows that Spark carries and does not look inside.
Pure."""

from typing import Final

import pyarrow as pa

_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")
"""A JVM copies each byte several times on its way: a quarter of them is cheaper, packing and unpacking included."""


def serialized(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def deserialized(stream: bytes | pa.Buffer) -> pa.Table:
    """The table that ``serialized`` turned into bytes."""
    return pa.ipc.open_stream(stream).read_all()
