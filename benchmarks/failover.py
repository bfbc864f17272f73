"""How long a cluster is silent when another node has to lead: ``python -m benchmarks.failover``.

One client publishes a hundred messages a second, to whichever node answers; an endpoint receives. A silence of
publishing is the longest time between two acknowledgements, from the last one before a blow on; one of delivering ends
with the first attempt of the next leader, which its epoch tells.
"""

import http.client
import itertools
import threading
import time
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple, Self

from benchmarks.cluster_nodes import ClusterNodes
from benchmarks.delivery import QUEUE, subscribe
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, progress

LEASE_S: Final = 2.0
_EVERY_S: Final = 0.01
"""between an acknowledgement and the next message: who is silent is looked for, not how fast they are"""
_PAUSE_S: Final = 0.01
_ANSWER_S: Final = 1.0
_EACH: Final = 4
"""blows of a kind for each run that is asked for; a run of this row has all of them"""


class Client(threading.Thread):
    """Publishes one message after the other, each until it is acknowledged, by whichever node does it."""

    def __init__(self, ports: list[int]) -> None:
        super().__init__(daemon=True)
        self._ports = itertools.cycle(ports)
        self._ended = threading.Event()
        self.acknowledged_s: list[float] = []

    def run(self) -> None:
        for number in itertools.count():
            while not self._acknowledged(number):
                if self._ended.wait(_PAUSE_S):
                    return
            self.acknowledged_s.append(time.monotonic())
            if self._ended.wait(_EVERY_S):
                return

    _connection: http.client.HTTPConnection | None = None

    def _acknowledged(self, number: int) -> bool:
        """One try, at the node that answered last, else at the next."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", next(self._ports), timeout=_ANSWER_S)
        headers = {"Idempotency-Key": str(number), "Content-Type": "text/plain"}
        try:
            self._connection.request("POST", f"/v1/queues/{QUEUE}/messages", b"x" * 200, headers)
            answer = self._connection.getresponse()
            answer.read()
            if answer.status < 300:
                return True
        except (OSError, http.client.HTTPException):
            pass
        self._connection.close()
        self._connection = None
        return False

    def stop(self) -> None:
        self._ended.set()
        self.join()


class Endpoint:
    """Answers ``true``, and knows when each delivery came and of which epoch it was."""

    def __init__(self) -> None:
        came: list[tuple[float, int]] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                came.append((time.monotonic(), int(self.headers["Syncbrok-Epoch"])))
                self.rfile.read(int(self.headers["Content-Length"]))
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\ntrue")

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Whoever was killed has left a connection behind."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.came = came
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def first_after(self, epoch: int) -> float | None:
        """When the first delivery of a later epoch came; None before it did."""
        return next((at_s for at_s, of in self.came if of > epoch), None)


class Silence(NamedTuple):
    """Seconds without an acknowledgement, and without a delivery."""

    publishing_s: float
    delivering_s: float


Blow = Callable[[ClusterNodes], None]


def killed(cluster: ClusterNodes) -> None:
    """The broker that leads, with -9."""
    _kill(cluster, cluster.leader().name, host=False)


def host_killed(cluster: ClusterNodes) -> None:
    """Its host: the broker that leads, and the server of the engine beside it."""
    _kill(cluster, cluster.leader().name, host=True)


def yielded(cluster: ClusterNodes) -> None:
    """``syncbrok cluster yield``."""
    cluster.leader().ask("POST", "/v1/cluster/yield", {})


def _kill(cluster: ClusterNodes, name: str, *, host: bool) -> None:
    for one in (cluster.broker(name), *((cluster.server(name),) if host else ())):
        assert one.process is not None
        one.process.kill()


KINDS: Final[dict[str, tuple[Blow, bool | None]]] = {
    "killed": (killed, None),
    "host": (host_killed, False),
    "engine": (host_killed, True),
    "yield": (yielded, None),
}
"""what is done, and whether the stream's leader must, or must not, be on the host of the broker that leads"""


def place(cluster: ClusterNodes, *, beside_engine_leader: bool) -> None:
    """Have a broker lead that is, or is not, on the host of the stream's leader."""

    def placed() -> bool:
        leader, engine = cluster.leader(), cluster.replicas().leader
        if not engine or (leader.name == engine) is beside_engine_leader:
            return bool(engine)
        to = engine if beside_engine_leader else next(one for one in cluster.followers() if one != engine)
        epoch = cluster.status()["epoch"]
        leader.ask("POST", "/v1/cluster/yield", {"to": to})
        cluster.wait_for(lambda: cluster.status()["epoch"] > epoch, "another node leads")
        cluster.mend()  # whoever it is: another one may have been quicker
        return False

    cluster.wait_for(placed, "the stream's leader is where it is wanted")


def silence(cluster: ClusterNodes, client: Client, endpoint: Endpoint, blow: Blow) -> Silence:
    """Of one blow to a cluster that is whole; it is left as it is then."""
    epoch, acknowledged = cluster.status()["epoch"], len(client.acknowledged_s)
    cluster.wait_for(lambda: len(client.acknowledged_s) > acknowledged + 10, "a client publishes")
    began_s = time.monotonic()
    blow(cluster)
    cluster.wait_for(lambda: endpoint.first_after(epoch) is not None, "another leader delivers")
    first_s = endpoint.first_after(epoch)
    assert first_s is not None
    cluster.wait_for(lambda: client.acknowledged_s[-1] > first_s, "another leader acknowledges")
    last_s = max(at_s for at_s, of in endpoint.came if of <= epoch)
    times = client.acknowledged_s[:]
    begin = next(at for at in range(len(times) - 1, -1, -1) if times[at] <= began_s or not at)
    longest_s = max(later - one for one, later in itertools.pairwise(times[begin:]))
    endpoint.came.clear()
    return Silence(longest_s, max(0.0, first_s - last_s))


def measure(folder: Path, options: Options) -> Generator[Readings, None, None]:
    """One run has every blow."""
    while True:
        own = folder / f"{time.monotonic_ns()}"
        with Endpoint() as endpoint, ClusterNodes(own, f"{LEASE_S:g}s") as cluster:
            subscribe(cluster.leader(), endpoint.url, paused=False)
            client = Client(cluster.local.ports)
            client.start()
            try:
                yield _all_kinds(cluster, client, endpoint, options)
            finally:
                client.stop()


def _all_kinds(cluster: ClusterNodes, client: Client, endpoint: Endpoint, options: Options) -> Readings:
    """A quick run does not look for the stream's leader: one blow to a host stands for both kinds."""
    found: dict[str, list[Silence]] = {}
    for kind in KINDS:
        quickly = options.quick and kind == "engine"
        found[kind] = found["host"] if quickly else _blows(kind, cluster, client, endpoint, options)
    return {key: one for kind, silences in found.items() for key, one in _readings(kind, silences).items()}


def _blows(kind: str, cluster: ClusterNodes, client: Client, endpoint: Endpoint, options: Options) -> list[Silence]:
    blow, beside = KINDS[kind]
    found = []
    for _ in range(1 if options.quick else _EACH * options.runs // (1 if beside is None else 2)):
        cluster.mend()
        if beside is not None and not options.quick:
            place(cluster, beside_engine_leader=beside)
        found.append(silence(cluster, client, endpoint, blow))
        publishing_s, delivering_s = found[-1]
        progress(f"    {kind}: {publishing_s:.2f} s without a publish, {delivering_s:.2f} s without a delivery")
    return found


def _readings(kind: str, silences: list[Silence]) -> Readings:
    publishing, delivering = (sorted(side) for side in zip(*silences, strict=True))
    least_s = LEASE_S / 5 if kind == "yield" else 1.2 * LEASE_S
    return {
        f"{kind}_{name}": Reading(
            publishing[at], least_s, {"s without a delivery": delivering[at], "blows": float(len(silences))}
        )
        for name, at in (("p50", len(silences) // 2), ("p99", len(silences) * 99 // 100))
    }


def _aims(kind: str, what: str, p50_s: float, p99_s: float) -> dict[str, Aim]:
    least = (
        "a fifth of the lease: another one claims within it" if kind == "yield" else "1.2 leases: nobody claims before"
    )
    return {
        f"{kind}_p50": Aim(f"{what}: no publish for, p50", "s", least, p50_s, less_is_better=True),
        f"{kind}_p99": Aim(f"{what}: no publish for, p99", "s", least, p99_s, less_is_better=True),
    }


ROW = Row(
    "failover",
    "A cluster of three on this machine, its lease 2 s; a client publishes to whichever node answers. The longest"
    " time without an acknowledgement, and without a delivery, when the broker that leads is killed (kill -9), its host"
    " (it and its server of the engine), when that server led the stream too, and when it is asked to give way. One"
    " run has all of them: 12 of the broker, 6 of each host, 12 on purpose; p99 is the longest of so few.",
    {
        **_aims("killed", "broker killed", 1.6 * LEASE_S, 2 * LEASE_S + 1),
        **_aims("host", "its host killed", 12, 12),
        **_aims("engine", "its host, which leads the engine", 12, 12),
        **_aims("yield", "cluster yield", 1, 1),
    },
    measure,
    once=True,
)

if __name__ == "__main__":
    main([ROW])
