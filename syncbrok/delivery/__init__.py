"""Decides which subscriber gets which message when, and takes it there. The pure scheduler decides; the dispatcher and
the handlers carry it out."""
