"""State in memory that follows from the log, and the secrets beside it."""
