"""A real broker and a receiver that says in a 2xx what is to become of a message."""

import json
from pathlib import Path

from syncbrok.log.offline.order import check
from tests.support.broker.process import BrokerProcess
from tests.support.http.recorder import Received, Recorder
from tests.support.log.segment_files import facts_in
from tests.support.polling import eventually_blocking

ONE = "/v1/queues/orders/subscribers/a"
FILE = """
queues:
  orders:
    retry: [20ms, 20ms]
    subscribers:
      - {{name: a, endpoint: "{url}", verdicts: true}}
"""


def test_a_receiver_retries_drops_and_gives_up(tmp_path: Path) -> None:
    """INTERFACES 3: RETRY spends attempts and ends dead with them; DROP is skipped, counts as acknowledged for a child,
    and comes back by recover; DEAD is a dead letter at once, and its child fails. All over kill -9."""
    said = {"retry": ["RETRY", "RETRY", "OK"], "never": ["RETRY"], "drop": ["DROP"], "dead": ["DEAD"]}

    def answer(request: Received) -> int:
        words = said.get(request.body.decode(), ["OK"])
        recorder.body = json.dumps({"status": words.pop(0) if len(words) > 1 else words[0]}).encode()
        return 200

    with Recorder(answer) as recorder, BrokerProcess(tmp_path / "log", queues=FILE.format(url=recorder.url)) as broker:

        def publish(body: str, *parents: str) -> str:
            headers = {"Syncbrok-Parent": ", ".join(parents)} if parents else {}
            return str(broker.request("POST", "/v1/queues/orders/messages", body.encode(), headers).json()["id"])

        def shown(id_: str) -> tuple[str, str, int, str | None]:
            (to,) = broker.request("GET", f"/v1/messages/{id_}").json()["deliveries"]
            last = to["attempts"][-1]
            return to["state"], last["outcome"], last["attempt"], last["reason"]

        def ended(id_: str) -> bool:
            return broker.request("GET", f"/v1/messages/{id_}").json()["state"] in ("complete", "dead")

        made = {}
        for body in ("retry", "never", "drop", "dead"):  # one after the other: the recorder has one body
            made[body] = publish(body)
            eventually_blocking(lambda body=body: ended(made[body]), body)  # type: ignore[misc]
        child, orphan = publish("child", made["drop"]), publish("orphan", made["dead"])
        eventually_blocking(lambda: ended(child) and ended(orphan), "the children")
        for _ in range(2):
            assert shown(made["retry"]) == ("delivered", "delivered", 3, None)
            assert shown(made["never"]) == ("dead", "dead", 3, "receiver")
            assert shown(made["drop"]) == ("skipped", "skipped", 1, "receiver")
            assert shown(made["dead"]) == ("dead", "dead", 1, "receiver")
            assert broker.request("GET", f"/v1/messages/{child}").json()["state"] == "complete"
            assert broker.request("GET", f"/v1/messages/{orphan}").json()["state"] == "dead"
            broker.kill()
            broker.start()
        statistics = broker.request("GET", ONE).json()["statistics"]
        assert (statistics["delivered"], statistics["dead_letters"]) == (2, 3)
        said["drop"] = ["OK"]
        broker.request("POST", f"{ONE}/recover", {"state": "skipped"})
        eventually_blocking(lambda: shown(made["drop"])[0] == "delivered", "it comes back")
        assert shown(made["drop"])[2] == 2
    assert not check(facts_in(tmp_path / "log"))
