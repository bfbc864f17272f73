"""Bearer tokens: who may do what, where tokens are configured. Only their SHA-256 is known here."""

import hashlib
import hmac
from collections.abc import Sequence

from syncbrok.frontends.over_http.requests.context import Token
from syncbrok.model.errors import Forbidden, Unauthorized


class Tokens:
    """The tokens of a deployment that has some."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tuple((bytes.fromhex(token.sha256), token) for token in tokens)

    def check(self, authorization: str, scope: str, or_scope: str | None = None) -> Token:
        """The token; ``authorization``: the header, "" without one. Raises ``Unauthorized`` without a known token,
        ``Forbidden`` where it has neither ``scope`` nor ``or_scope``."""
        kind, _, secret = authorization.partition(" ")
        if kind.lower() != "bearer" or not secret:
            raise Unauthorized("this broker asks for a token")
        digest = hashlib.sha256(secret.strip().encode("utf-8", "surrogateescape")).digest()
        found = None
        for known, token in self._tokens:  # all of them, always: how long it takes says nothing
            if hmac.compare_digest(known, digest):
                found = token
        if found is None:
            raise Unauthorized("this token is not known here")
        if scope not in found.scopes and or_scope not in found.scopes:
            raise Forbidden(f"token {found.name!r} may not do this: it needs the scope {scope!r}", scope=scope)
        return found
