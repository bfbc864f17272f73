"""Requests over HTTP that a node of the cluster signs (``peer_signature``). They block."""

import http.client
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from syncbrok.cluster.peer_signature import NONCE, PeerSignature
from syncbrok.model.content_digest import CONTENT_DIGEST, content_digest

_ANSWER_S: Final = 10.0
"""for an answer to begin, and for each piece of it"""
_UNKNOWN_KEY: Final = (401, 403)
_NONCES_MAX: Final = 8
"""asked for by one request: another node's may always come between"""


class SignedRequests:
    """``tls``: with what nodes are spoken to whose URL is https; None: as this system does."""

    def __init__(self, signature: PeerSignature, tls: Callable[[], ssl.SSLContext | None] = lambda: None) -> None:
        self._signature = signature
        self._tls = tls

    @contextmanager
    def answered(
        self, url: str, method: str, path: str, body: bytes = b"", timeout_s: float = _ANSWER_S
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer of the node at ``url``, whatever its status. ``body``: JSON, or nothing. Raises ``OSError`` where
        there is none."""
        digest = content_digest(body) if body else ""
        headers = {CONTENT_DIGEST: digest, "Content-Type": "application/json"} if body else {}
        nonce, nonces = "", 0
        left = self._signature.authorizations(method, path, digest) or [""]
        while left:
            authorization = left.pop(0)
            connection = self._connection(url, timeout_s)
            try:
                signed = {"Authorization": authorization} if authorization else {}
                connection.request(method, path, body or None, {**headers, **signed})
                answer = connection.getresponse()
                refused = answer.status in _UNKNOWN_KEY
                offered = answer.headers.get(NONCE, "") if refused and body else ""
                if offered not in ("", nonce) and nonces < _NONCES_MAX:
                    nonce, nonces = offered, nonces + 1
                    left = self._signature.authorizations(method, path, digest, nonce) or left
                elif not refused or not left:
                    yield answer
                    return
            except http.client.HTTPException as odd:
                raise OSError(f"{url} answers something else ({odd!r})") from odd
            finally:
                connection.close()

    def _connection(self, url: str, timeout_s: float) -> http.client.HTTPConnection:
        at = urlsplit(url)
        if at.scheme == "https":
            context = self._tls() or ssl.create_default_context()
            return http.client.HTTPSConnection(at.hostname or "", at.port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(at.hostname or "", at.port, timeout=timeout_s)
