"""Reads the settings of a cluster for its commands, from the configuration of a node, and reaches its engine."""

import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from syncbrok.cli.exits import REFUSED, UNREACHABLE, CommandFailed
from syncbrok.config import ClusterConfig, Config, load_config
from syncbrok.model.errors import BadConfig

if TYPE_CHECKING:
    from syncbrok.cluster.engine import Engine

_CONFIG: Final = Path("config/broker.yml")
_PATIENCE_S: Final = 30.0
_AGAIN_S: Final = 0.5
C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")


def configured(command: C) -> C:
    """Gives a command ``--config`` as the argument ``config_path``."""
    help_ = "Configuration of a node; config/broker.yml where there is one."
    file = click.Path(path_type=Path)
    return click.option("--config", "config_path", type=file, envvar="SYNCBROK_CONFIG", metavar="FILE", help=help_)(
        command
    )


def default_config() -> Path | None:
    """The file that is read where none is named."""
    return _CONFIG if _CONFIG.exists() else None


def read_cluster(config_path: Path | None) -> tuple[Config, ClusterConfig]:
    """The configuration and its section ``cluster``. Raises ``BadConfig``, also where that is missing."""
    path = config_path or default_config()
    config = load_config(path, os.environ, {})
    if config.cluster is None:
        what = f"{path or 'the configuration'} has no section cluster"
        raise BadConfig(f"{what}; docs/cluster.md shows one, --config names another file", key="cluster")
    return config, config.cluster


@contextmanager
def with_extra() -> Iterator[None]:
    """Inside, a package of the extra that is missing becomes a ``CommandFailed``."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise CommandFailed(f"this needs {missing.name}", mend="pip install 'syncbrok[cluster]' brings it") from missing


def engine_of(cluster: ClusterConfig) -> "Engine":
    """The engine that the section names, not connected. Needs the extra. Raises ``BadConfig``."""
    from syncbrok.cluster.engine import Engine, EngineServer  # noqa: PLC0415  they need an extra

    servers = [EngineServer(one.url, one.monitor) for one in cluster.engine]
    return Engine(cluster.space, servers, cluster.credentials, _tls(cluster.ca))


def _tls(ca: Path | None) -> ssl.SSLContext | None:
    if ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=str(ca))
    except OSError as error:
        why = "it holds no certificates in PEM" if isinstance(error, ssl.SSLError) else error.strerror
        raise BadConfig(f"cluster.ca: {ca} cannot be used: {why}", key="cluster.ca") from error


@contextmanager
def connected(cluster: ClusterConfig) -> Iterator["Engine"]:
    """The engine that the section names. What it raises besides becomes a ``CommandFailed``."""
    with with_extra():
        from syncbrok.cluster.engine import EngineUnfit  # noqa: PLC0415  it needs an extra
    engine = engine_of(cluster)
    try:
        engine.connect()
        yield engine
    except EngineUnfit as unfit:
        raise CommandFailed(unfit.detail, REFUSED) from unfit
    except OSError as silent:
        if silent.filename is not None:
            raise
        raise CommandFailed(str(silent), UNREACHABLE, "are its servers running (syncbrok cluster engine)?") from silent
    finally:
        engine.close()


def patiently(ask: Callable[[], T]) -> T:
    """The engine's answer to ``ask``, which is asked again for a while where the engine does not answer, as after its
    own start. Only for what is the same when it is done twice."""
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return ask()
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(_AGAIN_S)


def refuse_lazy(engine: "Engine") -> None:
    """Raises ``CommandFailed`` where a server does not fsync each message, or does not say."""
    for one in engine.servers:
        always = engine.syncs_always(one)
        if always is None:
            mend = "all servers must be up when the stream is made: it has a replica on each"
            raise CommandFailed(f"{one.monitor} does not say how the server runs", UNREACHABLE, mend)
        if not always:
            mend = "run it with syncbrok cluster engine, or set sync_interval: always in its nats.conf"
            raise CommandFailed(f"{one.url} does not fsync each message before it is answered", REFUSED, mend)
