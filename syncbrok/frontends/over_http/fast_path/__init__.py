"""The short way of a publish that has nothing but a body: no task, no timer."""
