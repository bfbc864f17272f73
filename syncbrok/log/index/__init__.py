"""Finds records: the index of each segment, its sidecar, and the list of segments."""
