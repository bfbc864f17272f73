"""Publishing: one message, a batch, CloudEvents, and the first broker's routes."""
