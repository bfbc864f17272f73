"""What follows from the log and is kept in memory, and the secrets beside it."""
