"""Nobody stops anybody else: clients that take all they can get, against a real broker (DESIGN 1, bounded).

Broken by hand to see these fail: ``Budget.try_take`` that always says yes; the log's indexes kept without a bound;
answers that are not taken off the connection that has sent them.
"""

import os
import resource
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncbrok.model import limits
from tests.support.broker.process import resident_bytes
from tests.support.overload.attacks import (
    ATTACKS,
    MIB,
    Crowd,
    Target,
    Watch,
    attacked,
    budgets,
    publish_large,
    send_all_it_takes,
)
from tests.support.polling import eventually_blocking


@pytest.fixture(scope="module", autouse=True)
def _room_for_sockets() -> Iterator[None]:
    """A shell's limit is often 1,024, which is fewer than there are here."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 8_192), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def target(tmp_path: Path, name: str) -> Iterator[Target]:
    """A new one for each: memory that one attack has left behind would hide what the next takes."""
    with attacked(tmp_path / "storage", descriptors=ATTACKS[name].descriptors) as running:
        publish_large(running, 30, "warm")  # what was published last is kept in memory, and is no part of an attack
        yield running


@pytest.mark.parametrize("name", ATTACKS)
def test_a_greedy_client_costs_its_share_and_neighbours_go_on(target: Target, name: str) -> None:
    """INTERFACES 5: while one address takes all it can get, memory stays within 64 MiB of before, every publish of a
    neighbour is accepted and delivered, and when it is gone nothing is counted that nobody holds."""
    attack = ATTACKS[name]
    with Watch(target, attack.host) as watch:
        attack.run(target, attack.few)
    assert watch.grown_bytes < attack.grown_bytes_max, f"{watch.grown_bytes / MIB:.0f} MiB more than before"
    assert not watch.refused
    assert watch.told.statuses, "the neighbour was there"
    assert not watch.told.missing, "what it published has been delivered"
    held = ("receiving", "sending")
    eventually_blocking(
        lambda: not any(budgets(target)[one] for one in held), lambda: f"given back: {budgets(target)}", 15.0
    )


def test_few_descriptors_end_no_broker(tmp_path: Path) -> None:
    """INTERFACES 5, descriptors: with 256 of them, 300 idle sockets and a segment for every few messages, who came
    first publishes and who comes last does."""
    with (
        attacked(tmp_path / "storage", config="storage: {segment: 64KiB}\n", descriptors=256) as target,
        Crowd() as crowd,
    ):
        for _ in range(300):
            crowd.connect(target.broker.port)
        first = crowd.sockets[0]
        request = b"POST /v1/queues/theirs/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10000\r\n\r\n"
        for _ in range(30):
            first.sendall(request + b"a" * 10_000)
            assert first.recv(65_536).startswith(b"HTTP/1.1 201 ")
        assert target.broker.request("POST", "/v1/queues/theirs/messages", b"x").status == 201
        assert target.broker.process.poll() is None


def test_a_limit_that_sinks_while_it_runs_ends_no_broker(tmp_path: Path) -> None:
    """INTERFACES 5, descriptors: where accepting itself fails for want of them the broker does not spin, goes on with
    the connections it has, rolls its log, and takes new ones when there are descriptors again."""
    with attacked(tmp_path / "storage", config="storage: {segment: 64KiB}\n") as target:
        pid = target.broker.process.pid
        kept = socket.create_connection(("127.0.0.1", target.broker.port), 10)
        request = b"POST /v1/queues/theirs/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10000\r\n\r\n"

        def publish() -> None:
            kept.sendall(request + b"a" * 10_000)
            assert kept.recv(65_536).startswith(b"HTTP/1.1 201 ")

        publish()
        taken = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (taken + 8, 20_000))
        with Crowd() as crowd:
            for _ in range(60):
                crowd.connect(target.broker.port)
            before_s = _cpu_s(pid)
            for _ in range(30):
                publish()
            eventually_blocking(lambda: _cpu_s(pid) - before_s < 3.0, "it does not spin", 1.0)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (20_000, 20_000))
        eventually_blocking(lambda: _is_served(target), "new connections are taken again", 15.0)
        kept.close()


def test_a_crowd_refused_together_costs_nothing_more(tmp_path: Path) -> None:
    """INTERFACES 5, receiving: bodies that waited for room in vain are refused in the same moment. What their clients
    still send is read for a while, so that they hear the answer, and takes no memory; then the connection ends."""
    request = f"POST /v1/queues/theirs/messages:batch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {16 * MIB}\r\n"
    head = f"{request}Content-Type: application/x-ndjson\r\n\r\n".encode() + bytes(20_000)
    with attacked(tmp_path / "storage") as target, Crowd() as crowd:
        sockets = [crowd.connect(target.broker.port) for _ in range(80)]
        for one in sockets:
            one.sendall(head)
        eventually_blocking(lambda: budgets(target)["receiving"] > 16 * MIB, "the first are let in")
        send_all_it_takes(sockets, bytes(8 * MIB), 3.0)
        pid = target.broker.process.pid
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the most memory it had is counted anew
        before_bytes = target.broker.resident_bytes()
        refused = eventually_blocking(lambda: _answered(sockets, 70), "most are refused", 10.0)
        for one in refused:
            one.settimeout(10)
            said = b""
            while piece := one.recv(65_536):
                said += piece
            assert said.startswith(b"HTTP/1.1 429 "), said
            assert b"Connection: close" in said
        more_bytes = resident_bytes(pid, "VmHWM") - before_bytes
        assert more_bytes < 4 * MIB, f"{more_bytes / MIB:.0f} MiB for what is thrown away"


def _answered(sockets: list[socket.socket], least: int) -> list[socket.socket]:
    """Those of which something can be read, where there are so many."""
    readable = select.select(sockets, [], [], 0)[0]
    return readable if len(readable) >= least else []


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _is_served(target: Target) -> bool:
    try:
        return target.broker.request("GET", "/healthz").status == 200
    except OSError:
        return False


def test_what_nobody_reads_is_counted_and_not_with_the_system(tmp_path: Path) -> None:
    """INTERFACES 5, unread: a client that reads nothing leaves its answer with the broker, whose budget refuses the
    next ones; the system would have taken a MiB and more of each, as memory that nobody counts."""
    with attacked(tmp_path / "storage") as target, Crowd() as crowd:
        (one,) = publish_large(target, 1)
        ask = f"GET /v1/messages/{one}/content HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        for _ in range(40):
            crowd.connect(target.broker.port, small=True).sendall(ask)
        said = [asked.recv(12) for asked in crowd.sockets]
        assert set(said) == {b"HTTP/1.1 200", b"HTTP/1.1 429"}
        assert budgets(target)["sending"] >= MIB * said.count(b"HTTP/1.1 200") > 4 * MIB


def test_pulls_at_once_are_counted_before_they_are_made(tmp_path: Path) -> None:
    """INTERFACES 5, unread: of twenty pulls for 4 MiB each, sent together and never read, so many are answered as one
    client may leave unread; the others are told to come again, and what they were lent is for the next."""
    body = b'{"max": 1000, "wait": "1s", "lease": "5m"}'
    head = b"POST /v1/queues/theirs/pull HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    with attacked(tmp_path / "storage") as target, Crowd() as crowd:
        publish_large(target, 40)
        for _ in range(20):
            crowd.connect(target.broker.port, small=True).sendall(head + body)
        said = [asked.recv(12) for asked in crowd.sockets]
        assert set(said) == {b"HTTP/1.1 200", b"HTTP/1.1 429"}
        answered_bytes = said.count(b"HTTP/1.1 200") * limits.pull_bytes_max * 4 // 3
        assert answered_bytes <= limits.sending_bytes_max // 2 + MIB, "its share"
