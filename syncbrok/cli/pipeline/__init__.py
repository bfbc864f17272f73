"""syncbrok pipeline: the jobs that run on Spark."""
