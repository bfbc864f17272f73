"""Decides who gets what, when. Pure: it is told facts and the time, and returns attempts to make."""
