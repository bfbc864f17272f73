"""The job ``audit``: the promises of the broker, proved from the facts of a log."""
