"""What keeps the project itself in order; no part of the package."""
