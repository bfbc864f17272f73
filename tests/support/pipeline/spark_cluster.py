"""A real Spark cluster on loopback: a standalone master and workers, started through the ``spark-class`` of the
installed PySpark, each a process that is ended by its own id."""

import json
import os
import subprocess
import sys
import sysconfig
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import pyspark

from syncbrok.pipeline.java import java_home
from tests.support.broker.process import held_port
from tests.support.polling import eventually_blocking

LOOPBACK: Final = "127.0.0.1"
WORKERS: Final = 2
_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS: Final = {
    "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.driver.extraJavaOptions": _QUICK,
    "spark.sql.shuffle.partitions": "2",
}
"""for a driver on this cluster: little data, little memory"""
_SPARK_HOME: Final = Path(pyspark.__file__).parent


class Cluster:
    """As a context manager it has ``WORKERS`` registered workers inside, of one core each.

    ``python`` is what its workers start: the Python of the tests, without Syncbrok. So what runs on it has Syncbrok
    only where the package was shipped.
    """

    def __init__(self, folder: Path) -> None:
        self.python = python_without_syncbrok(folder)
        self._folder = folder
        self.unseen = folder / "unseen"
        """the paths, one a line, below which processes that its workers start from now on see nothing"""
        self._running = ExitStack()
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        with self._running as running:
            self.port, self._status_port = (running.enter_context(held_port()) for _ in range(2))
            self.url = f"spark://{LOOPBACK}:{self.port}"
            self._start("master", "--host", LOOPBACK, "--port", str(self.port), "--webui-port", str(self._status_port))
            for number in range(WORKERS):
                given = ("--host", LOOPBACK, "--webui-port", "0", "--cores", "1", "--memory", "1g")
                self._start("worker", *given, "--work-dir", str(self._folder / f"worker-{number}"), self.url)
            eventually_blocking(lambda: self.state().get("aliveworkers") == WORKERS, "the workers registered", 60)
            self._running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def state(self) -> dict[str, Any]:
        """What the master says of itself; nothing while it does not answer."""
        for daemon in self._daemons:
            assert daemon.poll() is None, f"a daemon of the cluster ended with {daemon.returncode}:\n{self.output()}"
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self._status_port}/json/", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError):  # it answers with another page before it is ready
            return {}

    def environment(self) -> dict[str, str]:
        """For a driver: this cluster's Python for the workers, loopback, and little memory."""
        return {**_environment(), "PYSPARK_PYTHON": str(self.python), "SPARK_DRIVER_MEMORY": "700m"}

    def output(self) -> str:
        """What the daemons, and the executors of the workers, have said on standard error."""
        said = [*self._folder.glob("*.out"), *self._folder.glob("worker-*/app-*/*/stderr")]
        return "\n".join(f"== {file.relative_to(self._folder)}\n{file.read_text(errors='replace')}" for file in said)

    def _start(self, role: str, *arguments: str) -> None:
        name = f"org.apache.spark.deploy.{role}.{role.capitalize()}"
        number = len(self._daemons)
        with (self._folder / f"{role}-{number}.out").open("wb") as out:
            daemon = subprocess.Popen(
                [str(_SPARK_HOME / "bin" / "spark-class"), name, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**_environment(), "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _QUICK},
            )
        self._daemons.append(daemon)
        self._running.callback(self._end, daemon)

    def _end(self, daemon: "subprocess.Popen[bytes]") -> None:
        """SIGTERM: a worker ends its executors before it goes. ``spark-class`` becomes the JVM, so the id is its."""
        daemon.terminate()
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        self._daemons.remove(daemon)


_SEES_LESS: Final = """
import os, runpy, sys
with open(sys.argv[1]) as file:
    unseen = file.read().splitlines()
def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        if any(arguments[0].startswith(one) for one in unseen):
            raise PermissionError(13, "a worker sees no disk of the broker", arguments[0])
sys.addaudithook(refuse)
_, _, kind, what, *sys.argv[1:] = sys.argv
if kind == "-m":
    runpy.run_module(what, run_name="__main__", alter_sys=True)
else:
    exec(what, {"__name__": "__main__"})
"""


def python_without_syncbrok(folder: Path) -> Path:
    """A command that is this Python with everything it has installed but Syncbrok. It runs a module (``-m``) or code
    (``-c``), and sees none of the files below the paths that stand in ``folder / "unseen"`` when it is started."""
    packages = folder / "packages"
    packages.mkdir()
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            if "syncbrok" not in entry.name and entry.suffix != ".pth" and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    command = folder / "python"
    program, unseen = folder / "sees_less.py", folder / "unseen"
    program.write_text(_SEES_LESS)
    unseen.touch()
    # -S: no site-packages, and with them none of the files that put the checkout on the path.
    python = f'"{sys.executable}" -S "{program}" "{unseen}"'
    command.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {python} "$@"\n')
    command.chmod(0o755)
    return command


def _environment() -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("SYNCBROK_", "PYSPARK_", "SPARK_"))
    }
    return {**kept, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": LOOPBACK, "SPARK_HOME": str(_SPARK_HOME)}
