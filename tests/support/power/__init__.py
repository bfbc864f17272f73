"""What a power loss leaves of a disk, and who judges it."""
