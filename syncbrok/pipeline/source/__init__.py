"""The log as a Spark data source, batch and stream."""
