"""The ways in. Each frontend knows the Space's channels and view, and no other frontend."""
