"""The short way of a simple publish: no task, no timer."""
