"""Filters: what they look at, what they cost, what they keep."""
