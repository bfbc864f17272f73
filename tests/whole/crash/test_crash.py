"""The broker killed with SIGKILL under traffic: nothing acknowledged is lost, no child is early."""

from pathlib import Path

from tests.support.broker.process import BrokerProcess
from tests.support.crash.traffic import ordeal, waiting
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking

CYCLES = 4


def test_a_family_goes_on_where_it_was(tmp_path: Path) -> None:
    """DESIGN 1, durable and causal: killed between a parent and its children, the broker goes on with the children."""
    with Recorder(lambda request: 200 if request.body == b"parent" else 500) as subscriber:
        retry = ", ".join(["50ms"] * 8 + ["1s"] * 4)
        queues = f"queues: {{orders: {{retry: [{retry}], subscribers: [{{endpoint: '{subscriber.url}'}}]}}}}"
        with BrokerProcess(tmp_path / "storage", queues=queues) as broker:
            parent = broker.request("POST", "/v1/queues/orders/messages", b"parent").json()["id"]
            children = [
                broker.request("POST", "/v1/queues/orders/messages", body, {"Syncbrok-Parent": parent}).json()["id"]
                for body in (b"left", b"right")
            ]
            eventually_blocking(lambda: {r.id for r in subscriber.requests} >= set(children), "both children tried")
            broker.kill()
            subscriber.answer = lambda _: 200
            tried = len(subscriber.requests)
            broker.start()
            eventually_blocking(lambda: waiting(broker) == 0, "everything delivered", 20)
            for child in children:
                assert broker.request("GET", f"/v1/messages/{child}").json()["state"] == "complete"
    after = {request.id for request in subscriber.requests[tried:]}
    assert after == set(children)


def test_killed_under_traffic_nothing_is_lost_or_early(tmp_path: Path, seed: int) -> None:
    """DESIGN 1, RULES 1, 13: every 201 survives SIGKILL at any moment, and no child overtakes a parent."""
    survived = ordeal(tmp_path / "storage", seed, CYCLES)
    assert survived.messages > CYCLES * 10
    assert not survived.wrong, survived.wrong[:5]


def test_stopped_under_traffic_nothing_is_lost_or_early(tmp_path: Path, seed: int) -> None:
    """DESIGN 1: SIGTERM drains, exits 0, and the next start goes on; publishers see 503 or no connection, no more."""
    survived = ordeal(tmp_path / "storage", seed, 2, politely=True)
    assert survived.messages > 20
    assert not survived.wrong, survived.wrong[:5]
