"""Filters: CEL expressions that say which messages of its queue a subscriber gets."""
