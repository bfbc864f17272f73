"""Logs, frames and a Spark cluster for the pipeline."""
