"""The HTTP frontend on a free port, and who speaks to it or is called by it."""
