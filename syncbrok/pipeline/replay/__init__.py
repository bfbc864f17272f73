"""The job ``replay``: messages chosen by SQL go out again as new ones."""
