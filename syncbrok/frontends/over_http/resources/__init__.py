"""Queues, subscribers, messages and the broker itself as resources of the API."""
