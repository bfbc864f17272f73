"""``syncbrok serve``."""

import asyncio
import difflib
import errno
import logging
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from syncbrok.cli.exits import EXIT_CODES, CommandFailed
from syncbrok.cli.serve.broker import Queues, serve
from syncbrok.cli.serve.log_lines import start_logging
from syncbrok.config import VARIABLES, Config, beside_tokens, is_of_kubernetes, load_config, refuse_exposed
from syncbrok.frontends.from_yaml import read_queues_file
from syncbrok.frontends.listening import CannotListen
from syncbrok.model.errors import BadConfig
from syncbrok.space.budgets import Budgets, raise_descriptors
from syncbrok.space.state.secret_store import stored_tokens
from syncbrok.yaml_file import variables_in

_log: Final = logging.getLogger("syncbrok.broker")
_PREFIX: Final = "SYNCBROK_"
_OF_COMMANDS: Final = ("CONFIG", "QUEUES", "URL", "TOKEN", "CA", "CERT", "TRACE")
_VARIABLES: Final = (*VARIABLES, *(f"{_PREFIX}{name}" for name in _OF_COMMANDS))
_CONFIG: Final = Path("config/broker.yml")
_QUEUES: Final = Path("queues.yml")

_HELP: Final = f"""Run the broker until SIGTERM or SIGINT.

Flags win over SYNCBROK_* variables, which win over the configuration file.
SIGHUP reads the file of queues again, the tokens of the configuration, and the certificates that it names.
Standard output gets one line, with the address, once it serves; standard error gets its log.

\b
Examples:
  syncbrok serve
  syncbrok serve --storage /var/lib/syncbrok --port 11000
  SYNCBROK_STORAGE_SYNC=interval:50 syncbrok serve --log-format text

{EXIT_CODES}
"""


@click.command("serve", help=_HELP)
@click.option("--config", "config_path", type=click.Path(path_type=Path), envvar="SYNCBROK_CONFIG", metavar="FILE",
              help="Configuration; config/broker.yml where there is one.")  # fmt: skip
@click.option("--queues", "queues_path", type=click.Path(path_type=Path), envvar="SYNCBROK_QUEUES", metavar="FILE",
              help="Queues and subscribers to declare; queues.yml where there is one.")  # fmt: skip
@click.option("--storage", metavar="DIR", help="Where the log is kept; storage/ by default.")
@click.option("--host", metavar="ADDRESS", help="Where to listen; 127.0.0.1 by default.")
@click.option("--port", metavar="PORT", help="10000 by default; 0 takes any that is free.")
@click.option(
    "--insecure",
    metavar="HOW",
    help="no (the default), plaintext or open: how far a listener may be open to other machines.",
)
@click.option("--log-level", metavar="LEVEL", help="debug, info (the default), warning or error.")
@click.option("--log-format", metavar="FORMAT", help="json (the default) or text.")
def command(config_path: Path | None, queues_path: Path | None, **given: str | None) -> None:
    """See ``_HELP``."""
    flags = {f"--{name.replace('_', '-')}": value for name, value in given.items() if value is not None}
    variables = dict(os.environ)
    queues_path = queues_path or (_QUEUES if _QUEUES.exists() else None)
    file = None if queues_path is None else read_queues_file(queues_path, variables)
    config_path = config_path or (_CONFIG if _CONFIG.exists() else None)

    def read_config() -> Config:
        return load_config(config_path, variables, flags, None if file is None else file.storage)

    config = read_config()
    refuse_misspelt(variables, {name for path in (config_path, queues_path) if path for name in variables_in(path)})
    queues = None if queues_path is None or file is None else Queues(queues_path, file, config.queue_defaults)
    has_tokens = bool(stored_tokens(config.storage.path))
    refuse_exposed(config, has_tokens=has_tokens)
    os.umask(0o077)  # the log and the secrets are nobody else's business
    start_logging(config.logging.level, config.logging.format)
    budgets = Budgets.of(raise_descriptors())
    for name in beside_tokens(config, has_tokens=has_tokens):
        _log.warning("syncbrok.broker.frontend_without_tokens", extra={"frontend": name})

    def announce(url: str) -> None:
        with suppress(BrokenPipeError):  # nobody reads it; the broker is no less up for that
            click.echo(f"Syncbrok serves on {url}, log in {config.storage.path}")

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve(config, queues, variables, budgets, announce, read_config))
    except OSError as error:
        raise _unusable(error, config) from error


def _unusable(error: OSError, config: Config) -> CommandFailed:
    if error.filename is not None:
        what = f"cannot keep the log in {config.storage.path}: {os.fsdecode(error.filename)}: {error.strerror}"
        return CommandFailed(what, mend="--storage takes another directory")
    if isinstance(error, CannotListen):
        what = f"cannot listen on {error.host} port {error.port}: {error.strerror or error}"
        mend = "the host and port of its frontend in the configuration take others"
    else:
        what = f"cannot listen on {config.http.host} port {config.http.port}: {error.strerror or error}"
        mend = "--host takes another address, --port another port"
    running = "is a broker running already? " if error.errno == errno.EADDRINUSE else ""
    return CommandFailed(what, mend=running + mend)


def misspelt(variables: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Variables that look like one of ours and are none, each with the one that may be meant. Others with the prefix
    are left alone: an operator may have them for other programs. (Inside a section all are mistakes; see config.)"""
    known = {one.removeprefix(_PREFIX): one for one in _VARIABLES}
    for name in sorted(variables):
        if not name.startswith(_PREFIX) or name in _VARIABLES or is_of_kubernetes(name):
            continue
        for near in difflib.get_close_matches(name.removeprefix(_PREFIX), known, n=1, cutoff=0.75):
            yield name, known[near]


def refuse_misspelt(variables: Iterable[str], used: Collection[str]) -> None:
    """Raises ``BadConfig`` for variables that look like one of ours and are none, but for those that are ``used`` in
    the files: passed over, the broker would run with another port or another storage than it was given."""
    found = [
        f"{name}: unknown variable; did you mean {meant}?" for name, meant in misspelt(variables) if name not in used
    ]
    if found:
        raise BadConfig("\n".join(found))


def _loop_factory() -> Any:
    try:
        import uvloop  # noqa: PLC0415  there is none for every system
    except ImportError:
        return None
    return uvloop.new_event_loop
