"""Access tokens of OAuth 2.0 by client credentials (RFC 6749, 4.4): the request for one, and what an answer says. Pure.

The broker names itself by HTTP Basic, which every server takes from a client with a secret (2.3.1).
"""

from base64 import b64encode
from typing import Final, NamedTuple
from urllib.parse import quote_plus

import orjson

from syncbrok import __version__
from syncbrok.delivery.webhook.http_request import EndpointTarget, parse_target
from syncbrok.model import limits
from syncbrok.model.message import EndpointAuth

_LIFETIME_DEFAULT_S: Final = 3_600.0
"""where an answer does not say for how long its token is good: an endpoint's 401 tells when it is not"""
_MARGIN_S: Final = 30.0
"""so long before its end a token is not used any more, or a tenth of its life where that is shorter"""
_WORDS_MAX: Final = 200


class TokenRefused(Exception):
    """No token. ``str()`` says why, without anything secret."""


class TokenRequest(NamedTuple):
    """The bytes of the request, and where they go."""

    target: EndpointTarget
    request: bytes


class AccessToken(NamedTuple):
    """``lifetime_s``: for how long it is used from when it was asked for."""

    text: str
    lifetime_s: float


def token_request(auth: EndpointAuth, client_secret: str) -> TokenRequest:
    """The request for a token of the client that ``auth`` names; raises ``BadSetting`` where its URL is none."""
    target = parse_target(auth.token_url)
    client = f"{quote_plus(auth.client_id)}:{quote_plus(client_secret)}"
    form = "grant_type=client_credentials" + (f"&scope={quote_plus(auth.scope)}" if auth.scope else "")
    head = (
        f"POST {target.path} HTTP/1.1\r\nHost: {target.authority}\r\nUser-Agent: syncbrok/{__version__}\r\n"
        f"Authorization: Basic {b64encode(client.encode()).decode()}\r\nAccept: application/json\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(form)}\r\nConnection: close\r\n\r\n"
    )
    return TokenRequest(target, (head + form).encode())


def read_token(status: int, body: bytes) -> AccessToken:
    """The token of an answer (5.1); raises ``TokenRefused``."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = None
    members = said if isinstance(said, dict) else {}
    if status != 200:
        raise TokenRefused(f"answered {status}{_error(members)}")
    text = members.get("access_token")
    if not (isinstance(text, str) and 0 < len(text) <= limits.access_token_bytes_max and _fits_a_header(text)):
        raise TokenRefused("answered 200 without an access_token that fits a header")
    kind = members.get("token_type", "bearer")
    if not (isinstance(kind, str) and kind.lower() == "bearer"):
        raise TokenRefused("answered with a token that is not of type Bearer")
    return AccessToken(text, _used_for_s(members.get("expires_in")))


def _fits_a_header(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _used_for_s(expires_in: object) -> float:
    """Some servers write the seconds as text."""
    try:
        lifetime_s = float(expires_in)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        lifetime_s = _LIFETIME_DEFAULT_S
    if not lifetime_s > 0:  # not a number is none of both
        lifetime_s = _LIFETIME_DEFAULT_S
    return lifetime_s - min(_MARGIN_S, lifetime_s / 10)


def _error(members: dict[str, object]) -> str:
    """The error's code and description (5.2), where the answer has them."""
    words = [value for name in ("error", "error_description") if isinstance(value := members.get(name), str)]
    clean = "".join(one if one.isprintable() else " " for one in ": ".join(words))
    return f": {clean[:_WORDS_MAX]}" if clean else ""
