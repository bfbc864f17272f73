"""The peers' servers: each on a free port of 127.0.0.1, its data in a folder of its own, ended by its process id."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from benchmarks.processes import Failed, Missing, free_ports, usage
from syncbrok.cluster.nats_conf import find_nats_server
from syncbrok.model.errors import BadConfig

_SEARCHED: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_START_WITHIN_S: Final = 60.0
_END_WITHIN_S: Final = 20.0


def program(name: str, package: str) -> str:
    """The path of an installed program. Raises ``Missing``, naming the Debian package that has it."""
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *_SEARCHED)))
    if found is None:
        raise Missing(f"{name} is not installed; on Debian and Ubuntu: apt-get install {package}")
    return found


def said(*command: str) -> str:
    """What a program prints when asked for its version, on either stream."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def number_in(text: str) -> str:
    """The first version number in a text; ``?`` where there is none."""
    found = re.search(r"\d+(?:\.\d+)+", text)
    return found[0] if found else "?"


class Server:
    """A process in a group of its own: a script and what it starts end together."""

    name: str
    version: str
    settings: tuple[str, ...]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self._processes: list[subprocess.Popen[bytes]] = []

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return os.environ

    def __enter__(self) -> Self:
        (self.port,) = free_ports(1)
        try:
            self._wait_until_it_listens(self.run(self.command(), self.environment()))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            _end(process)
        self._processes.clear()

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        with (self.folder / "said").open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def cpu_s(self) -> float:
        """Seconds of CPU so far of all that was started for it: each process with what is in its session."""
        sessions = {process.pid for process in self._processes}
        used_s = 0.0
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended meanwhile
                pid = int(folder.name)
                if os.getsid(pid) in sessions:
                    used_s += usage(pid).cpu_s
        return used_s

    def _wait_until_it_listens(self, process: "subprocess.Popen[bytes]") -> None:
        deadline = time.monotonic() + _START_WITHIN_S
        while not self._listens():
            if time.monotonic() > deadline or process.poll() is not None:
                raise Failed(f"{self.name} did not start; it said:\n{(self.folder / 'said').read_text()}")
            time.sleep(0.05)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_END_WITHIN_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Redis(Server):
    """Redis, fsyncing its append-only file before it answers."""

    name = "Redis Streams"
    settings = (
        "appendonly yes, appendfsync always, no-appendfsync-on-rewrite no, no snapshots",
        "a consumer group, XACK for each message after the 2xx",
        "client ioredis with auto-pipelining",
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._program = program("redis-server", "redis-server")
        self.version = number_in(said(self._program, "--version"))

    def command(self) -> Sequence[str]:
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "no"]
        return [self._program, *where, *durable, "--maxmemory-policy", "noeviction"]


class BullMQ(Redis):
    """The same Redis under another library; the version of the library is put in front by who knows it."""

    name = "BullMQ"
    settings = (
        "Redis with appendonly yes, appendfsync always, no-appendfsync-on-rewrite no, maxmemory-policy noeviction",
        "one worker, concurrency 64, removeOnComplete {count: 1000}",
        "its chain is a flow, where a parent waits for its children: the hops go from the leaf to the root",
    )


class RabbitMQ(Server):
    """One RabbitMQ node, away from one the system may run: own name, data, logs, cookie and port mapper."""

    name = "RabbitMQ"
    settings = (
        "quorum queue on one node (Raft log fsynced before a confirm, its default), persistent messages",
        "publisher confirms; manual acknowledgements after the 2xx, prefetch 256",
        "client amqplib",
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # Debian's rabbitmq-server on the PATH changes to a user of its own; the script behind it does not.
        behind = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        self._program = str(behind) if behind.exists() else program("rabbitmq-server", "rabbitmq-server")
        self._epmd = program("epmd", "erlang-base")
        self.version = _rabbitmq_version(Path(self._program))
        self._environment: dict[str, str] = {}

    def command(self) -> Sequence[str]:
        mapper_port, distribution_port = free_ports(2)
        folder = self.folder
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self.port}\n")
        (folder / "enabled_plugins").write_text("[].\n")
        (folder / "rabbitmq-env.conf").write_text("")
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")},
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        # Started here, so that no daemon is left behind: Erlang starts one of its own where it finds none.
        self.run([self._epmd, "-address", "127.0.0.1", "-port", str(mapper_port)], self._environment)
        return [self._program]

    def environment(self) -> Mapping[str, str]:
        return self._environment


def _rabbitmq_version(script: Path) -> str:
    """From the name of the folder it is installed in; asking the program would start an Erlang for a second."""
    return number_in(str(script.resolve()))


class Nats(Server):
    """NATS with JetStream, in its strictest documented setting: ``sync_interval: always`` fsyncs before the answer. It
    is the server that the extra ``cluster`` brings, which knows that setting, as those before 2.10 do not."""

    name = "NATS JetStream"
    settings = (
        "file storage, one replica, sync_interval: always",
        "durable pull consumer, explicit acknowledgements after the 2xx, 256 asked for ahead",
        "client @nats-io/jetstream, noAsyncTraces, acknowledgements of one turn of the event loop sent together",
        "its batches are atomic ones, committed by their last message",
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        try:
            self._program = str(find_nats_server())
        except BadConfig as error:
            raise Missing(str(error)) from error
        self.version = number_in(said(self._program, "--version"))

    def command(self) -> Sequence[str]:
        config = self.folder / "nats.conf"
        store = f'store_dir: "{self.folder / "data"}"'
        config.write_text(f"jetstream {{\n  {store}\n  sync_interval: always\n}}\n")
        return [self._program, "-c", str(config), "-a", "127.0.0.1", "-p", str(self.port)]
