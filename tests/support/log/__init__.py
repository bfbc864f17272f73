"""Facts, stories of facts, and the journals and files that keep them."""
