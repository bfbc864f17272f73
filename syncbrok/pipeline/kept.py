"""Keeps what was computed, for the steps that follow."""

from pyspark import StorageLevel
from pyspark.sql import DataFrame


def kept(frame: DataFrame) -> DataFrame:
    """``frame``, computed now and kept without the plan that made it: the plans of the steps that follow stay small.
    What is too much for memory is on the disk; where the session has a checkpoint directory it is there, so that the
    loss of an executor costs a step and not the job."""
    if frame.sparkSession.sparkContext.getCheckpointDir():
        return frame.checkpoint()
    return frame.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK_DESER)
