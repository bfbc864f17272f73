"""A Space of real parts, one in memory, and work for them."""
