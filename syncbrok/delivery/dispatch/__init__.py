"""Hands attempts to handlers and takes their answers, with the messages they need."""
