"""How the broker runs: ``config/broker.yml``, then ``SYNCBROK_*`` variables, then flags; the later one wins.

A key is a row of one table: its way in the file, its field, how its value is read. The variable of ``http.port`` is
``SYNCBROK_HTTP_PORT``; ``SYNCBROK_PORT`` and ``SYNCBROK_HOST`` are short for the HTTP listener's. Every mistake is a
``BadConfig`` that names file, line and key (or the variable, or the flag) and what was expected.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Final, NamedTuple

from syncbrok.log.options import PIPELINE, Archive
from syncbrok.model import limits
from syncbrok.model.errors import BadConfig, BadSetting
from syncbrok.model.settings import suggest
from syncbrok.model.units import expected, parse_bytes, parse_duration_s, render_bytes, render_duration
from syncbrok.yaml_file import Entry, read_yaml, read_yaml_file

SCOPES: Final = ("publish", "consume", "read", "admin")
_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """``sync_interval_ms`` 0: every commit is fsynced before it is answered (``sync: always``)."""

    path: Path = Path("storage")
    sync_interval_ms: int = 0
    segment_bytes: int = limits.segment_bytes_default
    retention_s: float = limits.retention_default_s
    reserve_bytes: int = limits.reserve_bytes
    archive: Archive = None

    @property
    def sync(self) -> str:
        return f"interval:{self.sync_interval_ms}" if self.sync_interval_ms else "always"


@dataclass(frozen=True, slots=True)
class TokenConfig:
    """A bearer token of the HTTP frontend: only its SHA-256 (64 hex digits) is configured."""

    name: str
    sha256: str
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True)
class HttpConfig:
    host: str = _LOOPBACK
    port: int = 10_000
    tokens: tuple[TokenConfig, ...] = ()
    content_bytes_max: int = limits.content_bytes_max
    batch_lines_max: int = limits.batch_lines_max
    batch_bytes_max: int = limits.batch_bytes_max
    parents_max: int = limits.parents_max
    headers_timeout_s: float = limits.request_headers_timeout_s
    body_timeout_s: float = limits.request_body_timeout_s
    connections_max: int = 4_096
    connections_per_address_max: int = 1_024


@dataclass(frozen=True, slots=True)
class GuardConfig:
    """Networks that may be dialled besides public addresses."""

    allow: tuple[IPv4Network | IPv6Network, ...] = ()


@dataclass(frozen=True, slots=True)
class FramedConfig:
    host: str = _LOOPBACK
    port: int = 8_080


@dataclass(frozen=True, slots=True)
class TopicsConfig:
    host: str = _LOOPBACK
    port: int = 3_000


@dataclass(frozen=True, slots=True)
class MultiplexedConfig:
    host: str = _LOOPBACK
    port: int = 5_671


@dataclass(frozen=True, slots=True)
class MsgpackBusConfig:
    host: str = _LOOPBACK
    producer_port: int = 9_990
    consumer_port: int = 9_991


@dataclass(frozen=True, slots=True)
class FrontendsConfig:
    """The TCP frontends that are on; None is off."""

    framed: FramedConfig | None = None
    topics: TopicsConfig | None = None
    multiplexed: MultiplexedConfig | None = None
    msgpack_bus: MsgpackBusConfig | None = None


@dataclass(frozen=True, slots=True)
class LoggingConfig:
    """``format`` is ``json`` (one object a line, for machines) or ``text``."""

    level: str = "info"
    format: str = "json"


@dataclass(frozen=True, slots=True)
class Config:
    """Everything ``syncbrok serve`` is told but for the queues."""

    storage: StorageConfig = field(default_factory=StorageConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    frontends: FrontendsConfig = field(default_factory=FrontendsConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)

    @property
    def loopback_only(self) -> bool:
        """Whether nobody outside this machine can connect: then endpoints on it may be dialled too."""
        tcp = (getattr(self.frontends, one.name) for one in fields(self.frontends))
        return all(_is_loopback(one.host) for one in (self.http, *tcp) if one is not None)


# -- how values are read ----------------------------------------------------------------------------------------------


def _whole_number(low: int, high: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value.strip()) else value
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise expected(f"a whole number from {low} to {high}", value)
        return number

    return parse


def _size(low: int, high: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        size = parse_bytes(value)
        if not low <= size <= high:
            raise expected(f"a size from {render_bytes(low)} to {render_bytes(high)}", value)
        return size

    return parse


def _duration(low_s: float, high_s: float) -> Callable[[Any], float]:
    def parse(value: Any) -> float:
        seconds = parse_duration_s(value)
        if not low_s <= seconds <= high_s:
            raise expected(f"a duration from {render_duration(low_s)} to {render_duration(high_s)}", value)
        return seconds

    return parse


def _one_of(*choices: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or value.lower() not in choices:
            raise expected(" or ".join(choices), value)
        return value.lower()

    return parse


def _path(value: Any) -> Path:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise expected("a path", value)
    return Path(value).expanduser()


def _archive(value: Any) -> Archive:
    if value == PIPELINE:  # a directory of this name is ./pipeline
        return PIPELINE
    return None if value is None or value == "" else _path(value)


def _host(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9A-Za-z_.:-]{1,253}", value):
        raise expected("an address or host name to listen on, such as 127.0.0.1, 0.0.0.0 or ::1", value)
    return value


def _sync_interval_ms(value: Any) -> int:
    what = "always, or interval:<ms> with 1 to 60000 milliseconds such as interval:50"
    matched = re.fullmatch(r"always|interval:([0-9]{1,5})", value.strip()) if isinstance(value, str) else None
    interval_ms = int(matched[1] or 0) if matched else -1
    if not matched or (matched[1] and not 1 <= interval_ms <= 60_000):
        raise expected(what, value)
    return interval_ms


def _networks(value: Any) -> tuple[IPv4Network | IPv6Network, ...]:
    texts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise expected("a list of networks such as [10.0.0.0/8, fd00::/8]", value)
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text if isinstance(text, str) else ""))
        except ValueError:
            what = "a network such as 10.0.0.0/8 or fd00::/8 (address and prefix length, no bits set behind it)"
            raise expected(what, text) from None
    return tuple(networks)


def _tokens(value: Any) -> tuple[TokenConfig, ...]:
    what = "a list of {name, sha256, scopes}"
    if not isinstance(value, list):
        raise expected(what, value)
    tokens = tuple(_token(one) for one in value)
    for name in (token.name for token in tokens):
        if sum(token.name == name for token in tokens) > 1:
            raise BadSetting(f"two tokens are named {name!r}")
    return tokens


def _token(value: Any) -> TokenConfig:
    if not isinstance(value, dict) or set(value) != {"name", "sha256", "scopes"}:
        # Not repeated: somebody may have written the token itself.
        raise BadSetting("expected {name, sha256, scopes}, all three and nothing else")
    name, digest, scopes = value["name"], value["sha256"], value["scopes"]
    if not isinstance(name, str) or not name or len(name) > 128:
        raise expected("a token's name of 1 to 128 characters", name)
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise BadSetting(f"token {name!r}: expected sha256 as 64 hex digits (printf %s TOKEN | sha256sum)")
    if not isinstance(scopes, list) or not scopes or not all(scope in SCOPES for scope in scopes):
        raise expected(f"scopes of token {name!r} as a list of {', '.join(SCOPES)}", scopes)
    return TokenConfig(name, digest.lower(), frozenset(scopes))


# -- the table --------------------------------------------------------------------------------------------------------


class _Key(NamedTuple):
    path: str
    """as in the file: ``http.port``"""
    field: str
    parse: Callable[[Any], Any]

    @property
    def variable(self) -> str:
        return f"SYNCBROK_{self.path.replace('.', '_').upper()}"


_port = _whole_number(0, 65_535)
_HOUR_S: Final = 3_600.0
_FRONTENDS: Final[dict[str, type[Any]]] = {
    "framed": FramedConfig,
    "topics": TopicsConfig,
    "multiplexed": MultiplexedConfig,
    "msgpack_bus": MsgpackBusConfig,
}
_KEYS: Final = (
    _Key("storage.path", "path", _path),
    _Key("storage.sync", "sync_interval_ms", _sync_interval_ms),
    _Key("storage.segment", "segment_bytes", _size(limits.segment_bytes_min, limits.segment_bytes_max)),
    _Key("storage.retention", "retention_s", _duration(1.0, 100 * 365 * 24 * _HOUR_S)),
    _Key("storage.reserve", "reserve_bytes", _size(0, 1024 * limits.MIB)),
    _Key("storage.archive", "archive", _archive),
    _Key("http.host", "host", _host),
    _Key("http.port", "port", _port),
    _Key("http.tokens", "tokens", _tokens),
    _Key("http.body", "content_bytes_max", _size(1, limits.batch_bytes_max)),
    _Key("http.batch", "batch_bytes_max", _size(1, limits.commit_bytes_max)),
    _Key("http.batch_lines", "batch_lines_max", _whole_number(1, limits.commit_records_max)),
    _Key("http.parents", "parents_max", _whole_number(0, limits.parents_max)),
    _Key("http.headers_timeout", "headers_timeout_s", _duration(0.1, _HOUR_S)),
    _Key("http.body_timeout", "body_timeout_s", _duration(0.1, _HOUR_S)),
    _Key("http.connections", "connections_max", _whole_number(1, 1_000_000)),
    _Key("http.connections_per_address", "connections_per_address_max", _whole_number(1, 1_000_000)),
    _Key("guard.allow", "allow", _networks),
    *(
        _Key(f"frontends.{name}.{one.name}", one.name, _host if one.name == "host" else _port)
        for name, type_ in _FRONTENDS.items()
        for one in fields(type_)
    ),
    _Key("logging.level", "level", _one_of("debug", "info", "warning", "error")),
    _Key("logging.format", "format", _one_of("json", "text")),
)
FLAGS: Final = {
    "--storage": "storage.path",
    "--host": "http.host",
    "--port": "http.port",
    "--log-level": "logging.level",
    "--log-format": "logging.format",
}
_SHORT: Final = {"SYNCBROK_PORT": "http.port", "SYNCBROK_HOST": "http.host"}
VARIABLES: Final = (*_SHORT, *(key.variable for key in _KEYS))
_SECTIONS: Final = tuple(dict.fromkeys(key.path.split(".")[0] for key in _KEYS))


# -- the three sources ------------------------------------------------------------------------------------------------


def load_config(
    file: Path | None, variables: Mapping[str, str], flags: Mapping[str, str], queues_storage: Path | None = None
) -> Config:
    """``flags`` are those of ``FLAGS`` that were given. ``queues_storage`` is the directory that the original's
    ``Storage: path`` names; any other source of ``storage.path`` wins over it. Raises ``BadConfig``."""
    given: dict[str, Any] = {}
    if queues_storage is not None:
        given["storage.path"] = queues_storage
    turned_on: set[str] = set()
    if file is not None:
        given |= _from_file(read_yaml_file(file, variables), turned_on)
    given |= _from_variables(variables)
    keys = {key.path: key for key in _KEYS}
    for flag, text in flags.items():
        given[FLAGS[flag]] = _read_text(keys[FLAGS[flag]], text, flag)
    return _built(given, turned_on)


def _from_file(top: Entry, turned_on: set[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    keys = {key.path: key for key in _KEYS}
    for name, section in top.mapping(_SECTIONS).items():
        if name != "frontends":
            for entry in section.mapping(_names_below(name)).values():
                given[entry.key] = entry.read(keys[entry.key].parse)
            continue
        for frontend, settings in section.mapping(_FRONTENDS).items():
            turned_on.add(frontend)
            for entry in settings.mapping(_names_below(f"frontends.{frontend}")).values():
                given[entry.key] = entry.read(keys[entry.key].parse)
    return given


def _names_below(section: str) -> Sequence[str]:
    return [key.path.removeprefix(f"{section}.") for key in _KEYS if key.path.startswith(f"{section}.")]


def _from_variables(variables: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    keys = {key.path: key for key in _KEYS}
    for variable, path in _SHORT.items():
        # Kubernetes sets SYNCBROK_PORT=tcp://... in every pod beside a Service of that name: not meant for us.
        if variable in variables and not variables[variable].startswith("tcp://"):
            given[path] = _read_text(keys[path], variables[variable], variable)
    by_variable = {key.variable: key for key in _KEYS}
    for variable in _ours(variables):
        key = by_variable.get(variable)
        if key is None:
            raise BadConfig(f"{variable}: unknown variable{suggest(variable, by_variable)}")
        given[key.path] = _read_text(key, variables[variable], variable)
    return given


def _ours(variables: Mapping[str, str]) -> Iterator[str]:
    prefixes = tuple(f"SYNCBROK_{section.upper()}_" for section in _SECTIONS)
    return (variable for variable in sorted(variables) if variable.startswith(prefixes))


def _read_text(key: _Key, text: str, source: str) -> Any:
    """A variable or flag: text, but for lists of mappings, which are YAML (JSON is YAML)."""
    if key.parse is _tokens:
        return read_yaml(text, source, {}, key=key.path, numbered=False).read(key.parse)
    try:
        return key.parse(text)
    except BadSetting as wrong:
        raise BadConfig(f"{source}: {wrong.detail}", key=key.path) from None


def _built(given: Mapping[str, Any], turned_on: set[str]) -> Config:
    by_section: dict[str, dict[str, Any]] = {}
    field_of = {key.path: key.field for key in _KEYS}
    for path, value in given.items():
        by_section.setdefault(path.rpartition(".")[0], {})[field_of[path]] = value
    frontends = {
        name: type_(**by_section.get(f"frontends.{name}", {}))
        for name, type_ in _FRONTENDS.items()
        if name in turned_on or f"frontends.{name}" in by_section
    }
    config = Config(frontends=FrontendsConfig(**frontends))
    config = replace(
        config,
        storage=replace(config.storage, **by_section.get("storage", {})),
        http=replace(config.http, **by_section.get("http", {})),
        guard=replace(config.guard, **by_section.get("guard", {})),
        logging=replace(config.logging, **by_section.get("logging", {})),
    )
    if config.http.content_bytes_max > config.http.batch_bytes_max:
        raise BadConfig("http.body is larger than http.batch; a batch must have room for one message", key="http.body")
    return config


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
