"""Clients that take all they can get, and what others have of the broker meanwhile."""
