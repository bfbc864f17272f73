"""The job ``lineage``: trees, descendants, critical paths, one tree as a picture."""
