"""A real broker whose queues keep what has ended only so long, and kill -9 in the middle."""

from pathlib import Path

from tests.support.broker.process import BrokerProcess
from tests.support.crash.traffic import verified
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking

CONFIG = "storage: {segment: 128KiB, erase_within: 2s}\n"
FILE = """
queues:
  gone:
    retention: 1s
    subscribers: [{{name: a, endpoint: "{url}"}}]
  slim:
    erase_after: 1s
    subscribers: [{{name: a, endpoint: "{url}"}}]
  kept:
    subscribers: [{{name: a, endpoint: "{url}"}}]
"""
SECRET = b"of-ann-alone "
EACH = 10


def test_in_time_it_is_gone_whatever_is_killed(tmp_path: Path) -> None:
    """RULES 37, RULES 32: after kill -9 in the middle of it everything of both queues is erased a second after its end,
    in time no file has anything of it, what another queue has stays, and the log verifies."""
    with Recorder(lambda _: 200) as recorder:
        broker = BrokerProcess(tmp_path / "log", queues=FILE.format(url=recorder.url), config=CONFIG)
        with broker:
            ids: dict[str, list[str]] = {}
            for queue in ("gone", "slim", "kept"):
                content = SECRET * 400 if queue != "kept" else b"another " * 400
                for _ in range(EACH):
                    answer = broker.request("POST", f"/v1/queues/{queue}/messages", content)
                    ids.setdefault(queue, []).append(answer.json()["id"])

            def status(queue: str, number: int = -1) -> int:
                return broker.request("GET", f"/v1/messages/{ids[queue][number]}/content").status

            eventually_blocking(lambda: status("gone", 0) == 410, "it has begun")
            broker.kill()
            broker.start()
            for queue in ("gone", "slim"):
                eventually_blocking(lambda queue=queue: status(queue) == 410, f"{queue} is erased")
            eventually_blocking(lambda: not holding(broker), lambda: f"it is gone, not from {holding(broker)}", 30)
            said = {queue: broker.request("GET", f"/v1/messages/{ids[queue][0]}").status for queue in ids}
            assert said == {"gone": 410, "slim": 200, "kept": 200}
            assert [status("kept", number) for number in range(EACH)] == [200] * EACH
            listed = broker.request("GET", "/v1/log/erased?limit=1000").json()["erased"]
            assert {one for fact in listed for one in fact["ids"]} == {*ids["gone"], *ids["slim"]}
        assert verified(broker.storage) == []


def holding(broker: BrokerProcess) -> list[str]:
    return [path.name for path in broker.storage.glob("*") if path.is_file() and SECRET in path.read_bytes()]
