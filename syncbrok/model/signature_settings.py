"""The setting ``signatures`` of a subscriber: how its deliveries are signed. Pure.

``v1`` and ``v1a`` are the schemes of Standard Webhooks. ``hmac`` is any other sender's: a header of its own, in a form
of its own, over what that sender signs. Its forms are texts with places such as ``{timestamp}``.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from syncbrok.model import limits
from syncbrok.model.credentials import SET, hidden
from syncbrok.model.errors import BadSetting
from syncbrok.model.header_settings import HEADER_PREFIXES_REFUSED, HEADERS_REFUSED
from syncbrok.model.message import Signature
from syncbrok.model.units import expected, parse_header_name

NAME: Final = "signatures"
V1: Final = "v1"
V1A: Final = "v1a"
HMAC: Final = "hmac"
KEY: Final = f"{NAME}:{V1A}"
"""of credentials: the private key that signs"""
OLD_KEY: Final = f"{NAME}:{V1A}:old"
"""the one that is being rotated out"""
OLD_KEY_UNTIL: Final = f"{NAME}:{V1A}:until"
"""until when that one signs too, in Unix microseconds"""
HASHES: Final = ("sha256", "sha512")
_SECRET_BYTES_MIN: Final = 16
_SECRET_BYTES_MAX: Final = 512
_FORM_CHARS_MAX: Final = 200
_MEMBERS: Final = {
    V1: ("scheme",),
    V1A: ("scheme", "public_key"),
    HMAC: ("scheme", "hash", "header", "form", "signed", "secret"),
}
_PLACE: Final = re.compile(r"\{([a-z0-9]*)\}")
_FORM_PLACES: Final = ("timestamp", "id", "hex", "base64")
_SIGNED_PLACES: Final = ("timestamp", "id", "body")
_HEADERS_REFUSED: Final = HEADERS_REFUSED | {"authorization", "cookie", "http2-settings", "user-agent"}
_PREFIXES_REFUSED: Final = (*HEADER_PREFIXES_REFUSED, "ce-", "content-", "proxy-")
_PUBLIC_KEY: Final = re.compile(r"whpk_[A-Za-z0-9+/]{43}=", re.ASCII)

SCHEMA: Final[dict[str, Any]] = {
    "type": "array",
    "minItems": 1,
    "maxItems": limits.signatures_max,
    "items": {
        "type": "object",
        "properties": {
            "scheme": {"type": "string", "enum": [V1, V1A, HMAC]},
            "public_key": {"type": "string", "description": "Of v1a: made by the broker, verifies (ed25519)."},
            "hash": {"type": "string", "enum": list(HASHES), "description": "Of hmac, as all that follows."},
            "header": {"type": "string", "description": "That carries it."},
            "form": {"type": "string", "description": "Its value: {hex} or {base64}; {timestamp} and {id}."},
            "signed": {"type": "string", "description": "What is signed: {body}; {timestamp} and {id}."},
            "secret": {"type": "string", "description": "Its bytes are the key, 16 or more; answers say set."},
        },
        "required": ["scheme"],
    },
}


def credential(header: str) -> str:
    """The name of the secret that signs in this header."""
    return f"{NAME}:{header}"


def credential_names(signatures: tuple[Signature, ...]) -> list[str]:
    """The credentials that these need, without those that the broker makes."""
    return [credential(one.header) for one in signatures if one.scheme == HMAC]


def hide(value: Any) -> tuple[Any, dict[str, str]]:
    """See ``credentials.Hide``. What is no list of mappings is left as it is, for ``parse_signatures`` to refuse."""
    credentials: dict[str, str] = {}
    if not isinstance(value, list | tuple):
        return value, credentials
    public = []
    for one in value:
        if isinstance(one, Mapping) and "secret" in one:
            header = one.get("header")
            name = credential(header.lower() if isinstance(header, str) else "")
            one = {**one, "secret": hidden(name, one["secret"], credentials)}
        public.append(one)
    for secret in credentials.values():
        if not _SECRET_BYTES_MIN <= len(secret.encode("utf-8", "surrogatepass")) <= _SECRET_BYTES_MAX:
            what = f"a secret of {_SECRET_BYTES_MIN} to {_SECRET_BYTES_MAX} bytes"
            raise BadSetting(f"expected {what}", expected=what)
    return public, credentials


def parse_signatures(value: Any) -> tuple[Signature, ...]:
    """The schemes, in the order given; raises ``BadSetting``. Of a secret only the word ``set`` stands here."""
    what = f"a list of 1 to {limits.signatures_max} schemes such as {{scheme: v1}}"
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= limits.signatures_max:
        raise BadSetting(f"expected {what}", expected=what)
    found = tuple(_parse(one) for one in value)
    places = [one.header if one.scheme == HMAC else one.scheme for one in found]
    for place in places:
        if places.count(place) > 1:
            raise BadSetting(f"{place} stands there twice")
    return found


def render_signatures(signatures: tuple[Signature, ...]) -> list[dict[str, Any]]:
    """As ``parse_signatures`` reads them back."""
    shown: list[dict[str, Any]] = []
    for one in signatures:
        values = {**one._asdict(), "secret": SET}
        names = _MEMBERS[one.scheme]
        shown.append({name: values[name] for name in names if name != "public_key" or one.public_key})
    return shown


def pieces(form: str) -> list[tuple[str, str]]:
    """``form`` as texts, each with the name of the place behind it; the last one has none."""
    found = []
    at = 0
    for place in _PLACE.finditer(form):
        found.append((form[at : place.start()], place[1]))
        at = place.end()
    return [*found, (form[at:], "")]


def _parse(value: Any) -> Signature:
    if not isinstance(value, Mapping) or value.get("scheme") not in _MEMBERS:
        what = "a mapping with scheme: v1, v1a or hmac"
        raise BadSetting(f"expected {what}", expected=what)
    scheme = value["scheme"]
    for name in value:
        if name not in _MEMBERS[scheme]:
            raise BadSetting(f"{scheme} has no member {str(name)[:40]!r}; it has {', '.join(_MEMBERS[scheme])}")
    if scheme == V1:
        return Signature(V1)
    if scheme == V1A:
        return Signature(V1A, public_key=_public_key(value.get("public_key")))
    return Signature(
        HMAC,
        _hash(value.get("hash", HASHES[0])),
        _header(value.get("header")),
        _form("form", value.get("form", "{hex}"), _FORM_PLACES, ("hex", "base64")),
        _form("signed", value.get("signed", "{body}"), _SIGNED_PLACES, ("body",)),
    )


def _public_key(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not _PUBLIC_KEY.fullmatch(value):
        raise expected("the public key as it is shown (whpk_...), or none: the broker makes it", value)
    return value


def _hash(value: Any) -> str:
    if value not in HASHES:
        raise expected(f"hash: {' or '.join(HASHES)}", value)
    return str(value)


def _header(value: Any) -> str:
    name = parse_header_name(value)
    if name in _HEADERS_REFUSED or name.startswith(_PREFIXES_REFUSED):
        raise BadSetting(f"header {name!r} cannot carry a signature: the broker writes it itself", header=name)
    return name


def _form(name: str, value: Any, places: tuple[str, ...], one_of: tuple[str, ...]) -> str:
    """``value``, where it is printable ASCII with known places, of which one of ``one_of`` stands there once."""
    known = ", ".join(f"{{{place}}}" for place in places)
    what = f"{name}: printable ASCII of at most {_FORM_CHARS_MAX} characters with {known}"
    if not isinstance(value, str) or len(value) > _FORM_CHARS_MAX or not (value.isascii() and value.isprintable()):
        raise expected(what, value)
    found = [place for _, place in pieces(value) if place]
    rest = _PLACE.sub("", value)
    if any(place not in places for place in found) or "{" in rest or "}" in rest or value != value.strip():
        raise expected(what, value)
    if sum(found.count(place) for place in one_of) != 1:
        raise BadSetting(f"{name}: expected {' or '.join(f'{{{place}}}' for place in one_of)} in it, once")
    return value
