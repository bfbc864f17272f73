"""Bodies and answers as types: one class is what is encoded and what ``/openapi.json`` describes."""
