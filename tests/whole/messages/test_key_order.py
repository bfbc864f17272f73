"""The order of keys on a real broker, killed in between."""

import json
from pathlib import Path

from tests.support.broker.process import BrokerProcess
from tests.support.crash.traffic import verified
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking

MESSAGES = "/v1/queues/orders/messages"
WAYS = ("cancelled", "expired", "parent failed", "delayed", "held")


def test_nothing_overtakes_the_first_of_its_key(tmp_path: Path) -> None:
    """RULES 6: the first message of a key is tried again or not due yet, the next one ends early in one way or
    another, the broker is killed, and what is published then still comes behind the first."""
    mended = False
    with Recorder(lambda request: 500 if request.body.startswith(b"first") and not mended else 204) as subscriber:
        queues = f"queues: {{orders: {{retry: [1s, 1s, 1s], subscribers: [{{endpoint: '{subscriber.url}'}}]}}}}"
        with BrokerProcess(tmp_path / "storage", queues=queues) as broker:

            def publish(body: str, **headers: str) -> str:
                named = {f"Syncbrok-{name}": value for name, value in headers.items()}
                reply = broker.request("POST", MESSAGES, body.encode(), named)
                assert reply.status == 201, reply
                return str(reply.json()["id"])

            def state(message: str) -> str:
                return str(broker.request("GET", f"/v1/messages/{message}").json()["state"])

            parent = publish("parent", Delay="60")
            for way in WAYS:
                publish(f"first {way}", Key=way, **({"Delay": "2"} if way in ("delayed", "held") else {}))
            tried = {f"first {way}".encode() for way in WAYS[:3]}
            eventually_blocking(lambda: {one.body for one in subscriber.requests} >= tried, "the first of each tried")
            early = {
                way: publish(
                    f"early {way}",
                    Key=way,
                    **({"Expires": "0.2"} if way == "expired" else {}),
                    **({"Parent": parent} if way in ("parent failed", "held") else {}),
                    **({"Parent-Failure": "hold"} if way == "held" else {}),
                )
                for way in WAYS
            }
            for message in (early["cancelled"], early["delayed"], parent):
                assert broker.request("DELETE", f"/v1/messages/{message}").status == 200
            eventually_blocking(
                lambda: [state(early[way]) for way in WAYS] == ["dropped", "expired", "dead", "dropped", "held"],
                "each second message of a key has ended, or is held",
            )
            broker.kill()
            broker.start()
            lines = "\n".join(json.dumps({"content": f"last {way}", "key": way}) for way in WAYS)
            ndjson = {"Content-Type": "application/x-ndjson"}
            reply = broker.request("POST", f"{MESSAGES}:batch", lines.encode(), ndjson)
            last = dict(zip(WAYS, reply.json()["ids"], strict=True))
            mended = True
            eventually_blocking(lambda: all(state(last[way]) == "complete" for way in WAYS[:4]), "the last of each", 20)
            assert state(last["held"]) == "pending" or state(last["held"]) == "waiting"
            assert broker.request("DELETE", f"/v1/messages/{early['held']}").status == 200
            eventually_blocking(lambda: state(last["held"]) == "complete", "nothing held before it", 20)
            assert broker.terminate() == 0
    came = [one.body.decode() for one in subscriber.requests]
    for way in WAYS:
        assert [body for body in came if body.endswith(way)][-2:] == [f"first {way}", f"last {way}"]
    assert verified(tmp_path / "storage") == []
