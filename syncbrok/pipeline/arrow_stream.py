"""A table as one value: the bytes of an Arrow stream, for rows that Spark carries and does not look inside. Pure."""

import pyarrow as pa


def written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def read(stream: bytes | pa.Buffer) -> pa.Table:
    """What ``written`` has made."""
    return pa.ipc.open_stream(stream).read_all()
