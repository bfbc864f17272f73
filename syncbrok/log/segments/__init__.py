"""The files of the log: segments, what is kept beside them, and what has rotted in them."""
