"""The settings of ``syncbrok serve``: one frozen object with a part for each section of ``config/broker.yml``."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Any, Final, Literal

from syncbrok.delivery.webhook.address_guard import Allowed
from syncbrok.log.segments.options import Archive
from syncbrok.model import limits
from syncbrok.model.journal import QUORUM, QUORUM_LOCAL
from syncbrok.model.message import QueueSettings, Scope
from syncbrok.model.tokens import Token

LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """``sync_interval_ms`` 0: every commit is fsynced before it is answered (``sync: always``)."""

    path: Path = Path("storage")
    sync_interval_ms: int = 0
    segment_bytes: int = limits.segment_bytes_default
    retention_s: float = limits.retention_default_s
    erase_within_s: float = limits.erase_within_default_s
    reader_hold_s: float = limits.reader_hold_default_s
    reserve_bytes: int = limits.reserve_bytes
    archive: Archive = None

    @property
    def sync(self) -> str:
        return f"interval:{self.sync_interval_ms}" if self.sync_interval_ms else "always"


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """PEM files. With ``client_ca`` whoever connects must show a certificate of one of those authorities."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class HttpConfig:
    host: str = LOOPBACK
    port: int = 10_000
    tokens: tuple[Token, ...] = ()
    hosts: tuple[str, ...] = ()
    """names by which clients call this broker, besides this machine's own"""
    origins: tuple[str, ...] = ()
    """sites whose web pages may ask it"""
    insecure: str = "no"
    """``no``, ``plaintext`` or ``open``: how far a listener may be open to other machines"""
    proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    """networks of proxies whose ``X-Forwarded-For`` is believed"""
    content_bytes_max: int = limits.content_bytes_max
    batch_lines_max: int = limits.batch_lines_max
    batch_bytes_max: int = limits.batch_bytes_max
    parents_max: int = limits.parents_max
    headers_timeout_s: float = limits.request_headers_timeout_s
    body_timeout_s: float = limits.request_body_timeout_s
    connections_max: int = limits.http_connections_max
    connections_per_address_max: int = limits.http_connections_per_address_max
    tls: TlsConfig | None = None


@dataclass(frozen=True, slots=True)
class GuardConfig:
    """Networks that may be dialled besides public addresses, each with all its ports or with some."""

    allow: tuple[Allowed, ...] = ()


@dataclass(frozen=True, slots=True)
class ResolverConfig:
    """The resolver of names: asks ``servers`` if set, else ``getaddrinfo`` if ``system``, else the system's name
    servers."""

    system: bool = False
    servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FramedConfig:
    host: str = LOOPBACK
    port: int = 8_080
    tls: TlsConfig | None = None


@dataclass(frozen=True, slots=True)
class TopicsConfig:
    host: str = LOOPBACK
    port: int = 3_000
    tls: TlsConfig | None = None


@dataclass(frozen=True, slots=True)
class MultiplexedConfig:
    host: str = LOOPBACK
    port: int = 5_671
    tls: TlsConfig | None = None


@dataclass(frozen=True, slots=True)
class MsgpackBusConfig:
    host: str = LOOPBACK
    producer_port: int = 9_990
    consumer_port: int = 9_991
    tls: TlsConfig | None = None


@dataclass(frozen=True, slots=True)
class FrontendsConfig:
    """The TCP frontends that are on; None is off."""

    framed: FramedConfig | None = None
    topics: TopicsConfig | None = None
    multiplexed: MultiplexedConfig | None = None
    msgpack_bus: MsgpackBusConfig | None = None

    def on(self) -> Iterator[tuple[str, Any]]:
        """Name and settings of each that is on."""
        for one in fields(self):
            settings = getattr(self, one.name)
            if settings is not None:
                yield one.name, settings


def port_keys(frontend: Any) -> list[str]:
    """The keys of a TCP frontend's settings that say on which port it listens, one for each of its listeners."""
    return [one.name for one in fields(frontend) if one.name.endswith("port")]


@dataclass(frozen=True, slots=True)
class GroupsConfig:
    """``idle_after_s``: when a group of consumers that pull stops counting, or goes, since nobody uses it; 0: never."""

    idle_after_s: float = limits.idle_after_default_s


@dataclass(frozen=True, slots=True)
class DefaultsConfig:
    """``scope``: of a queue that is made without one."""

    scope: Scope = Scope.ALL


@dataclass(frozen=True, slots=True)
class TracesConfig:
    """``endpoint``: of a collector of OpenTelemetry, where it takes traces over HTTP; ``""``: none are made.
    ``share``: so many of the trees of messages are recorded. ``headers`` go to the collector."""

    endpoint: str = ""
    share: float = 1.0
    service: str = "syncbrok"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """A server of the engine: ``url`` for its clients, ``monitor`` where it says over HTTP how it runs."""

    url: str
    monitor: str


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """``keep``: of the engine's stream, what retention has left of the log, ``all``, or so many bytes.
    ``acknowledge``: who has a batch when its publishers are answered. ``local_sync_s``: how often a node fsyncs its own
    files; 0: at each commit. ``ca``: who signs the engine's certificates, in PEM; None: the system's authorities."""

    node: str
    engine: tuple[EngineConfig, ...]
    advertise: str
    key: Path
    space: str = "main"
    credentials: Path | None = None
    lease_s: float = 3.0
    keep: Literal["retention", "all"] | int = "retention"
    acknowledge: str = QUORUM
    local_sync_s: float = 1.0
    ca: Path | None = None

    @property
    def syncs_each(self) -> bool:
        """Whether a node's own files are fsynced at each commit."""
        return not self.local_sync_s or self.acknowledge == QUORUM_LOCAL


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
    resolver: ResolverConfig = ResolverConfig()
    frontends: FrontendsConfig = field(default_factory=FrontendsConfig)
    groups: GroupsConfig = GroupsConfig()
    defaults: DefaultsConfig = DefaultsConfig()
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    traces: TracesConfig = TracesConfig()
    cluster: ClusterConfig | None = None
    """None: this machine alone writes the log"""

    @property
    def queue_defaults(self) -> QueueSettings:
        """The settings of a queue for which none are given."""
        return QueueSettings(scope=self.defaults.scope)

    @property
    def sync(self) -> str:
        """The policy that an acknowledgement stands for, as answers name it (``Syncbrok-Sync``)."""
        return self.storage.sync if self.cluster is None else self.cluster.acknowledge

    @property
    def loopback_only(self) -> bool:
        """True if only this machine can connect. Then endpoints on it may be dialled too."""
        tcp = (settings for _, settings in self.frontends.on())
        return all(is_loopback(one.host) for one in (self.http, *tcp))


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a listener on ``host``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
