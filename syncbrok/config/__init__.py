"""How the broker runs. Outside this package only the names below are used."""

from syncbrok.config.exposure import beside_tokens, refuse_exposed
from syncbrok.config.load import FLAGS, VARIABLES, load_config
from syncbrok.config.sections import (
    ClusterConfig,
    Config,
    EngineConfig,
    FramedConfig,
    HttpConfig,
    MsgpackBusConfig,
    ResolverConfig,
    TlsConfig,
    TokenConfig,
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
    "TokenConfig",
    "beside_tokens",
    "load_config",
    "refuse_exposed",
]
