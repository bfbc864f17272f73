"""How the broker runs. Outside this package only the names below are used."""

from syncbrok.config.exposure import beside_tokens, may_be_open, refuse_exposed
from syncbrok.config.load import FLAGS, VARIABLES, is_of_kubernetes, load_config
from syncbrok.config.sections import (
    ClusterConfig,
    Config,
    EngineConfig,
    FramedConfig,
    HttpConfig,
    MsgpackBusConfig,
    ResolverConfig,
    TlsConfig,
    TracesConfig,
    is_loopback,
    port_keys,
)

__all__ = [
    "FLAGS",
    "VARIABLES",
    "ClusterConfig",
    "Config",
    "EngineConfig",
    "FramedConfig",
    "HttpConfig",
    "MsgpackBusConfig",
    "ResolverConfig",
    "TlsConfig",
    "TracesConfig",
    "beside_tokens",
    "is_loopback",
    "is_of_kubernetes",
    "load_config",
    "may_be_open",
    "port_keys",
    "refuse_exposed",
]
