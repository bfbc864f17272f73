"""The command line. ``serve`` puts the broker together; others speak HTTP to a running one, or read a log."""
