"""A real broker in a process of its own, and commands, probes and clocks around it."""
