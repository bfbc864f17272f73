"""RULES 34: a job goes on after kill -9, wherever that falls; real brokers."""

import random
from collections import Counter

import pytest

from tests.support.broker.process import BrokerProcess
from tests.support.http.recorder import Received, Recorder
from tests.support.polling import eventually_blocking

LETTERS = 1_500
CHAINS = 50
"""of so many messages each, every one the parent of the next"""
KILLS = 4
WINDOW = 8


@pytest.mark.parametrize("kind", ["recover", "drop"])
def test_a_killed_broker_goes_on_with_its_job(broker: BrokerProcess, seed: int, kind: str) -> None:
    """All is done in the end, parents before their children, and nothing twice but what a kill left without its row;
    what is dropped is gone."""
    dice = random.Random(seed)
    answers = {"status": 500}

    def answer(_: Received) -> int:
        return answers["status"]

    with Recorder(answer) as recorder:
        broker.request("POST", "/v1/queues", {"name": "q", "retry": [], "window": WINDOW})
        broker.request("POST", "/v1/queues/q/subscribers", {"endpoint": recorder.url, "name": "s", "breaker": False})
        chains = [publish_chain(broker) for _ in range(LETTERS // CHAINS)]

        def letters() -> int:
            return int(broker.request("GET", "/v1/queues/q").json()["statistics"]["dead_letters"])

        eventually_blocking(lambda: letters() == LETTERS, "all have died", 60)
        answers["status"] = 200
        recorder.requests.clear()
        if kind == "recover":
            started = broker.request("POST", "/v1/queues/q/subscribers/s/recover", {})
        else:
            started = broker.request("DELETE", "/v1/queues/q/dead-letters", {})
        assert started.status == 202, started.body
        where = f"/v1/jobs/{started.json()['id']}"
        for place in sorted(dice.sample(range(LETTERS), KILLS)):
            eventually_blocking(
                lambda place=place: (
                    (found := broker.request("GET", where).json())["done"] >= place or found["state"] == "done"
                ),
                "it comes so far",
            )
            broker.kill()
            broker.start()
        done = eventually_blocking(
            lambda: (found := broker.request("GET", where).json())["state"] == "done" and found, "it is done", 60
        )
        assert letters() == 0
        if kind == "drop":
            assert recorder.requests == []
            return
        assert (done["total"], done["done"], done["failed"]) == (LETTERS, LETTERS, 0)
        order: dict[str, int] = {}
        for at, one in enumerate(recorder.requests):
            order.setdefault(one.id, at)
        times = Counter(one.id for one in recorder.requests)
        assert len(times) == LETTERS
        assert max(times.values()) <= 1 + KILLS, "once more for each kill: its outcome may not have been on the disk"
        for chain in chains:
            assert sorted(chain, key=order.__getitem__) == chain


def publish_chain(broker: BrokerProcess) -> list[str]:
    lines = [b'{"content": "x"}'] + [b'{"content": "x", "parents": ["#%d"]}' % at for at in range(1, CHAINS)]
    given = {"Content-Type": "application/x-ndjson"}
    reply = broker.request("POST", "/v1/queues/q/messages:batch", b"\n".join(lines), given)
    assert reply.status == 201, reply.body
    return list(reply.json()["ids"])
