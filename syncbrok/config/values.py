"""Parsers of the values in ``config/broker.yml``: text, number or list in, the setting out.

Each raises ``BadSetting`` with what was expected; its caller adds file, line and key.
"""

import re
from collections.abc import Callable, Iterator
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from syncbrok.config.sections import EngineConfig, ResolverConfig
from syncbrok.delivery.webhook.address_guard import Allowed, NetworkPorts
from syncbrok.log.segments.options import PIPELINE, Archive
from syncbrok.model import limits
from syncbrok.model.errors import BadSetting
from syncbrok.model.tokens import SCOPES, Token, parse_digest, parse_scopes
from syncbrok.model.units import duration_between, expected, parse_bytes, render_bytes

T = TypeVar("T")

_WITH_PORTS: Final = re.compile(
    r"(?P<network>[0-9.]+|[0-9A-Fa-f:.]+/[0-9]+):(?P<first>[0-9]{1,5})(?:-(?P<last>[0-9]{1,5}))?", re.ASCII
)
"""an IPv6 address without a prefix length has colons of its own, and takes no port"""
_SERVER: Final = re.compile(
    r"(?:\[(?P<v6>[^]]+)\]|(?P<address>[0-9.]+|[0-9A-Fa-f:.]+))(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)
_COLLECTOR: Final = re.compile(
    r"https?://([0-9A-Za-z_.-]{1,253}|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(?P<path>/[!-~]{0,1000})?", re.ASCII
)
_HEADER: Final = re.compile(r"[0-9A-Za-z!#$%&'*+.^_`|~-]{1,256}", re.ASCII)
_BASE_URL: Final = re.compile(r"https?://([0-9A-Za-z_.-]{1,253}|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}", re.ASCII)


def whole_number(low: int, high: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value.strip()) else value
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise expected(f"a whole number from {low} to {high}", value)
        return number

    return parse


def size(low: int, high: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        size = parse_bytes(value)
        if not low <= size <= high:
            raise expected(f"a size from {render_bytes(low)} to {render_bytes(high)}", value)
        return size

    return parse


def one_of(*choices: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or value.lower() not in choices:
            raise expected(" or ".join(choices), value)
        return value.lower()

    return parse


def path(value: Any) -> Path:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise expected("a path", value)
    return Path(value).expanduser()


def archive(value: Any) -> Archive:
    if value == PIPELINE:  # a directory of this name is ./pipeline
        return PIPELINE
    return None if value is None or value == "" else path(value)


def host(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9A-Za-z_.:-]{1,253}", value):
        raise expected("an address or host name to listen on, such as 127.0.0.1, 0.0.0.0 or ::1", value)
    return value


def sync_interval_ms(value: Any) -> int:
    what = "always, or interval:<ms> with 1 to 60000 milliseconds such as interval:50"
    matched = re.fullmatch(r"always|interval:([0-9]{1,5})", value.strip()) if isinstance(value, str) else None
    interval_ms = int(matched[1] or 0) if matched else -1
    if not matched or (matched[1] and not 1 <= interval_ms <= 60_000):
        raise expected(what, value)
    return interval_ms


def networks(value: Any) -> tuple[IPv4Network | IPv6Network, ...]:
    what = "a network such as 10.0.0.0/8 or fd00::/8 (address and prefix length, no bits set behind it)"
    return tuple(_each(value, ip_network, what))


def networks_and_ports(value: Any) -> tuple[Allowed, ...]:
    """``CIDR`` or ``CIDR:PORT`` or ``CIDR:PORT-PORT``, each."""
    what = (
        "a network such as 10.0.0.0/8 or fd00::/8 (address and prefix length, no bits set behind it), 10.0.0.0/8:443 "
        "or 10.0.0.0/8:8000-8999 for some ports only"
    )
    return tuple(_each(value, _network, what))


def _each(value: Any, read: Callable[[str], T], what: str) -> Iterator[T]:
    """Each element of a list, or of comma-separated text, read by ``read``. Raises ``BadSetting`` naming ``what`` where
    ``read`` raises ``ValueError``."""
    texts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise expected("a list of networks such as [10.0.0.0/8, fd00::/8]", value)
    for text in texts:
        try:
            yield read(text if isinstance(text, str) else "")
        except ValueError:
            raise expected(what, text) from None


def _network(text: str) -> Allowed:
    """Raises ``ValueError``."""
    matched = _WITH_PORTS.fullmatch(text)
    if matched is None:
        return ip_network(text)
    network, first = ip_network(matched["network"]), int(matched["first"])
    last = int(matched["last"] or first)
    if not 0 < first <= last <= 65_535:
        raise ValueError(text)
    return NetworkPorts(network, first, last)


def _texts(value: Any, what: str) -> list[str]:
    """A list of text, or text with commas between (a variable, a flag)."""
    found = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise expected(what, value)
    return found


def resolver(value: Any) -> ResolverConfig:
    what = "dns, system, or a list of name servers such as [10.0.0.53, '10.0.0.54:5353', '[fd00::53]:53']"
    if value in ("dns", "system"):
        return ResolverConfig(system=value == "system")
    servers = tuple(_texts(value, what))
    for one in servers:
        matched = _SERVER.fullmatch(one)
        try:
            ip_address((matched["v6"] or matched["address"]) if matched else "")
        except ValueError:
            raise expected(what, one) from None
        if matched and not 0 < int(matched["port"] or 53) <= 65_535:
            raise expected(what, one)
    if not servers:
        raise expected(what, value)
    return ResolverConfig(servers=servers)


def host_names(value: Any) -> tuple[str, ...]:
    what = "a list of names by which clients call this broker, such as [broker.example], without ports"
    found = _texts(value, what)
    for one in found:
        if not re.fullmatch(r"[0-9A-Za-z_.-]{1,253}", one):
            raise expected(what, one)
    return tuple(found)


def origins(value: Any) -> tuple[str, ...]:
    what = "a list of origins such as [https://shop.example], each scheme://name or scheme://name:port"
    found = _texts(value, what)
    for one in found:
        if not re.fullmatch(r"https?://([0-9A-Za-z_.-]{1,253}|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?", one):
            raise expected(what, one)
    return tuple(found)


def traces_endpoint(value: Any) -> str:
    """Where a collector takes traces; with the path that collectors have for it where none is given."""
    what = "the URL of a collector that takes OTLP over HTTP, such as http://127.0.0.1:4318"
    if value is None or value == "":
        return ""
    matched = _COLLECTOR.fullmatch(value) if isinstance(value, str) else None
    if matched is None:
        raise expected(what, value)
    return str(value) if matched["path"] not in (None, "/") else str(value).rstrip("/") + "/v1/traces"


def share(value: Any) -> float:
    what = "a number above 0 and at most 1, such as 0.01"
    text = str(value).strip() if isinstance(value, int | float | str) and not isinstance(value, bool) else ""
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,12})?", text, re.ASCII) or not 0 < float(text) <= 1:
        raise expected(what, value)
    return float(text)


def service_name(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9A-Za-z_.-]{1,128}", value):
        raise expected("a name of 1 to 128 letters, digits, '_', '.' and '-'", value)
    return value


def trace_headers(value: Any) -> tuple[tuple[str, str], ...]:
    """``NAME=VALUE,NAME=VALUE``. A value is not repeated: it may be a secret."""
    wrong = BadSetting("expected headers such as x-api-key=KEY,x-tenant=NAME")
    if not isinstance(value, str):
        raise wrong
    pairs = [part.partition("=") for part in value.split(",") if part.strip()]
    for name, between, text in pairs:
        if not between or not _HEADER.fullmatch(name.strip()) or not text.isascii() or not text.isprintable():
            raise wrong
    return tuple((name.strip(), text.strip()) for name, _, text in pairs)


def insecure(value: Any) -> str:
    return one_of("no", "plaintext", "open")("no" if value is False else value)  # YAML reads a bare no as false


def node_name(value: Any) -> str:
    """``value`` as the name of a node, which stands in subjects and headers of the engine. Raises ``BadSetting``."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9A-Za-z_-]{1,32}", value):
        raise expected("a name of 1 to 32 letters, digits, - and _", value)
    return value


def base_url(value: Any) -> str:
    what = "the URL of a broker without a path, such as http://10.0.0.1:10000"
    if not isinstance(value, str) or not _BASE_URL.fullmatch(value):
        raise expected(what, value)
    return value


def engine(value: Any) -> tuple[EngineConfig, ...]:
    what = "a list of {url, monitor} such as [{url: nats://10.0.0.1:4222, monitor: http://10.0.0.1:8222}]"
    if not isinstance(value, list) or not value:
        raise expected(what, value)
    for one in value:
        if not isinstance(one, dict) or set(one) != {"url", "monitor"}:
            raise expected(what, one)
        if not (
            re.fullmatch(r"(nats|tls)://\S+", str(one["url"])) and re.fullmatch(r"https?://\S+", str(one["monitor"]))
        ):
            raise expected(what, one)
    return tuple(EngineConfig(**one) for one in value)


def keep(value: Any) -> Literal["retention", "all"] | int:
    if value == "retention":
        return "retention"
    if value == "all":
        return "all"
    try:
        return size(1 * limits.MIB, 1 << 50)(value)
    except BadSetting:
        raise expected("retention, all, or a size of 1MiB or more such as 10GiB", value) from None


def local_sync_s(value: Any) -> float:
    """0: always."""
    if value == "always":
        return 0.0
    try:
        return duration_between(0.01, 60.0)(value)
    except BadSetting:
        raise expected("always, or a duration from 10ms to 1m", value) from None


def tokens(value: Any) -> tuple[Token, ...]:
    what = "a list of {name, sha256, scopes}"
    if not isinstance(value, list):
        raise expected(what, value)
    tokens = tuple(token(one) for one in value)
    for name in (token.name for token in tokens):
        if sum(token.name == name for token in tokens) > 1:
            raise BadSetting(f"two tokens are named {name!r}")
    return tokens


def token(value: Any) -> Token:
    keys = {"name", "sha256", "scopes"}
    if not isinstance(value, dict) or set(value) - {"queues"} != keys:
        # Not repeated: somebody may have written the token itself.
        raise BadSetting("expected {name, sha256, scopes}, all three, queues where it is for some only; nothing else")
    name, scopes = value["name"], value["scopes"]
    if not isinstance(name, str) or not name or len(name) > 128:
        raise expected("a token's name of 1 to 128 characters", name)
    if not isinstance(scopes, list | dict) or not scopes or not all(scope in SCOPES for scope in scopes):
        raise expected(f"scopes of token {name!r} as a list of {', '.join(SCOPES)}", scopes)
    try:
        return Token(name, parse_digest(value["sha256"]), *parse_scopes(scopes, value.get("queues")))
    except BadSetting as wrong:
        raise BadSetting(f"token {name!r}: {wrong.detail}") from None
