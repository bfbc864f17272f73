"""From a directory as a crash left it to a log that can be written to."""
