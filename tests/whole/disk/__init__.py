"""A disk that fails, fills, rots or cannot be read, and logs of older versions."""
