"""A broker that is killed under traffic, and who judges what was acknowledged."""
