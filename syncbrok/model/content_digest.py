"""The header ``Content-Digest`` of a body (RFC 9530): who signs the header has signed the body."""

import base64
import hashlib
from typing import Final

CONTENT_DIGEST: Final = "Content-Digest"


def content_digest(body: bytes) -> str:
    """Its value."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"
