"""Syncbrok: a message broker that delivers a message only after its parents are complete.

Spark executors import this package for the log's codec, so nothing heavy is imported here.
"""

__version__ = "0.2.0"
