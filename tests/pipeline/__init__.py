"""The pipeline: tests that need Spark share one session, ``spark``."""
