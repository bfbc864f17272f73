"""``syncbrok cluster``: what an operator types to have a cluster, on real processes."""

import base64
import json
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from click.testing import CliRunner, Result

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cli.main import group
from syncbrok.cluster.engine import Engine
from syncbrok.cluster.generation import remember
from syncbrok.cluster.local_cluster import LocalCluster
from syncbrok.cluster.nats_conf import ServerSettings, ServerTls, nats_conf
from syncbrok.cluster.stream_messages import StreamKind, identity_of
from syncbrok.cluster.vault import Vault
from syncbrok.model.errors import LogDiverged
from tests.support.broker.process import BrokerProcess, Reply, held_port, request
from tests.support.certificates import Authority
from tests.support.cluster.nats_engine import NatsEngine
from tests.support.log.journals import open_journal, publish
from tests.support.polling import eventually_blocking

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
PEERS = "a=127.0.0.1:6222,b=127.0.0.1:6223,c=127.0.0.1:6224"


def run(*arguments: str, code: int = 0) -> Result:
    """The command, without variables; fails the test unless it ends with ``code``."""
    result = CliRunner().invoke(group, ["cluster", *map(str, arguments)])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsEngine]:
    with NatsEngine(tmp_path_factory.mktemp("engine")) as running:
        yield running


def config_of(servers: NatsEngine, directory: Path, space: str) -> str:
    """The configuration of node a."""
    engine = [{"url": one.url, "monitor": one.monitor} for one in servers.addresses]
    cluster = {"space": space, "node": "a", "engine": engine, "key": str(directory / "cluster.key"), "lease": "2s"}
    return yaml.safe_dump({"cluster": {**cluster, "advertise": "http://127.0.0.1:1"}})


# -- engine -----------------------------------------------------------------------------------------------------------


def test_a_server_of_the_engine_fsyncs_each_message(tmp_path: Path) -> None:
    """The one setting without which an acknowledgement means nothing; and its peers are all but itself."""
    printed = run("engine", "--node", "a", "--peers", PEERS, "--storage", str(tmp_path), "--print").stdout
    assert "sync_interval: always" in printed
    assert "max_payload: 8MB" in printed
    assert re.findall(r"nats-route://[\d.:]+", printed) == [f"nats-route://127.0.0.1:{port}" for port in (6223, 6224)]
    assert not list(tmp_path.iterdir())


def test_a_server_listens_where_its_peers_look_for_it(tmp_path: Path) -> None:
    """CLUSTER: all servers may be given the same ``--peers``; its own entry there says where the others reach it,
    unless ``--route-port`` does."""

    def routes(*more: str) -> str:
        return run("engine", "--peers", PEERS, "--storage", str(tmp_path), "--print", *more).stdout.partition(
            "cluster {"
        )[2]

    assert 'listen: "127.0.0.1:6224"' in routes("--node", "c")
    assert 'listen: "127.0.0.1:7000"' in routes("--node", "c", "--route-port", "7000")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--peers", "b=10.0.0.2:6222"), "3 replicas, and 2 servers"),
        (("--peers", "b"), "NAME=HOST:PORT"),
        (("--peers", PEERS, "--host", "10.0.0.1"), "whoever can connect"),
        (("--peers", PEERS, "--host", "10.0.0.1", "--users", "{users}"), "in clear"),
        (("--peers", PEERS, "--tls-cert", "{users}"), "all three"),
    ],
)
def test_a_server_that_would_be_open_or_alone_is_refused(given: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """Whoever can write to the stream can write to the log; and two servers are no quorum of three."""
    (tmp_path / "users").touch()
    arguments = [one.format(users=tmp_path / "users") for one in given]
    assert said in run("engine", "--node", "a", *arguments, "--print", code=2).output


def test_servers_show_each_other_certificates(tmp_path: Path) -> None:
    """With TLS a server of another authority does not get in, and who may connect stands in a file of its own."""
    authority = Authority(tmp_path)
    files = authority.signs("a")
    tls = ServerTls(files.cert, files.key, authority.file)
    users = tmp_path / "users.conf"
    users.write_text("authorization { user: broker, password: secret }\n")
    storage = tmp_path / "engine"
    settings = ServerSettings("a", "127.0.0.1", 4222, 6222, 8222, storage, {"b": "h:1", "c": "h:2"}, tls, users)
    text = nats_conf(settings)
    assert "verify: true" in text.partition("cluster {")[2].partition("\n}")[0]
    assert 'https: "127.0.0.1:8222"' in text
    assert 'include "../users.conf"' in text


# -- init -------------------------------------------------------------------------------------------------------------


def test_a_log_is_begun_once_and_on_purpose(servers: NatsEngine, tmp_path: Path) -> None:
    """``init`` makes the key, readable by its owner alone, and the stream; again it changes nothing; and without the
    key it does not make another one, with which no other node could read the secrets."""
    file = tmp_path / "broker.yml"
    file.write_text(config_of(servers, tmp_path, "begun"))
    assert "which is empty" in run("init", "--config", file).stdout
    key = tmp_path / "cluster.key"
    assert key.stat().st_mode & 0o777 == 0o600
    made = key.read_bytes()
    assert "already" in run("init", "--config", file).stdout
    assert key.read_bytes() == made
    key.unlink()
    assert "copy it" in run("init", "--config", file, code=4).output
    assert not key.exists()


def test_a_single_node_becomes_a_cluster(servers: NatsEngine, tmp_path: Path) -> None:
    """Its messages, subscribers and secrets are there on a node that begins with an empty directory; its own directory
    is as it was."""
    with BrokerProcess(tmp_path / "single") as single:
        single.request("POST", "/v1/queues", {"name": "orders"})
        settings = {"endpoint": "http://127.0.0.1:9/", "name": "s", "secret": SECRET}
        assert single.request("POST", "/v1/queues/orders/subscribers", settings).status == 201
        ids = [single.request("POST", "/v1/queues/orders/messages", b"%d" % at).json()["id"] for at in range(30)]
        text = config_of(servers, tmp_path, "moved")
        (tmp_path / "broker.yml").write_text(text)
        arguments = ("init", "--config", tmp_path / "broker.yml", "--from", tmp_path / "single")
        assert "is open in process" in run(*arguments, code=75).output
        single.kill()
    secrets = (tmp_path / "single" / "secrets.json").read_bytes()
    before = {path.name: path.read_bytes() for path in (tmp_path / "single").glob("*.log")}
    assert "has the log of" in run(*arguments).stdout
    assert {path.name: path.read_bytes() for path in (tmp_path / "single").glob("*.log")} == before
    with BrokerProcess(tmp_path / "node", config=text) as node:
        listed = node.request("GET", "/v1/queues/orders/messages?limit=100").json()["messages"]
        assert {one["id"] for one in listed} == set(ids)
        assert (tmp_path / "node" / "secrets.json").read_bytes() == secrets


def test_commands_say_what_is_missing(tmp_path: Path) -> None:
    """A configuration without the section."""
    (tmp_path / "broker.yml").write_text("http: {port: 1}\n")
    assert "no section cluster" in run("init", "--config", tmp_path / "broker.yml", code=2).output


# -- reseed and rekey -------------------------------------------------------------------------------------------------


def test_an_engine_that_lost_its_stream_gets_the_longest_log(servers: NatsEngine, tmp_path: Path) -> None:
    """A shorter one is refused unless that is forced, a stream that holds something is left alone, and the new stream
    is of the next generation: a node that has followed it does not go back to the old one."""
    (tmp_path / "short").mkdir()
    journal = open_journal(tmp_path / "short")
    publish(journal, 5)
    journal.close()
    shutil.copytree(tmp_path / "short", tmp_path / "long")
    longer = open_journal(tmp_path / "long")
    publish(longer, 5)
    longer.close()
    old, new = tmp_path / "old.yml", tmp_path / "new.yml"
    old.write_text(config_of(servers, tmp_path, "old"))
    new.write_text(config_of(servers, tmp_path, "new"))
    run("init", "--config", old, "--from", tmp_path / "long")
    compared = ("--compare", tmp_path / "long", "--compare", tmp_path / "short")
    refused = run("reseed", "--config", new, "--from", tmp_path / "short", *compared, code=4)
    assert f"{tmp_path / 'long'} with 11" in refused.output
    assert "another log" in run("reseed", "--config", old, "--from", tmp_path / "long", *compared, code=4).output
    remember(tmp_path / "short", 4)
    assert "generation 5" in run("reseed", "--config", new, "--from", tmp_path / "long", *compared).stdout
    remember(tmp_path / "long", 5)
    with pytest.raises(LogDiverged, match="old stream"):
        remember(tmp_path / "long", 1)
    forced = tmp_path / "forced.yml"
    forced.write_text(config_of(servers, tmp_path, "forced"))
    run("reseed", "--config", forced, "--from", tmp_path / "short", *compared, "--force", "--generation", "9")


def test_a_node_does_not_go_back_to_an_older_stream(servers: NatsEngine, tmp_path: Path) -> None:
    """An engine that comes back from a backup, say, has forgotten what was acknowledged since; the node ends with 78,
    which its supervisor does not start again."""
    (tmp_path / "broker.yml").write_text(text := config_of(servers, tmp_path, "older"))
    run("init", "--config", tmp_path / "broker.yml")
    with BrokerProcess(tmp_path / "node", config=text) as node:
        assert (tmp_path / "node" / "generation").read_text() == "1\n"
        node.kill()
        (tmp_path / "node" / "generation").write_text("2\n")
        with pytest.raises(AssertionError, match="ended with 78"):
            node.start()
        assert "old stream" in node.output()


def test_a_node_whose_stream_is_gone_says_what_to_do(servers: NatsEngine, tmp_path: Path) -> None:
    """An engine that has lost its disks: 78, and to whoever has a log here nobody says that ``init`` makes one."""
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "generation").write_text("1\n")
    node = BrokerProcess(tmp_path / "node", config=config_of(servers, tmp_path, "gone"))
    with pytest.raises(AssertionError, match="ended with 78"), node:
        pass
    assert "cluster reseed --help" in node.output()
    assert "cluster init" not in node.output()


def test_a_new_key_is_put_before_the_old_one(servers: NatsEngine, tmp_path: Path) -> None:
    """Whoever leads next seals the secrets anew with it, and a node that begins with nothing reads them."""
    (tmp_path / "broker.yml").write_text(text := config_of(servers, tmp_path, "rekeyed"))
    run("init", "--config", tmp_path / "broker.yml")
    settings = {"endpoint": "http://127.0.0.1:9/", "name": "s", "secret": SECRET}
    with BrokerProcess(tmp_path / "one", config=text) as node:
        node.request("POST", "/v1/queues", {"name": "orders"})
        assert node.request("POST", "/v1/queues/orders/subscribers", settings).status == 201
        old = (tmp_path / "cluster.key").read_bytes()
        assert "copy it" in run("rekey", "--config", tmp_path / "broker.yml").stdout
        assert (tmp_path / "cluster.key").read_bytes().endswith(old)
        node.kill()
        node.start()
        node.kill()
    engine = Engine("rekeyed", servers.addresses)
    engine.connect()
    sealed = [one.body for one in engine.read(0, 10.0) if one.kind is StreamKind.VAULT]
    birth = engine.from_leader(1)
    engine.close()
    assert birth is not None
    vault = Vault.open(tmp_path / "cluster.key", identity_of(birth.log).uuid)
    assert [vault.is_old(one) for one in sealed] == [True, False]
    assert "1 old keys" in run("rekey", "--config", tmp_path / "broker.yml", "--forget").stdout
    assert SECRET.encode() in vault.unseal(sealed[-1])


# -- status and yield -------------------------------------------------------------------------------------------------


class StandInNode:
    """Answers ``GET /v1/cluster`` with ``status`` and takes note of yields; the real routes have tests of their own."""

    def __init__(self) -> None:
        self.yields: list[dict[str, str]] = []
        self.status: dict[str, Any] | None = {
            "space": "main",
            "epoch": 7,
            "leader": {"node": "a", "url": "http://a", "pid": 1},
            "nodes": [
                {"node": "a", "url": "http://a", "pid": 1, "role": "leading", "sequence": 12, "lag_records": 0},
                {"node": "b", "url": "http://b", "pid": 2, "role": "following", "sequence": 10, "lag_records": 2},
            ],
            "engine": [{"url": "nats://a", "alive": True, "sync_always": True}],
        }
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200 if node.status else 404, node.status or {})

            def do_POST(self) -> None:
                node.yields.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                assert node.status is not None
                node.status |= {"epoch": 9, "leader": {"node": "b", "url": "http://b", "pid": 2}}
                self._answer(202, {"to": None})

            def _answer(self, code: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def test_status_shows_the_nodes_and_says_what_is_wrong() -> None:
    """A table for people, the node's own answer for machines; 1 where nobody leads or the engine is not whole."""
    with StandInNode() as node:
        shown = run("status", "--url", node.url).stdout
        assert "a leads at http://a, epoch 7" in shown
        assert re.search(r"^b +following +10 +2 +2 +http://b$", shown, re.MULTILINE)
        assert json.loads(run("status", "--url", node.url, "--json").stdout) == node.status
        assert node.status is not None
        node.status["engine"] = [{"url": "nats://c", "alive": True, "sync_always": False}]
        assert "nats://c does not fsync" in run("status", "--url", node.url, code=1).output
        node.status["engine"] = [{"url": "nats://c", "alive": False, "sync_always": False}]
        node.status["leader"] = None
        said = run("status", "--url", node.url, code=1).output
        assert "nobody leads; nats://c does not answer" in said
        assert "ask another one" in said, "the node that was asked may be the one that is cut off"
        node.status["nodes"][1]["role"] = "stalled"
        assert "b has stopped following, its disk is full" in run("status", "--url", node.url, code=1).output
        for one, archive in zip(node.status["nodes"], ("pipeline", "nobody"), strict=True):
            one["archive"] = archive
        said = run("status", "--url", node.url, code=1).output
        assert "storage.archive is not the same on all nodes (a: pipeline, b: nobody)" in said
        node.status = None
        assert "no node of a cluster" in run("status", "--url", node.url, code=3).output
    run("status", "--url", node.url, code=5)


def test_of_several_nodes_one_that_knows_a_leader_is_asked() -> None:
    """A node that has just begun, as one that has given way does, or that is cut off, knows of none."""
    with StandInNode() as begun, StandInNode() as node:
        assert begun.status is not None
        begun.status |= {"leader": None, "nodes": []}
        assert "a leads" in run("status", "--url", f"{begun.url},{node.url}").stdout
        assert node.status is not None
        node.status["leader"] = None
        assert "nobody leads" in run("status", "--url", f"{begun.url},{node.url}", code=1).output


def test_yield_returns_once_another_node_leads() -> None:
    """So that the next step of an upgrade can follow it in a script."""
    with StandInNode() as node:
        assert "b leads now" in run("yield", "--to", "b", "--url", node.url).stdout
        assert node.yields == [{"to": "b"}]
        assert json.loads(run("yield", "--wait", "0", "--json", "--url", node.url).stdout) == {"leader": None}
        assert node.yields[1] == {}
        assert node.status is not None
        node.status["leader"] = None
        assert "no other node leads" in run("yield", "--wait", "0.1", "--url", node.url, code=1).output


# -- all of it on this machine ----------------------------------------------------------------------------------------


def asked(cluster: LocalCluster, method: str, path: str, body: bytes | dict[str, str] | None = None) -> Reply | None:
    """The answer of the first node that gives one of 2xx."""
    for url in cluster.urls:
        try:
            answer = request(url + path, method, body)
        except OSError:
            continue
        if 200 <= answer.status < 300:
            return answer
    return None


def test_a_local_cluster_goes_on_when_its_leader_is_killed(tmp_path: Path) -> None:
    """What ``make cluster`` runs: what was acknowledged is there after ``kill -9``, and the node comes back; a node
    that refuses stays down, and that is said."""
    said: list[str] = []
    with (
        held_port() as a,
        held_port() as b,
        held_port() as c,
        LocalCluster(tmp_path, (a, b, c), said.append, "2s") as cluster,
    ):

        def until(method: str, path: str, body: bytes | dict[str, str] | None = None) -> Reply:
            def answer() -> Reply | None:
                cluster.check()
                return asked(cluster, method, path, body)

            found = eventually_blocking(answer, lambda: f"{method} {path}: {said}", 90)
            assert found is not None
            return found

        until("POST", "/v1/queues", {"name": "orders"})
        first = until("POST", "/v1/queues/orders/messages", b"1").json()["id"]
        led = {one.name for one in cluster.brokers if b"Syncbrok serves" in one.output.read_bytes()}
        (leader,) = [one for one in cluster.brokers if one.name in led]
        assert leader.process is not None
        leader.process.kill()
        eventually_blocking(lambda: cluster.check() or said, "its end is said")
        assert f"{leader.name} ended with -9: it is started again" in said[0]
        assert until("GET", f"/v1/messages/{first}").json()["id"] == first
        eventually_blocking(lambda: cluster.check() or leader.process, "it is started again")
        other = next(one for one in cluster.brokers if one is not leader)
        config = cluster.config(other.name[-1])
        config.write_text(config.read_text().replace('"main"', '"nowhere"'))
        assert other.process is not None
        other.process.kill()
        eventually_blocking(lambda: cluster.check() or other.ended == 78, lambda: f"it refuses: {said}", 60)
        assert "stays down" in said[-1]
        cluster.check()
        assert other.process is None
    assert all(one.process is None for one in (*cluster.servers, *cluster.brokers))
    assert json.loads(cluster.config("a").read_text())["cluster"]["node"] == "a"


def test_a_local_cluster_says_which_port_is_in_use(tmp_path: Path) -> None:
    """A second ``make cluster``, or a broker that runs already: told before anything is started, with what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken, held_port() as a, held_port() as c:
        port = taken.getsockname()[1]
        cluster = LocalCluster(tmp_path, (a, port, c), lambda _: None)
        with pytest.raises(OSError, match=f"port {port}, of broker b, .* --port"), cluster:
            pass
        assert not any(tmp_path.iterdir())
