"""Every message ends, and every end can be read from the log: a broker, subscribers in every kind of trouble."""

from collections import Counter
from pathlib import Path

from syncbrok.log.journal import FileJournal
from syncbrok.model.facts import Outcome, Outcomes, Reason, Row, StoredMessage
from syncbrok.model.journal import JournalOptions
from tests.support.broker.process import BrokerProcess
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking

SUBSCRIBERS = "/v1/queues/shop/subscribers"
MESSAGES = "/v1/queues/shop/messages"


def publish(broker: BrokerProcess, content: bytes, **headers: str) -> str:
    reply = broker.request("POST", MESSAGES, content, {name.replace("_", "-"): text for name, text in headers.items()})
    assert reply.status in {200, 201}, reply.body
    return str(reply.json()["id"])


def state(broker: BrokerProcess, message: str) -> str:
    return str(broker.request("GET", f"/v1/messages/{message}").json()["state"])


def ends(storage: Path) -> dict[str, list[Row]]:
    """Content of each message -> the rows that ended its deliveries, read from the log alone."""
    journal = FileJournal.open(storage, JournalOptions(), lambda: 0)
    try:
        facts = list(journal.facts())
        sequences = [fact.sequence for fact in facts if isinstance(fact, StoredMessage)]
        contents = {m.sequence: m.content.decode() for m in journal.read_many(sequences) if m is not None}
    finally:
        journal.close()
    rows: dict[str, list[Row]] = {content: [] for content in contents.values()}
    for row in (row for fact in facts if isinstance(fact, Outcomes) for row in fact.rows):
        if row.outcome not in {Outcome.FAILED, Outcome.LATE}:
            rows[contents[row.message]].append(row)
    return rows


def test_every_end_is_a_record(broker: BrokerProcess) -> None:
    """DESIGN 1, nothing lost: delivered, dead (with the reason), expired and dropped, each is one row of the log."""
    with Recorder(lambda request: 500 if request.body == b"refused" else 200) as recorder:
        broker.request("POST", "/v1/queues", {"name": "shop", "retry": []})
        broker.request("POST", SUBSCRIBERS, {"name": "s", "endpoint": recorder.url})
        delivered = publish(broker, b"delivered", Prefer="wait=10")
        refused = publish(broker, b"refused", Prefer="wait=10")
        orphan = publish(broker, b"child of refused", Syncbrok_Parent=refused)
        expired = publish(broker, b"expired", Syncbrok_Delay="1h", Syncbrok_Expires="1s")
        dropped = publish(broker, b"dropped", Syncbrok_Delay="1h")
        assert broker.request("DELETE", f"/v1/messages/{dropped}").status == 200
        wanted = {delivered: "complete", refused: "dead", orphan: "dead", expired: "expired", dropped: "dropped"}
        for message, end in wanted.items():
            eventually_blocking(lambda m=message, e=end: state(broker, m) == e, f"{message} {end}")
    assert broker.terminate() == 0
    found = {content: [(row.outcome, row.reason) for row in rows] for content, rows in ends(broker.storage).items()}
    assert found == {
        "delivered": [(Outcome.DELIVERED, Reason.NONE)],
        "refused": [(Outcome.DEAD, Reason.STATUS)],
        "child of refused": [(Outcome.DEAD, Reason.PARENT_FAILED)],
        "expired": [(Outcome.EXPIRED, Reason.EXPIRED)],
        "dropped": [(Outcome.DROPPED, Reason.CANCELLED)],
    }


def test_at_least_once_to_each_who_was_there(broker: BrokerProcess) -> None:
    """DESIGN 1, at least once: two subscribers, one failing at first; both get it, under one webhook-id."""
    tries: Counter[str] = Counter()

    def at_first(request: object) -> int:
        tries["b"] += 1
        return 503 if tries["b"] == 1 else 200

    with Recorder() as steady, Recorder(at_first) as shaky, Recorder() as late:
        broker.request("POST", "/v1/queues", {"name": "shop", "retry": ["100ms"]})
        broker.request("POST", SUBSCRIBERS, {"name": "a", "endpoint": steady.url})
        broker.request("POST", SUBSCRIBERS, {"name": "b", "endpoint": shaky.url})
        message = publish(broker, b"x", Prefer="wait=10")
        broker.request("POST", SUBSCRIBERS, {"name": "c", "endpoint": late.url})
        assert [request.id for request in steady.requests] == [message]
        assert [request.id for request in shaky.requests] == [message, message]
        assert [request.headers["syncbrok-attempt"] for request in shaky.requests] == ["1", "2"]
        assert not late.requests
