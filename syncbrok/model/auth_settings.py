"""The setting ``auth`` of a subscriber: how its endpoint knows that it is this broker that posts. Pure.

At most one of ``basic``, ``bearer`` and ``oauth2`` stands there, which writes the header of authorization of each
delivery; ``mtls`` and ``ca`` say how TLS is spoken, and go with any of them. Passwords, tokens, keys and certificates
are credentials: in their place stands ``set``.
"""

from collections.abc import Mapping
from typing import Any, Final

from syncbrok.model import limits
from syncbrok.model.credentials import SET, hidden
from syncbrok.model.errors import BadSetting
from syncbrok.model.message import EndpointAuth
from syncbrok.model.units import parse_endpoint

NAME: Final = "auth"
BASIC: Final = "basic"
BEARER: Final = "bearer"
OAUTH2: Final = "oauth2"
MTLS: Final = "mtls"
CA: Final = "ca"
PASSWORD: Final = f"{NAME}:basic.password"
TOKEN: Final = f"{NAME}:bearer"
CLIENT_SECRET: Final = f"{NAME}:oauth2.client_secret"
CERTIFICATE: Final = f"{NAME}:mtls.cert"
PRIVATE_KEY: Final = f"{NAME}:mtls.key"
AUTHORITY: Final = f"{NAME}:ca"
OF_TLS: Final = frozenset({CERTIFICATE, PRIVATE_KEY, AUTHORITY})
"""credentials that are PEM"""

_SCHEMES: Final = {BASIC: PASSWORD, BEARER: TOKEN, OAUTH2: CLIENT_SECRET}
"""what writes the header, with its credential"""
_HIDDEN_MEMBERS: Final = {BASIC: ("password",), OAUTH2: ("client_secret",), MTLS: ("cert", "key")}
_MEMBERS: Final = {
    BASIC: ("username", "password"),
    OAUTH2: ("token_url", "client_id", "client_secret", "scope"),
    MTLS: ("cert", "key"),
}
_TEXT_CHARS_MAX: Final = 512
_WHAT: Final = "null, or a mapping of one of basic, bearer and oauth2, of mtls and of ca, or of some of these"

_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": _TEXT_CHARS_MAX}
_SECRET: Final = {"type": "string", "description": "Answers say set; who gives set leaves it."}


def _object(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                BASIC: _object(("username", "password"), username=_TEXT, password=_SECRET),
                BEARER: {**_SECRET, "description": "The token. Answers say set; who gives set leaves it."},
                OAUTH2: _object(
                    ("token_url", "client_id", "client_secret"),
                    token_url={"type": "string", "format": "uri", "maxLength": limits.endpoint_chars_max},
                    client_id=_TEXT,
                    client_secret=_SECRET,
                    scope={"anyOf": [_TEXT, {"type": "null"}]},
                ),
                MTLS: _object(
                    ("cert", "key"),
                    cert={**_SECRET, "description": "Certificate and those it hangs on, PEM."},
                    key={**_SECRET, "description": "Its private key, PEM, without a passphrase."},
                ),
                CA: {**_SECRET, "description": "The authorities, PEM, in place of the system's."},
            },
            "additionalProperties": False,
        },
        {"type": "null"},
    ]
}


def hide(value: Any) -> tuple[Any, dict[str, str]]:
    """See ``credentials.Hide``. What has another shape is left as it is, for ``parse_auth`` to refuse."""
    credentials: dict[str, str] = {}
    if not isinstance(value, Mapping):
        return value, credentials
    public = dict(value)
    for name in (BEARER, CA):
        if name in public:
            public[name] = hidden(f"{NAME}:{name}", public[name], credentials)
    for name, members in _HIDDEN_MEMBERS.items():
        if isinstance(public.get(name), Mapping):
            within = {
                member: hidden(f"{NAME}:{name}.{member}", public[name][member], credentials)
                for member in members
                if member in public[name]
            }
            public[name] = {**public[name], **within}
    for name, credential in credentials.items():
        _check_credential(name, credential)
    return public, credentials


def parse_auth(value: Any) -> EndpointAuth | None:
    """None for none; raises ``BadSetting``. Of a credential only the word ``set`` stands here."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value or not value.keys() <= {*_SCHEMES, MTLS, CA}:
        raise BadSetting(f"expected {_WHAT}", expected=_WHAT)  # not repeated: it may hold a secret
    schemes = [name for name in _SCHEMES if name in value]
    if len(schemes) > 1:
        raise BadSetting(f"{' and '.join(schemes)}: each writes the Authorization of a delivery, so name one")
    auth = _parse_scheme(schemes[0], value) if schemes else EndpointAuth()
    if MTLS in value:
        for member in _MEMBERS[MTLS]:
            _set(f"mtls.{member}", _member(value, MTLS, member))
        auth = auth._replace(has_certificate=True)
    if CA in value:
        _set("ca", value[CA])
        auth = auth._replace(has_authority=True)
    return auth


def _parse_scheme(scheme: str, value: Mapping[str, Any]) -> EndpointAuth:
    auth = EndpointAuth(scheme)
    if scheme == BASIC:
        username = _text("basic.username", _member(value, BASIC, "username"))
        if ":" in username:
            raise BadSetting("basic.username: expected text without a colon")
        _set("basic.password", _member(value, BASIC, "password"))
        return auth._replace(username=username)
    if scheme == BEARER:
        _set("bearer", value[BEARER])
        return auth
    _set("oauth2.client_secret", _member(value, OAUTH2, "client_secret"))
    scope = _member(value, OAUTH2, "scope")
    return auth._replace(
        token_url=_token_url(_member(value, OAUTH2, "token_url")),
        client_id=_text("oauth2.client_id", _member(value, OAUTH2, "client_id")),
        scope="" if scope is None else _text("oauth2.scope", scope),
    )


def render_auth(auth: EndpointAuth | None) -> dict[str, Any] | None:
    """As ``parse_auth`` reads it back."""
    if auth is None:
        return None
    shown: dict[str, Any] = {}
    if auth.scheme == BASIC:
        shown[BASIC] = {"username": auth.username, "password": SET}
    elif auth.scheme == BEARER:
        shown[BEARER] = SET
    elif auth.scheme == OAUTH2:
        shown[OAUTH2] = {
            "token_url": auth.token_url,
            "client_id": auth.client_id,
            "client_secret": SET,
            "scope": auth.scope or None,
        }
    if auth.has_certificate:
        shown[MTLS] = {"cert": SET, "key": SET}
    if auth.has_authority:
        shown[CA] = SET
    return shown


def credential_names(auth: EndpointAuth | None) -> list[str]:
    """The credentials that it needs."""
    if auth is None:
        return []
    names = [_SCHEMES[auth.scheme]] if auth.scheme else []
    names += [CERTIFICATE, PRIVATE_KEY] * auth.has_certificate
    return names + [AUTHORITY] * auth.has_authority


def check_auth(auth: EndpointAuth | None, endpoint: str, headers: Mapping[str, str]) -> None:
    """Raises ``BadSetting`` where it does not go with the endpoint, or with the subscriber's own headers."""
    if auth is None:
        return
    if auth.scheme and "authorization" in headers:
        what = f"{NAME}: {auth.scheme} writes the Authorization that is one of headers too: leave out one of the two"
        raise BadSetting(what, setting=NAME, header="authorization")
    for name, is_there in ((MTLS, auth.has_certificate), (CA, auth.has_authority)):
        if is_there and not endpoint.lower().startswith("https:"):
            raise BadSetting(f"{NAME}: {name} is about TLS, and the endpoint is not https", setting=NAME)


def _member(value: Mapping[str, Any], name: str, member: str) -> Any:
    within = value[name]
    if not isinstance(within, Mapping) or not within.keys() <= set(_MEMBERS[name]):
        raise BadSetting(f"{name}: expected a mapping with {', '.join(_MEMBERS[name])}")
    return within.get(member)


def _set(name: str, value: Any) -> None:
    if value != SET:
        raise BadSetting(f"{name}: expected text")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _TEXT_CHARS_MAX or not value.isprintable():
        raise BadSetting(f"{name}: expected text of 1 to {_TEXT_CHARS_MAX} characters, without line ends")
    return value


def _token_url(value: Any) -> str:
    try:
        return parse_endpoint(value)
    except BadSetting as wrong:
        raise BadSetting(f"oauth2.token_url: {wrong.detail}") from None


def _check_credential(name: str, value: str) -> None:
    """Raises ``BadSetting``, which does not repeat the value, where it cannot be what it is given for."""
    shown = name.partition(":")[2]
    if name in OF_TLS:
        if len(value) > limits.pem_bytes_max or "-----BEGIN " not in value:
            raise BadSetting(f"{shown}: expected PEM (-----BEGIN ...) of at most {limits.pem_bytes_max} bytes")
    elif name == TOKEN:
        if (
            not (value.isascii() and value.isprintable() and len(value) <= limits.access_token_bytes_max)
            or " " in value
        ):
            raise BadSetting(
                f"{shown}: expected printable ASCII without spaces, at most {limits.access_token_bytes_max} characters"
            )
    elif not value.isprintable() or len(value) > _TEXT_CHARS_MAX:
        raise BadSetting(f"{shown}: expected text of at most {_TEXT_CHARS_MAX} characters, without line ends")
