"""A Spark session with the settings Syncbrok needs, each only where nobody else has set it.

Settings are made at three moments:

- before the JVM starts: settings of its command line (memory, stack, logging) go into the environment variables
  ``SPARK_SUBMIT_OPTS`` and ``SPARK_DRIVER_MEMORY``, over which all other settings of a user win;
- when it runs: it has read ``spark-defaults.conf`` (of ``SPARK_CONF_DIR``), ``PYSPARK_SUBMIT_ARGS`` and the flags of
  ``spark-submit``, so it is asked, and only missing settings are added;
- if a session is active already: only settings that may still change and have no value.

Arguments of ``session`` itself (``--master`` and ``--conf`` of the commands) win over all of these.
"""

import atexit
import os
import re
import shlex
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

import syncbrok
from syncbrok.model.errors import SyncbrokError
from syncbrok.model.limits import MIB
from syncbrok.pipeline.java import java_home
from syncbrok.pipeline.spark_errors import explained
from syncbrok.pipeline.stderr_filter import filtered

_UNCHECKED: Final = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")
"""Spark asks whether a value is null before it reads it; that Arrow checks each read as well is a tenth of a scan"""
SETTINGS: Final = {
    # Bytes between the JVM and Python over a Unix domain socket: a tenth to a fifth less time on a scan.
    "spark.python.unix.domain.socket.enabled": "true",
    # Times are UTC, whatever the machine's zone: an hour of the report is the same hour everywhere.
    "spark.sql.session.timeZone": "UTC",
    # Cached data is kept in as few parts as possible: a small part costs more than the data in it.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    # For the processes on a cluster; the driver's settings stand on its command line.
    "spark.executor.extraJavaOptions": " ".join(_UNCHECKED),
    "spark.ui.enabled": "false",
}
"""what is set where the user has not"""

_LOOPBACK: Final = {
    # The JVM listens for its Python workers and for itself; neither is anybody else's.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_SHUFFLED_TO: Final = 32
"""parts of what is shuffled, for each core: of a log of 100 million messages one is a few million rows"""
_RUNTIME: Final = tuple(name for name in SETTINGS if name.startswith("spark.sql."))
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_MEMORY_SHARE: Final = 0.4  # of the machine's; Python's workers and the page cache want the rest
_MEMORY_MIN: Final = 1024 * MIB
_MEMORY_MAX: Final = 16 * 1024 * MIB
_ROOMS: Final = ("model", "log", "client", "pipeline")  # what workers import
_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)|$)")


class SparkFailed(SyncbrokError):
    """Spark did not start, or is not one that Syncbrok can use."""

    slug = "spark-failed"


def session(
    master: str | None = None,
    name: str | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    little: bool = False,
) -> SparkSession:
    """The active session, else a new one, with ``syncbrok`` registered as a format.

    ``master`` is where it runs (None: what Spark is configured for, else ``local[*]``), ``name`` what a cluster shows,
    ``settings`` are Spark's. ``little``: it is for little data, so the JVM need not learn to be fast. An active session
    keeps its master and name. Raises ``NoJava`` and ``SparkFailed``."""
    if os.environ.get("SPARK_REMOTE") or (master or "").startswith("sc://"):
        raise SparkFailed(
            "Spark Connect has no way to bring a data source along; use the cluster's own address as master "
            "(spark://, yarn, k8s://) and unset SPARK_REMOTE"
        )
    given = dict(settings or {})
    if master:
        given["spark.master"] = master
    if name:
        given.setdefault("spark.app.name", name)
    spark = active()
    if spark is None:
        spark = _started(given, little=little)
    else:
        _complete(spark, dict(settings or {}))
    if not is_local(spark):
        _ship(spark)
    from syncbrok.pipeline.source.data_source import SyncbrokDataSource  # noqa: PLC0415  # it needs Arrow too

    spark.dataSource.register(SyncbrokDataSource)
    return spark


def active() -> SparkSession | None:
    """The session that runs in this process already; None without one."""
    if SparkContext._active_spark_context is None:  # noqa: SLF001  # no public name says it
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def is_local(spark: SparkSession) -> bool:
    """True if everything runs in this one process and its workers, so on this machine's files and Python."""
    return _LOCAL.match(str(spark.sparkContext.master)) is not None


def zipped(folder: Path) -> Path | None:
    """A zip in ``folder`` with the part of this package that workers import: for ``--py-files``, which takes no wheel.
    The packages that it needs (pyarrow, numpy, crc32c, orjson, pyspark's pandas) must be on the workers.

    None where this process has the package from a zip: then it was shipped already.
    """
    package = Path(syncbrok.__file__).parent
    if not package.is_dir():
        return None
    made = folder / f"syncbrok-{syncbrok.__version__}.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for source in (package / "__init__.py", *(path for room in _ROOMS for path in (package / room).rglob("*.py"))):
            file.write(source, source.relative_to(package.parent))
    return made


def _ship(spark: SparkSession) -> None:
    """Send this package to the workers of a cluster, which need not have it installed."""
    if any("syncbrok-" in str(file) for file in spark.sparkContext.listFiles):
        return  # by an earlier call
    folder = Path(tempfile.mkdtemp(prefix="syncbrok-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = zipped(folder)
    if made is not None:
        spark.sparkContext.addPyFile(str(made))


def _started(given: Mapping[str, str], *, little: bool) -> SparkSession:
    """A new session: the JVM is started, asked what it was told, and told the rest."""
    has_python = "PYSPARK_PYTHON" in os.environ
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers are the first python3 on the PATH
    told = SparkConf(loadDefaults=False).setAll(list(given.items()))
    if SparkContext._gateway is None:  # noqa: SLF001  # no public name says it
        _start_jvm(told, little=little)
    conf = SparkConf().setAll(list(given.items()))
    if not has_python:  # which the configuration may say too, and PySpark does not look
        os.environ["PYSPARK_PYTHON"] = str(conf.get("spark.pyspark.python", sys.executable))
    local = _LOCAL.match(str(conf.get("spark.master", "local[*]")))
    if local is not None:
        _fill(conf, _LOOPBACK if "SPARK_LOCAL_IP" not in os.environ else {})
        _fill(conf, of_one_machine(local[1] or "1"))
    _fill(conf, SETTINGS)
    try:
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:
        where = str(conf.get("spark.master", "local[*]"))
        why = explained(error).message.partition("\n")[0]
        is_remote = "://" in where
        mend = "; is a cluster there, and do it and this machine reach each other?" if is_remote else ""
        raise SparkFailed(f"Spark did not start on {where}: {why}{mend}") from error


def of_one_machine(cores: str) -> dict[str, str]:
    """Settings for a local master with so many cores; ``*``: all of the machine's.

    Spark cuts a shuffle into 200 parts, for a cluster of any size. Here the number follows the cores: small data costs
    less and is put together into one part again; a part of large data still fits into memory.
    """
    count = len(os.sched_getaffinity(0)) if cores == "*" else int(cores)
    return {"spark.sql.shuffle.partitions": str(_SHUFFLED_TO * count)}


def _start_jvm(told: SparkConf, *, little: bool) -> None:
    launching = {} if "PYSPARK_GATEWAY_PORT" in os.environ else launch_environment(os.environ, little=little)
    with _environment(launching):
        try:
            with nullcontext() if os.environ.get("SYNCBROK_TRACE") else filtered():
                SparkContext._ensure_initialized(conf=told)  # noqa: SLF001
        except PySparkRuntimeError as error:
            raise SparkFailed(
                f"the Java of Spark ended before it was there ({error.getErrorClass()}, JAVA_HOME="
                f"{launching.get('JAVA_HOME', os.environ.get('JAVA_HOME', ''))}); standard error says why"
            ) from error


def launch_environment(environment: Mapping[str, str], *, little: bool) -> dict[str, str]:
    """The variables under which the JVM starts. ``SPARK_SUBMIT_OPTS`` stands first on its command line, and of two that
    say the same the JVM takes the last: Java options of the user's configuration win."""
    options = ["-Xss4m"]  # stopping a stream overflows the JVM's usual stack (a regular expression on a stack trace)
    # Spark asks for a progress bar of its own where it thinks it is an interactive shell.
    options.append("-Dspark.ui.showConsoleProgress=false")
    options += _UNCHECKED
    if little:
        # Half of what a short job costs would be compiling well what is then hardly run.
        options.append("-XX:TieredStopAtLevel=1")
    if not _has_own_logging(environment):
        options.append(f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}")
    mine = " ".join(map(shlex.quote, options))
    launching = {
        "JAVA_HOME": str(java_home(environment)),
        "SPARK_SUBMIT_OPTS": f"{mine} {environment.get('SPARK_SUBMIT_OPTS', '')}".strip(),
    }
    if not _writes_utf8(environment):
        # Java calls files by the locale's characters: in that of a service or of cron a queue's folder cannot be made.
        launching["LC_ALL"] = "C.UTF-8"
    if "SPARK_DRIVER_MEMORY" not in environment:
        launching["SPARK_DRIVER_MEMORY"] = f"{memory_bytes() // MIB}m"
    return launching


def _writes_utf8(environment: Mapping[str, str]) -> bool:
    """True if the locale is one of UTF-8 (POSIX, 8.2: the first of these that is set and not empty says it)."""
    said = next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := environment.get(name))), "")
    return said.upper().replace("-", "").partition(".")[2].startswith("UTF8")


def memory_bytes(cgroup: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Memory for the JVM where the user sets none, in bytes: a share of the machine's, or of the container's."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = cgroup.read_text().strip() if cgroup.is_file() else ""
    if limit.isdecimal():
        total = min(total, int(limit))
    return int(min(max(total * _MEMORY_SHARE, _MEMORY_MIN), _MEMORY_MAX))


def _has_own_logging(environment: Mapping[str, str]) -> bool:
    """True if the user configures what Spark says, or wants to see all of it."""
    if environment.get("SYNCBROK_TRACE"):
        return True
    home = environment.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    place = environment.get("SPARK_CONF_DIR") or f"{home}/conf"
    return any(Path(place).glob("log4j2.*"))


def _fill(conf: SparkConf, settings: Mapping[str, str]) -> None:
    for key, value in settings.items():
        conf.setIfMissing(key, value)


def _complete(spark: SparkSession, given: Mapping[str, str]) -> None:
    """Add missing settings to a session that somebody else has started."""
    core = spark.sparkContext.getConf()
    for key in _RUNTIME:
        if not core.contains(key) and not _is_set(spark, key):
            spark.conf.set(key, SETTINGS[key])
    for key, value in given.items():
        if core.get(key) == value:
            continue
        if not spark.conf.isModifiable(key):
            raise SparkFailed(f"{key} cannot be changed to {value} in a session that runs; stop it first")
        spark.conf.set(key, value)


def _is_set(spark: SparkSession, key: str) -> bool:
    """True if somebody has given the running session a value for this setting."""
    sql: Any = spark._jsparkSession.sessionState().conf()  # noqa: SLF001  # spark.conf.get cannot tell it from a default
    return bool(sql.settings().containsKey(key))


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables while a process is being started."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
