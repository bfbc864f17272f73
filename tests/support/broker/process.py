"""A real broker in a process of its own: started, asked, killed, started again on the same log."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.support.broker.forked import Forked, fork
from tests.support.polling import eventually_blocking

ROOT = Path(__file__).parents[3]
_AS_IT_IS = ["-m", "syncbrok"]
_ANY_PORT = {"msgpack_bus": {"producer_port": 0, "consumer_port": 0}}
_TCP_PORT = re.compile(r'"event":"syncbrok.broker.listens",.*"setting":"frontends.([^"]+)",.*"port":(\d+)')


@contextmanager
def held_port() -> Iterator[int]:
    """A TCP port of loopback for what has to be told one and cannot be asked which it took. While it is held the system
    gives it to nobody, connections to it are refused, and a server that is told it can listen on it: servers set
    SO_REUSEADDR."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def resident_bytes(pid: int, field: str = "VmRSS") -> int:
    """How much memory a process has now; with ``VmHWM``, the most that it had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) * 1024


class Reply(NamedTuple):
    """An answer over HTTP, whatever its status."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def request(
    url: str,
    method: str,
    body: bytes | dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = 70.0,
) -> Reply:
    """One request; a dictionary goes as JSON. Raises ``OSError`` where there is no answer."""
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    kind = "application/json" if isinstance(body, dict) else "application/octet-stream"
    asked = urllib.request.Request(url, data, {"Content-Type": kind, **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=timeout_s, context=tls) as answer:
            return Reply(answer.status, dict(answer.headers), answer.read())
    except urllib.error.HTTPError as refused:
        with refused:
            return Reply(refused.code, dict(refused.headers), refused.read())


class BrokerProcess:
    """``syncbrok serve`` on ``storage``. As a context manager it is running inside and killed at the end. It takes
    ports that are free; they are known once it has served, and are the same after another start."""

    def __init__(
        self,
        storage: Path,
        *,
        queues: str | None = None,
        config: str | None = None,
        frontends: Iterable[str] = (),
        probed: bool = False,
        descriptors: int | None = None,
        tls: ssl.SSLContext | None = None,
        confined: bool = False,
    ) -> None:
        """``frontends``: which of those over TCP it has, see ``tcp``. ``probed``: it tells of its longest callback, see
        ``longest_callback``. ``descriptors``: its limit of open files, soft and hard. ``tls``: with which it is asked,
        where ``config`` says that HTTP speaks TLS. ``confined``: as the systemd unit has it."""
        self._confined = confined
        self.tls = tls
        self.storage = storage
        self.bad_sector: tuple[Path, int] | None = None
        """a file and an offset in it whose page a start from now on cannot read"""
        self._probe = storage.parent / f"{storage.name}.longest" if probed else None
        limit = ("sh", "-c", 'ulimit -n "$0" && exec "$@"', str(descriptors))
        self._limited = () if descriptors is None else limit
        self.port = 0
        self.tcp: dict[str, int] = {}
        """ports by frontend, once it has served: ``framed``; where it has two ``msgpack_bus.producer_port``"""
        if frontends:
            wanted = {one: _ANY_PORT.get(one, {"port": 0}) for one in frontends}
            config = f"{config or ''}frontends: {json.dumps(wanted)}\n"
        self.log_path = storage.parent / f"{storage.name}.out"
        self._arguments = ["serve", "--storage", str(storage)]
        for flag, text in (("--queues", queues or "queues: {}\n"), ("--config", config)):
            if text is not None:
                file = storage.parent / f"{storage.name}{flag}.yml"
                file.write_text(text)
                self._arguments += [flag, str(file)]
        self._process: subprocess.Popen[bytes] | Forked | None = None

    answer_s = 70.0
    """for an answer to ``request``"""
    tree = ROOT
    """the project whose broker runs: this one, or a copy that was broken on purpose"""
    wrong_clock: tuple[str, str] | None = None
    """seconds that it is ahead, and its rate (``tests.support.broker.wrong_clock``)"""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    @property
    def url(self) -> str:
        assert self.port, "not started"
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes] | Forked:
        assert self._process is not None, "not started"
        return self._process

    def start(self, timeout_s: float = 30.0) -> None:
        """Start it and return when ``/readyz`` says so. Where its port of before is another's now it is tried again."""
        self._began_at = len(self.output())
        self._spawn()
        eventually_blocking(self._ready, lambda: f"a broker on port {self.port}; it said:\n{self.output()}", timeout_s)

    @property
    def _module(self) -> list[str]:
        if self.bad_sector is not None:
            return ["-m", "tests.support.disk.bad_sector", *map(str, self.bad_sector)]
        if self.wrong_clock is not None:
            return ["-m", "tests.support.broker.wrong_clock", *self.wrong_clock]
        if self._confined:
            return ["-m", "tests.support.broker.confined"]
        return _AS_IT_IS if self._probe is None else ["-m", "tests.support.broker.probed", str(self._probe)]

    def longest_callback(self) -> tuple[float, str]:
        """Processor seconds of the longest callback of the event loop since this was asked last, and which that was;
        0 where none took ``probed.TOLD_FROM_S``."""
        assert self._probe is not None, "not probed"
        try:
            told = self._probe.read_text()
            self._probe.unlink()
        except FileNotFoundError:
            return 0.0, ""
        seconds, _, name = told.partition(" ")
        return float(seconds), name

    def resident_bytes(self) -> int:
        """How much memory it has now."""
        return resident_bytes(self.process.pid)

    def _spawn(self) -> None:
        again = {_variable(frontend): str(port) for frontend, port in self.tcp.items()}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SYNCBROK_")} | again
        arguments = [*self._arguments, "--port", str(self.port)]
        if not self._limited and self._module == _AS_IT_IS and self.tree == ROOT:
            self._process = fork(arguments, self.tree, environment, self.log_path)
            if self._process is not None:
                return
        with self.log_path.open("ab") as out:
            self._process = subprocess.Popen(
                [*self._limited, sys.executable, *self._module, *arguments],
                cwd=self.tree,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
            )

    def kill(self) -> None:
        """End it as a crash does: SIGKILL, no chance to say anything."""
        process = self.process  # a supervisor may have started the next one by the time this one is waited for
        process.kill()
        process.wait()

    def terminate(self, timeout_s: float = 40.0) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def request(
        self, method: str, path: str, body: bytes | dict[str, Any] | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """One request to the broker; a dictionary goes as JSON. Raises ``OSError`` where there is no answer."""
        return request(self.url + path, method, body, headers, self.tls, self.answer_s)

    def output(self) -> str:
        """What it has written to its standard output and error."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _ready(self) -> bool:
        said = self.output()[self._began_at :]
        if self.port and self.process.poll() is not None and "address already in use" in said.lower():
            self._began_at += len(said)
            self._spawn()
            return False
        assert self.process.poll() is None, f"the broker ended with {self.process.returncode}:\n{self.output()}"
        if not self.port:
            found = re.search(r"^Syncbrok serves on https?://[^ ]+:(\d+), ", said, re.MULTILINE)
            if found is None:
                return False
            self.port = int(found[1])
            self.tcp |= {name.removesuffix(".port"): int(port) for name, port in _TCP_PORT.findall(said)}
        try:
            return self.request("GET", "/readyz").status == 200
        except OSError:
            return False


def _variable(frontend: str) -> str:
    """Of a port of a frontend, by its name in ``tcp``."""
    setting = frontend if "." in frontend else f"{frontend}.port"
    return "SYNCBROK_FRONTENDS_" + setting.upper().replace(".", "_")
