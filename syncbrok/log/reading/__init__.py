"""Reading a log that is open: records by sequence, histories, what was written just now."""
