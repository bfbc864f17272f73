"""The nouns of the broker. Standard library only; no clock, no randomness, no input or output."""
