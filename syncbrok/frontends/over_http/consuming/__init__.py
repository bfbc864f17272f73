"""Consumers that come for their messages: pull groups, WebSockets, event streams of a queue."""
