"""Where a record stands: the index of each segment, its sidecar, and the list of segments."""
