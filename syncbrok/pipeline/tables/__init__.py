"""Reading the Delta tables of an archive, without Spark's own Parquet reader: pyarrow reads them in the tasks."""
