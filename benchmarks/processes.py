"""The processes of a measurement, each ended with it: the broker, nginx as the subscriber, and what they cost."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

PACKAGES: Final = {"wrk": "wrk", "nginx": "nginx-light"}
"""program -> the Debian package that has it"""
_SEARCHED: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_held: list[socket.socket] = []
_CPU_CLOCK: Final = 2
"""with the complement of a process's id above it: the clock of its CPU, as clock_getcpuclockid(3) makes it"""
_END_WITHIN_S: Final = 60.0


class Missing(Exception):
    """A program that the benchmark needs is not installed."""


class Failed(Exception):
    """A measurement that cannot be trusted: something was refused, lost, or ended early."""


def find(program: str) -> str:
    """The path of ``wrk`` or ``nginx``; a user's PATH often lacks the folders nginx is in. Raises ``Missing``."""
    found = shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", ""), *_SEARCHED)))
    if found is None:
        raise Missing(f"{program} is not installed; on Debian and Ubuntu: apt-get install {PACKAGES[program]}")
    return found


def aside(command: Sequence[str]) -> list[str]:
    """The command, kept on the last of the machine's processors where there are several (``taskset`` of util-linux).
    The load and its endpoint stand for other machines: now and then the kernel lets one of them run where the broker
    does, each time for a whole measurement, and that is not the broker's speed. The broker goes where it likes."""
    processors = sorted(os.sched_getaffinity(0))
    taskset = shutil.which("taskset")
    if taskset is None or len(processors) == 1:
        return list(command)
    return [taskset, "--cpu-list", str(processors[-1]), *command]


class Usage(NamedTuple):
    """What a process has used so far: seconds of CPU (its children not counted), resident bytes."""

    cpu_s: float
    resident_bytes: int


def usage(pid: int) -> Usage:
    """From /proc, but for the CPU: there it is counted in hundredths of a second, and an idle broker needs fewer."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return Usage(time.clock_gettime(~pid << 3 | _CPU_CLOCK), int(pages) * os.sysconf("SC_PAGE_SIZE"))


def free_ports(count: int) -> list[int]:
    """TCP ports of 127.0.0.1 nobody listens on. They are held until this process ends: the system gives them to nobody
    else, and a server that sets SO_REUSEADDR, as servers do, can listen on them."""
    for _ in range(count):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
        _held.append(one)
    return [int(one.getsockname()[1]) for one in _held[-count:]]


def answers(port: int, path: str) -> bool:
    """Whether a GET there is answered with 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


_NGINX: Final = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.err; worker_rlimit_nofile 65536;
events {{ worker_connections 65000; }}
http {{
    access_log off; keepalive_timeout 1h; keepalive_requests 1000000000; client_max_body_size 0;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{ listen 127.0.0.1:{status}; location / {{ stub_status; }} }}
    server {{ {listen} default_type application/json; location / {{ return 200 "true"; }} }}
    {tls}
}}
"""


_NGINX_TLS: Final = """
    server {{
        listen 127.0.0.1:{port} ssl backlog=4096; ssl_certificate {pem}; ssl_certificate_key {pem};
        default_type application/json; location / {{ return 200 "true"; }}
    }}
"""


class Nginx:
    """nginx with one worker, answering ``true`` to everything on ``ports``. ``alone``: it and the broker take turns,
    with nothing else to do, so the kernel may run them where it likes. ``pem``: certificate and key of 127.0.0.1, for
    ``tls_url``."""

    def __init__(self, folder: Path, ports: int = 1, *, alone: bool = False, pem: Path | None = None) -> None:
        *self.ports, self._status_port, tls_port = free_ports(ports + 2)
        self._asked = 0
        self._asking = http.client.HTTPConnection("127.0.0.1", self._status_port, timeout=30)
        self.url = f"http://127.0.0.1:{self.ports[0]}/"
        self.tls_url = f"https://127.0.0.1:{tls_port}/"
        place = folder / "nginx"
        place.mkdir(exist_ok=True)
        config = place / "nginx.conf"
        listen = " ".join(f"listen 127.0.0.1:{port} backlog=4096;" for port in self.ports)
        tls = _NGINX_TLS.format(port=tls_port, pem=pem) if pem is not None else ""
        config.write_text(_NGINX.format(folder=place, listen=listen, status=self._status_port, tls=tls))
        command = [find("nginx"), "-e", str(place / "nginx.err"), "-c", str(config)]
        self._process = subprocess.Popen(
            command if alone else aside(command), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 10
        while not answers(self._status_port, "/"):
            if time.monotonic() > deadline or self._process.poll() is not None:
                self._process.kill()
                self._process.wait()
                raise Failed(f"nginx did not start; it said: {(place / 'nginx.err').read_text()}")
            time.sleep(0.01)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._asking.close()
        self._process.terminate()
        self._process.wait()

    def cpu_s(self) -> float:
        """Of its worker."""
        pid = self._process.pid
        workers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return sum(usage(int(worker)).cpu_s for worker in workers)

    def received(self) -> int:
        """Requests so far, those of this question not counted."""
        counters = self._status()
        # "server accepts handled requests" and then the three numbers
        return int(counters[counters.index(b"requests") + 3]) - self._asked

    def connections(self) -> int:
        """Those that are open now, that of this question not counted."""
        counters = self._status()
        return int(counters[counters.index(b"connections:") + 1]) - 1

    def _status(self) -> list[bytes]:
        """The words of ``stub_status``. The connection is kept: some rows ask each millisecond."""
        self._asking.request("GET", "/")
        counters = self._asking.getresponse().read().split()
        self._asked += 1
        return counters


class Serving:
    """A broker that runs and is asked over HTTP at ``port``, whoever has started it."""

    def __init__(self) -> None:
        self.port = 0

    @property
    def pid(self) -> int:
        raise NotImplementedError

    def usage(self) -> Usage:
        return usage(self.pid)

    def metric(self, name: str) -> float:
        """A row of /metrics, summed over its labels. It costs a broker with many queues much: not while measuring."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request("GET", "/metrics")
            rows = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        return sum(float(row.rpartition(" ")[2]) for row in rows if row.startswith((f"{name} ", f"{name}{{")))

    def ask(self, method: str, path: str, body: dict[str, Any] | bytes | None = None, kind: str = "") -> Any:
        """One request on a connection of its own; the JSON of its answer. Raises ``Failed`` unless it is a 2xx."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            data = json.dumps(body).encode() if isinstance(body, dict) else body
            connection.request(method, path, data, {"Content-Type": kind or "application/json"})
            answer = connection.getresponse()
            said = answer.read()
        except OSError as error:
            raise Failed(f"{method} {path}: {error}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise Failed(f"{method} {path}: {answer.status} {said.decode(errors='replace')}")
        return json.loads(said or b"null")


class Broker(Serving):
    """``syncbrok serve`` on the log in ``folder``, with the default configuration but for what ``config`` (YAML) says;
    it may be ended and started again. ``python`` is the interpreter whose Syncbrok is measured. ``queues`` is its
    queues.yml (see ``declared``)."""

    def __init__(
        self,
        folder: Path,
        config: str = "",
        python: str = sys.executable,
        *,
        queues: str = "queues: {}\n",
        authority: Path | None = None,
    ) -> None:
        """``authority``: a PEM file; its certificates alone are believed."""
        super().__init__()
        self._folder = folder
        self._trusts = {"SSL_CERT_FILE": str(authority)} if authority is not None else {}
        self._python = python
        (folder / "queues.yml").write_text(queues)
        # A configuration of its own: one that stands in the working directory may ask for tokens.
        (folder / "broker.yml").write_text(config)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()

    def start(self, within_s: float = 300.0) -> float:
        """Return when it takes messages: the seconds since it was called. Raises ``Failed`` where it never does."""
        (self.port,) = free_ports(1)
        arguments = [
            "serve",
            "--config",
            str(self._folder / "broker.yml"),
            "--queues",
            str(self._folder / "queues.yml"),
        ]
        arguments += ["--storage", str(self._folder / "log"), "--port", str(self.port)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SYNCBROK_")}
        began = time.perf_counter()
        with (self._folder / "broker.out").open("wb") as said:
            self._process = subprocess.Popen(
                # -P: that interpreter's own Syncbrok, not the one in the working directory.
                [self._python, "-P", "-m", "syncbrok", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=environment | self._trusts,
            )
        while not answers(self.port, "/readyz"):
            if time.perf_counter() - began > within_s or self._process.poll() is not None:
                said_ = (self._folder / "broker.out").read_text()
                self.kill()
                raise Failed(f"the broker did not start; it said:\n{said_}")
            time.sleep(0.005)
        return time.perf_counter() - began

    def stop(self) -> None:
        """SIGTERM, and wait until it has closed its log; SIGKILL where that takes more than a minute."""
        self.process.terminate()
        try:
            self.process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """As a crash does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "not started"
        return self._process

    @property
    def pid(self) -> int:
        """See ``Serving``."""
        return self.process.pid
