"""Scenarios in which another node takes over: the leader, or its host, is killed, stopped, cut off, or gives way."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.mutations import Mutation, made
from tests.support.broker.process import ROOT
from tests.support.cluster.ordeal import ClusterOrdeal
from tests.support.cluster.stream_reader import ask_engine
from tests.support.http.webhook_receiver import CLOSING
from tests.support.polling import eventually_blocking

Judged = tuple[str, list[str]]
"""what was done, and what is wrong"""
KILLS: Final = 20
STOPS_S: Final = (5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 60.0)
CUTS_S: Final = 8.0
HOSTS_KILLED: Final = 10
YIELDS: Final = 20
BACKLOG: Final = 300
BLIND: Final = (
    Mutation(
        "nobody looks at the lease before the first byte",
        "causal",
        "syncbrok/delivery/webhook/connection.py",
        "self._write_while_leading if guard.looks else self._transport.write",
        "self._transport.write",
        (),
    ),
    Mutation(
        "the lease always holds",
        "causal",
        "syncbrok/cluster/leadership.py",
        "        return self._election.holds(self._clock_us())\n",
        "        return True\n",
        (),
    ),
)
"""of R5: each alone must be noticed"""


def leader_killed(directory: Path, seed: int, times: int = KILLS) -> Judged:
    """SIGKILL for whoever leads, in the middle of traffic."""
    with ClusterOrdeal(directory, seed) as cluster:
        for _ in range(times):
            cluster.storm(cluster.chance.randrange(30, 150))
            leader = cluster.leader()
            with cluster.gap("kills of the leader"):
                leader.kill()
            cluster.nodes.leader_after(leader.epoch)
        return cluster.judged()


def leader_stopped(
    directory: Path, seed: int, stops_s: tuple[float, ...] = STOPS_S, tree: Path = ROOT, times: int = 1
) -> Judged:
    """SIGSTOP of whoever leads, for longer than its lease, the moment it has begun to send what had piled up."""
    with ClusterOrdeal(directory, seed, tree=tree) as cluster:
        for seconds in stops_s * times:
            cluster.storm()
            leader = cluster.leader()
            _pile_up(cluster)
            with cluster.stopped(leader):
                with cluster.gap(f"stops for {seconds:g} s"):
                    cluster.pause_s(0.0)
                cluster.nodes.leader_after(leader.epoch)
                cluster.pause_s(seconds)
            cluster.storm()
        return cluster.judged()


def _pile_up(cluster: ClusterOrdeal) -> None:
    """A subscriber of parents is paused, many wait for it, and it has just begun to get them."""
    path = f"/v1/queues/customers/subscribers/{CLOSING}"
    cluster.nodes.request("PATCH", path, {"paused": True})
    cluster.storm(BACKLOG)
    wanted = cluster.receiver.count(CLOSING) + cluster.chance.randrange(1, 20)
    cluster.nodes.request("PATCH", path, {"paused": False})
    eventually_blocking(lambda: cluster.receiver.count(CLOSING) >= wanted, "it goes on")


def leader_stopped_and_blind(directory: Path, seed: int) -> Judged:
    """The same, of brokers that were broken on purpose: the judge must see parents after their children."""
    told, wrong = [], []
    for number, blind in enumerate(BLIND):
        copy, place = directory / f"copy-{number}", directory / f"of-{number}"
        place.mkdir()
        made(blind, copy)
        done, found = leader_stopped(place, seed + number, (5.0,), copy, 5)
        late = [what for what in found if _follows_from_blindness(what)]
        told.append(f"{blind.what}: {len(late)} out of order, {done}")
        if not late:
            wrong.append(f"{blind.what}: nobody noticed")
        wrong += [what for what in found if what not in late]
    return "; ".join(told), wrong


def _follows_from_blindness(what: str) -> bool:
    """Whether a breach is what a leader does that believes itself one: attempts out of order, and a publisher that is
    told of a parent which the next leader has accepted."""
    return what.startswith(("late parent", "early")) or (what.startswith("publisher") and "unknown-parent" in what)


def host_cut_off(directory: Path, seed: int, times: int = 1) -> Judged:
    """The network of a host is gone, broker and server: the leader's, a follower's; and one way alone."""
    with ClusterOrdeal(directory, seed, apart=True) as cluster:
        for way in ("leader", "leader", "follower", "inward", "outward") * times:
            cluster.storm()
            leader = cluster.leader()
            node = cluster.followers()[0] if way == "follower" else leader
            way_in = way == "inward"
            cut = cluster.cut_off(node) if way in ("leader", "follower") else cluster.cut_one_way(node, inward=way_in)
            with cut:
                with cluster.gap(f"hosts cut off ({way})"):
                    cluster.pause_s(0.0)
                cluster.pause_s(CUTS_S)
            cluster.storm()
        return cluster.judged()


def host_killed(directory: Path, seed: int, times: int = HOSTS_KILLED) -> Judged:
    """The leader and the server beside it at once; both are back some seconds later."""
    with ClusterOrdeal(directory, seed) as cluster:
        for _ in range(times):
            cluster.storm()
            leader = cluster.leader()
            server = cluster.server_of(leader)
            with cluster.down(leader):
                with cluster.gap("hosts killed"):
                    leader.kill()
                    server.kill()
                cluster.storm(30)
                server.start()
            cluster.nodes.leader_after(leader.epoch)
        return cluster.judged()


def engine_hurt(directory: Path, seed: int, times: int = 2) -> Judged:
    """The stream's leader is killed, stopped, told to go, told to step down; then most of the servers die, and all."""
    with ClusterOrdeal(directory, seed) as cluster:
        for blow in (_kill_engine, _stop_engine, _lame_duck, _step_down, _majority_dies, _all_die) * times:
            cluster.storm()
            blow(cluster)
            cluster.storm()
        return cluster.judged()


def _kill_engine(cluster: ClusterOrdeal) -> None:
    server = cluster.engine_leader()
    with cluster.gap("kills of the stream's leader"):
        server.kill()
    server.start()


def _stop_engine(cluster: ClusterOrdeal) -> None:
    server = cluster.engine_leader()
    server.pause(paused=True)
    with cluster.gap("stops of the stream's leader"):
        cluster.pause_s(0.0)
    server.pause(paused=False)


def _lame_duck(cluster: ClusterOrdeal) -> None:
    server = cluster.engine_leader()
    assert server.process is not None
    with cluster.gap("lame ducks"):
        server.process.send_signal(signal.SIGUSR2)
    cluster.pause_s(3.0)
    server.kill()  # it takes two minutes to let its clients go
    server.start()


def _step_down(cluster: ClusterOrdeal) -> None:
    urls = [one.server.url for one in cluster.engine.servers]
    with cluster.gap("leaders of the stream that step down"):
        ask_engine(urls, f"STREAM.LEADER.STEPDOWN.SB_{cluster.nodes.space}")


def _majority_dies(cluster: ClusterOrdeal) -> None:
    two = cluster.chance.sample(cluster.engine.servers, 2)
    with cluster.gap("majorities killed"):
        for one in two:
            one.kill()
        cluster.pause_s(5.0)
        for one in two:
            one.start()


def _all_die(cluster: ClusterOrdeal) -> None:
    with cluster.gap("engines killed"):
        for one in cluster.engine.servers:
            one.kill()
        cluster.pause_s(3.0)
        for one in cluster.engine.servers:
            one.start()


def leader_yields(directory: Path, seed: int, times: int = YIELDS) -> Judged:
    """A planned switch under load, each second one to a node that is named."""
    with ClusterOrdeal(directory, seed) as cluster:
        for number in range(times):
            cluster.storm(40)
            leader = cluster.leader()
            to = cluster.chance.choice(cluster.followers()).name if number % 2 else ""
            with cluster.gap("yields"):
                eventually_blocking(lambda to=to: _told_to_yield(cluster, to), "it is told to yield", 60)
            then = cluster.nodes.leader_after(leader.epoch)
            cluster.done["of them to whom was named"] += then.name == to  # who is late is not waited for
        return cluster.judged()


def _told_to_yield(cluster: ClusterOrdeal, to: str) -> bool:
    """Who is named must have been heard of lately (400)."""
    try:
        answer = cluster.nodes.request("POST", "/v1/cluster/yield", {"to": to} if to else {})
    except OSError:
        return False
    assert answer.status in (202, 400, 503), answer
    return answer.status == 202


SCENARIOS: Final[dict[str, Callable[[Path, int], Judged]]] = {
    "leader killed": leader_killed,
    "host cut off": lambda directory, seed: host_cut_off(directory, seed, 2),
    "leader stopped": leader_stopped,
    "leader stopped and blind": leader_stopped_and_blind,
    "host killed": host_killed,
    "engine hurt": engine_hurt,
    "leader yields": leader_yields,
}
