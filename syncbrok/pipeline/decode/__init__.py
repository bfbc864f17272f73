"""Bytes of the log as Arrow record batches, thousands of records at once. No Spark."""
