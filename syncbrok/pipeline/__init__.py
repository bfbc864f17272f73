"""The log as data, with Spark: a data source and sink, and the jobs that run on them.

    from syncbrok.pipeline import SyncbrokDataSource
    spark.dataSource.register(SyncbrokDataSource)
    spark.read.format("syncbrok").option("kind", "messages").load("storage/")

``syncbrok.pipeline.session.session()`` is a Spark session with the right settings in which that is done already; each
job is a function: ``from syncbrok.pipeline.audit.job import audit``.

Needs the extra ``syncbrok[spark]``. The broker imports nothing of this, and this imports of the broker only the model
and the reading half of the log.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncbrok.pipeline.source.data_source import SyncbrokDataSource

__all__ = ["SyncbrokDataSource"]


def __getattr__(name: str) -> Any:
    """The data source, loaded when it is asked for: finding a Java, for one, needs no Spark."""
    if name != "SyncbrokDataSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from syncbrok.pipeline.source.data_source import SyncbrokDataSource  # noqa: PLC0415

    return SyncbrokDataSource
