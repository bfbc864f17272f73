"""A whole cluster on this machine, to try it and to test it: three servers of the engine and three brokers, each a
process of its own, started by the commands that an operator types, and started again when it ends.

    DIRECTORY/engine/a   files of a server        DIRECTORY/a/broker.yml   configuration of a node
    DIRECTORY/cluster.key                         DIRECTORY/a/log          its log
                                                  DIRECTORY/a/broker.log   what it says
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

NAMES: Final = ("a", "b", "c")
STAYS_DOWN: Final = frozenset({2, 65, 75, 78})
"""exit codes of a broker that starting it again does not mend; those of the unit for systemd"""
_AGAIN_S: Final = 1.0
_UP_S: Final = 60.0
_PAUSE_S: Final = 0.1
_DRAIN_S: Final = 40.0
_ANSWER_S: Final = 2.0


class ServerPorts(NamedTuple):
    """The ports of one server of the engine."""

    client: int
    route: int
    monitor: int


class LocalProcess:
    """One process of the cluster. ``process`` is None while it does not run."""

    def __init__(self, name: str, arguments: Sequence[str], output: Path, stays_down: frozenset[int]) -> None:
        self.name = name
        self.output = output
        self._arguments = arguments
        self._stays_down = stays_down
        self.process: subprocess.Popen[bytes] | None = None
        self.ended: int | None = None
        """what it ended with last"""
        self._again_s = 0.0

    def start(self) -> None:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("SYNCBROK_")}
        with self.output.open("ab") as output:
            # A session of its own: Ctrl-C is for whoever started all of them, and they end in an order.
            self.process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "syncbrok", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=variables,
                start_new_session=True,
            )

    def check(self) -> str:
        """Start it again a moment after it has ended; what is to be said of that, or nothing."""
        if self.process is None:
            if self.ended is not None and self.ended not in self._stays_down and time.monotonic() >= self._again_s:
                self.start()
            return ""
        code = self.process.poll()
        if code is None:
            return ""
        self.process, self.ended, self._again_s = None, code, time.monotonic() + _AGAIN_S
        then = "it stays down" if code in self._stays_down else "it is started again"
        return f"{self.name} ended with {code}: {then}; what it said is in {self.output}"

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, and SIGKILL where that does not end it."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.ended = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.ended = self.process.wait()
        self.process = None


class LocalCluster:
    """As a context manager the engine runs and holds a log, and the brokers have been started; call ``check`` now and
    then. ``told`` is told what happens. Raises ``OSError`` where a port is in use, or the engine does not come up."""

    def __init__(
        self,
        directory: Path,
        ports: Sequence[int],
        told: Callable[[str], None],
        lease: str = "3s",
        queues: Path | None = None,
    ) -> None:
        """``ports``: of HTTP, one for each broker. The engine takes some that are free. All are held until ``stop``:
        nobody else gets one between its choice and the start of who listens there, or while that is started again.
        ``queues``: the file of the queues of all of them; None for that of ``serve`` without one."""
        self.directory = directory.resolve()
        self.ports = ports
        self._told = told
        self._lease = lease
        self._queues = () if queues is None else ("--queues", str(queues.resolve()))
        self._holding = ExitStack()
        held = [self._hold(0) for _ in range(3 * len(NAMES))]
        self._server_ports = [ServerPorts(*held[at : at + 3]) for at in range(0, len(held), 3)]
        self.servers = [self._server(at) for at in range(len(NAMES))]
        self.brokers = [self._broker(at) for at in range(len(NAMES))]

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    @property
    def engine_urls(self) -> list[str]:
        return [f"nats://127.0.0.1:{ports.client}" for ports in self._server_ports]

    def config(self, name: str) -> Path:
        """The file of this node's configuration."""
        return self.directory / name / "broker.yml"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def check(self) -> None:
        """Start again what has ended, and say so."""
        for one in (*self.servers, *self.brokers):
            said = one.check()
            if said:
                self._told(said)

    def stop(self) -> None:
        """The brokers first, all at once: who leads writes to the engine that it gives way."""
        for one in self.brokers:
            if one.process is not None:
                one.process.terminate()
        for one in self.brokers:
            one.stop(_DRAIN_S)
        for one in self.servers:
            one.stop(_DRAIN_S)
        self._holding.close()

    def status(self) -> dict[str, Any] | None:
        """The report of a node on the cluster, of one that knows who leads if there is any; None where none answers."""
        other = None
        for url in self.urls:
            try:
                with urllib.request.urlopen(f"{url}/v1/cluster", timeout=_ANSWER_S) as answer:  # noqa: S310 (loopback)
                    found: dict[str, Any] = json.load(answer)
            except (OSError, ValueError):
                continue
            if found.get("leader"):
                return found
            other = found
        return other

    def _hold(self, port: int) -> int:
        """Bind ``port``, any that is free for 0, and listen on nothing: who sets SO_REUSEADDR, as both kinds of server
        do, can listen there beside. Raises ``OSError`` where somebody listens there already."""
        held = self._holding.enter_context(socket.socket())
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
        return int(held.getsockname()[1])

    # -- its parts ----------------------------------------------------------------------------------------------------

    def _server(self, at: int) -> LocalProcess:
        name, ports = NAMES[at], self._server_ports[at]
        peers = ",".join(f"{one}=127.0.0.1:{it.route}" for one, it in zip(NAMES, self._server_ports, strict=True))
        storage = self.directory / "engine" / name
        arguments = ("cluster", "engine", "--node", name, "--peers", peers, "--storage", str(storage))
        numbers = ("--port", ports.client, "--route-port", ports.route, "--monitor-port", ports.monitor)
        output = self.directory / "engine" / f"{name}.log"
        return LocalProcess(f"engine {name}", (*arguments, *map(str, numbers)), output, frozenset({2}))

    def _broker(self, at: int) -> LocalProcess:
        name = NAMES[at]
        arguments = ("serve", "--config", str(self.config(name)), "--log-format", "text", *self._queues)
        return LocalProcess(f"broker {name}", arguments, self.directory / name / "broker.log", STAYS_DOWN)

    def _configuration(self, at: int) -> str:
        engine = [
            {"url": f"nats://127.0.0.1:{ports.client}", "monitor": f"http://127.0.0.1:{ports.monitor}"}
            for ports in self._server_ports
        ]
        cluster = {
            "space": "main",
            "node": NAMES[at],
            "engine": engine,
            "key": str(self.directory / "cluster.key"),
            "advertise": self.urls[at],
            "lease": self._lease,
        }
        storage = {"path": str(self.directory / NAMES[at] / "log")}
        # JSON is YAML too.
        return json.dumps({"storage": storage, "http": {"port": self.ports[at]}, "cluster": cluster}, indent=1) + "\n"

    def _hold_brokers_ports(self) -> None:
        for name, port in zip(NAMES, self.ports, strict=True):
            try:
                self._hold(port)
            except OSError as taken:
                mend = "end what listens there (another cluster, a broker?), or take others: --port, SYNCBROK_PORT"
                raise OSError(f"port {port}, of broker {name}, cannot be had: {taken.strerror}; {mend}") from taken

    def _start(self) -> None:
        self._hold_brokers_ports()
        for at, name in enumerate(NAMES):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
            (self.directory / "engine" / name).mkdir(parents=True, exist_ok=True)
            self.config(name).write_text(self._configuration(at))
        for one in self.servers:
            one.start()
        self._await_engine()
        begun = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "syncbrok", "cluster", "init", "--config", self.config(NAMES[0])],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if begun.returncode:
            raise OSError(f"the log cannot be begun: {begun.stderr.strip()}")
        for one in self.brokers:
            one.start()

    def _await_engine(self) -> None:
        until_s = time.monotonic() + _UP_S
        while not all(self._is_led(ports) for ports in self._server_ports):
            self.check()
            down = next((one for one in self.servers if one.ended == 2), None)
            if down is not None or time.monotonic() > until_s:
                raise OSError(f"the engine does not come up: see {(down or self.servers[0]).output}")
            time.sleep(_PAUSE_S)

    @staticmethod
    def _is_led(ports: ServerPorts) -> bool:
        """Whether this server knows a leader and all the others: before, no stream can be made."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{ports.monitor}/jsz", timeout=_ANSWER_S) as answer:
                meta = json.load(answer).get("meta_cluster") or {}
        except (OSError, ValueError):
            return False
        return bool(meta.get("leader")) and meta.get("cluster_size") == len(NAMES)
