"""syncbrok cluster: a log on several machines."""
