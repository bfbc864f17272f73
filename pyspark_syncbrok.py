"""Spark looks for modules named ``pyspark_*`` and registers the ``DefaultSource`` of each: with Syncbrok installed
where Spark's Python runs, ``spark.read.format("syncbrok")`` works without another word."""

from syncbrok.pipeline import SyncbrokDataSource as DefaultSource

__all__ = ["DefaultSource"]
