"""A broker that is killed, and a machine that loses its power."""
