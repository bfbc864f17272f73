"""How the broker runs: ``config/broker.yml``, then ``SYNCBROK_*`` variables, then flags; the later one wins.

A key is a row of one table: its way in the file, its field, how its value is read. The variable of ``http.port`` is
``SYNCBROK_HTTP_PORT``; ``SYNCBROK_PORT`` and ``SYNCBROK_HOST`` are short for the HTTP listener's. Every mistake is a
``BadConfig`` that names file, line and key (or the variable, or the flag) and what was expected.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from syncbrok.config.sections import (
    ClusterConfig,
    Config,
    FramedConfig,
    FrontendsConfig,
    MsgpackBusConfig,
    MultiplexedConfig,
    TlsConfig,
    TopicsConfig,
)
from syncbrok.config.values import (
    archive,
    base_url,
    engine,
    host,
    host_names,
    insecure,
    keep,
    local_sync_s,
    networks,
    networks_and_ports,
    node_name,
    one_of,
    origins,
    path,
    resolver,
    service_name,
    share,
    size,
    sync_interval_ms,
    tokens,
    trace_headers,
    traces_endpoint,
    whole_number,
)
from syncbrok.model import limits
from syncbrok.model.errors import BadConfig, BadSetting
from syncbrok.model.journal import QUORUM, QUORUM_FOLLOWER, QUORUM_LOCAL
from syncbrok.model.message import Scope
from syncbrok.model.settings import parse_choice, suggest
from syncbrok.model.units import duration_between
from syncbrok.yaml_file import YamlEntry, read_yaml, read_yaml_file


class _Key(NamedTuple):
    path: str
    """as in the file: ``http.port``"""
    field: str
    parse: Callable[[Any], Any]

    @property
    def variable(self) -> str:
        return f"SYNCBROK_{self.path.replace('.', '_').upper()}"


_port = whole_number(0, 65_535)
_HOUR_S: Final = 3_600.0
_FRONTENDS: Final[dict[str, type[Any]]] = {
    "framed": FramedConfig,
    "topics": TopicsConfig,
    "multiplexed": MultiplexedConfig,
    "msgpack_bus": MsgpackBusConfig,
}
_KEYS: Final = (
    _Key("storage.path", "path", path),
    _Key("storage.sync", "sync_interval_ms", sync_interval_ms),
    _Key("storage.segment", "segment_bytes", size(limits.segment_bytes_min, limits.segment_bytes_max)),
    _Key("storage.retention", "retention_s", duration_between(1.0, 100 * 365 * 24 * _HOUR_S)),
    _Key("storage.erase_within", "erase_within_s", duration_between(1.0, 30 * 24 * _HOUR_S)),
    _Key("storage.reader_hold", "reader_hold_s", duration_between(1.0, 365 * 24 * _HOUR_S)),
    _Key("storage.reserve", "reserve_bytes", size(0, 1024 * limits.MIB)),
    _Key("storage.archive", "archive", archive),
    _Key("http.host", "host", host),
    _Key("http.port", "port", _port),
    _Key("http.tokens", "tokens", tokens),
    _Key("http.hosts", "hosts", host_names),
    _Key("http.origins", "origins", origins),
    _Key("http.insecure", "insecure", insecure),
    _Key("http.body", "content_bytes_max", size(1, limits.batch_bytes_max)),
    _Key("http.batch", "batch_bytes_max", size(1, limits.commit_bytes_max)),
    _Key("http.batch_lines", "batch_lines_max", whole_number(1, limits.commit_records_max)),
    _Key("http.parents", "parents_max", whole_number(0, limits.parents_max)),
    _Key("http.headers_timeout", "headers_timeout_s", duration_between(0.1, _HOUR_S)),
    _Key("http.body_timeout", "body_timeout_s", duration_between(0.1, _HOUR_S)),
    _Key("http.connections", "connections_max", whole_number(1, 1_000_000)),
    _Key("http.connections_per_address", "connections_per_address_max", whole_number(1, 1_000_000)),
    _Key("http.proxies", "proxies", networks),
    _Key("guard.allow", "allow", networks_and_ports),
    _Key("resolver", "resolver", resolver),
    *(
        _Key(f"frontends.{name}.{one.name}", one.name, host if one.name == "host" else _port)
        for name, type_ in _FRONTENDS.items()
        for one in fields(type_)
        if one.name != "tls"
    ),
    *(
        _Key(f"{listener}.tls.{one.name}", one.name, path)
        for listener in ("http", *(f"frontends.{name}" for name in _FRONTENDS))
        for one in fields(TlsConfig)
    ),
    _Key("groups.idle_after", "idle_after_s", duration_between(0.0, 10 * 365 * 24 * _HOUR_S)),
    _Key("defaults.scope", "scope", parse_choice(Scope)),
    _Key("cluster.space", "space", node_name),
    _Key("cluster.node", "node", node_name),
    _Key("cluster.engine", "engine", engine),
    _Key("cluster.advertise", "advertise", base_url),
    _Key("cluster.key", "key", path),
    _Key("cluster.credentials", "credentials", path),
    _Key("cluster.ca", "ca", path),
    _Key("cluster.lease", "lease_s", duration_between(2.0, 60.0)),
    _Key("cluster.acknowledge", "acknowledge", one_of(QUORUM, QUORUM_LOCAL, QUORUM_FOLLOWER)),
    _Key("cluster.local_sync", "local_sync_s", local_sync_s),
    _Key("cluster.keep", "keep", keep),
    _Key("traces.endpoint", "endpoint", traces_endpoint),
    _Key("traces.share", "share", share),
    _Key("traces.service", "service", service_name),
    _Key("traces.headers", "headers", trace_headers),
    _Key("logging.level", "level", one_of("debug", "info", "warning", "error")),
    _Key("logging.format", "format", one_of("json", "text")),
)
FLAGS: Final = {
    "--storage": "storage.path",
    "--host": "http.host",
    "--port": "http.port",
    "--insecure": "http.insecure",
    "--log-level": "logging.level",
    "--log-format": "logging.format",
}
_LINKS: Final = ("tcp://", "udp://", "sctp://")
_SHORT: Final = {"SYNCBROK_PORT": "http.port", "SYNCBROK_HOST": "http.host"}
_OF_KUBERNETES: Final = re.compile(
    r"SYNCBROK_(?:SERVICE|PORT)_\w+|SYNCBROK_\w+_(?:SERVICE_(?:HOST|PORT)(?:_\w+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_\w+)?)"
)
VARIABLES: Final = (*_SHORT, *(key.variable for key in _KEYS))
_PLAIN_SECTIONS: Final = ("storage", "http", "guard", "groups", "defaults", "traces", "logging")
"""each is there, with its defaults, whatever is given"""
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


def _from_file(top: YamlEntry, turned_on: set[str]) -> dict[str, Any]:
    """The values by their keys' paths. A frontend is turned on by being named."""
    given: dict[str, Any] = {}
    keys = {key.path: key for key in _KEYS}
    waiting = [(top, "")]
    while waiting:
        mapping, place = waiting.pop()
        for name, entry in mapping.mapping(_names_below(place)).items():
            path_ = place + name
            if place == "frontends.":
                turned_on.add(name)
            if path_ in keys:
                given[path_] = entry.read(keys[path_].parse)
            else:
                waiting.append((entry, f"{path_}."))
    return given


def _names_below(place: str) -> Sequence[str]:
    """The keys that may stand in the mapping of this path, which ends with a dot; ``""`` for the whole file."""
    below = (key.path.removeprefix(place) for key in _KEYS if key.path.startswith(place))
    return list(dict.fromkeys(path_.partition(".")[0] for path_ in below))


def _from_variables(variables: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    keys = {key.path: key for key in _KEYS}
    for variable, key_path in _SHORT.items():
        if variable in variables and not is_of_kubernetes(variable, variables[variable]):
            given[key_path] = _read_text(keys[key_path], variables[variable], variable)
    by_variable = {key.variable: key for key in _KEYS}
    for variable in _ours(variables):
        key = by_variable.get(variable)
        if key is None:
            raise BadConfig(f"{variable}: unknown variable{suggest(variable, by_variable)}")
        given[key.path] = _read_text(key, variables[variable], variable)
    return given


def is_of_kubernetes(variable: str, value: str = "") -> bool:
    """Whether Kubernetes sets it in every pod beside a Service that is called syncbrok, or syncbrok-..., such as
    ``SYNCBROK_PORT=tcp://10.0.0.1:80``: not meant for us."""
    return value.startswith(_LINKS) or bool(_OF_KUBERNETES.fullmatch(variable))


def _ours(variables: Mapping[str, str]) -> Iterator[str]:
    prefixes = tuple(f"SYNCBROK_{section.upper()}_" for section in _SECTIONS)
    whole = {key.variable for key in _KEYS if "." not in key.path}
    return (
        variable
        for variable, value in sorted(variables.items())
        if (variable in whole or variable.startswith(prefixes)) and not is_of_kubernetes(variable, value)
    )


def _read_text(key: _Key, text: str, source: str) -> Any:
    """A variable or flag: text, but for lists of mappings, which are YAML (JSON is YAML)."""
    if key.parse in (tokens, engine):
        return read_yaml(text, source, {}, key=key.path, numbered=False).read(key.parse)
    try:
        return key.parse(text)
    except BadSetting as wrong:
        raise BadConfig(f"{source}: {wrong.detail}", key=key.path) from None


def _built(given: Mapping[str, Any], turned_on: set[str]) -> Config:
    by_section: dict[str, dict[str, Any]] = {}
    field_of = {key.path: key.field for key in _KEYS}
    for key_path, value in given.items():
        by_section.setdefault(key_path.rpartition(".")[0], {})[field_of[key_path]] = value
    frontends = {
        name: type_(**by_section.get(f"frontends.{name}", {}), tls=_tls(f"frontends.{name}.tls", by_section))
        for name, type_ in _FRONTENDS.items()
        if name in turned_on or f"frontends.{name}" in by_section or f"frontends.{name}.tls" in by_section
    }
    config = Config(frontends=FrontendsConfig(**frontends), cluster=_cluster(by_section.get("cluster")))
    sections = {name: replace(getattr(config, name), **by_section.get(name, {})) for name in _PLAIN_SECTIONS}
    sections["http"] = replace(sections["http"], tls=_tls("http.tls", by_section))
    config = replace(config, **sections, **by_section.get("", {}))
    if config.cluster is not None and config.storage.sync_interval_ms:
        what = "storage.sync is an interval: in a cluster a quorum has fsynced what is acknowledged"
        raise BadConfig(f"{what}; leave it out", key="storage.sync")
    if config.http.content_bytes_max > config.http.batch_bytes_max:
        raise BadConfig("http.body is larger than http.batch; a batch must have room for one message", key="http.body")
    return config


def _cluster(given: Mapping[str, Any] | None) -> ClusterConfig | None:
    if given is None:
        return None
    for name in ("node", "engine", "advertise", "key"):
        if name not in given:
            raise BadConfig(f"cluster has no {name}: a node of a cluster needs it", key="cluster")
    return ClusterConfig(**given)


def _tls(section: str, by_section: Mapping[str, Mapping[str, Any]]) -> TlsConfig | None:
    given = by_section.get(section)
    if given is None:
        return None
    for name in ("cert", "key"):
        if name not in given:
            found = ", ".join(given)
            raise BadConfig(f"{section} has {found} and no {name}: a listener needs both cert and key", key=section)
    return TlsConfig(**given)
