"""syncbrok serve: the broker put together, alone or as a node of a cluster, and the whole of its life."""
