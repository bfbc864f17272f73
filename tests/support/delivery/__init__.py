"""A scheduler and a dispatcher without a disk, and endpoints that do as they are told."""
