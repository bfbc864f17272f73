"""The files of the log: segments, the files beside them, and damage in them."""
