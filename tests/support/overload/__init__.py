"""Clients that take all they can get, and neighbours that go on meanwhile."""
