"""The TCP frontends, and their clients."""
