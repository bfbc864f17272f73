"""The query of an endpoint is for the endpoint alone: it goes out with each delivery, and is shown nowhere."""

from pathlib import Path

from click.testing import CliRunner

from syncbrok.cli.main import group
from tests.support.broker.process import BrokerProcess
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking

ONE = "/v1/queues/orders/subscribers/billing"
READ = (
    "/v1/queues/orders",
    "/v1/queues/orders/subscribers",
    ONE,
    f"{ONE}/deliveries",
    "/v1/queues/orders/dead-letters",
    "/v1/queues/syncbrok.events/messages",
    "/v1/messages?queue=orders&subscriber=down&state=retrying",
    "/metrics",
)
QUEUES = """
queues:
  orders:
    retry: []
    subscribers:
      - {{name: billing, endpoint: "{url}in?token=s3cret&v=2", breaker: false}}
      - {{name: down, endpoint: "http://127.0.0.1:9/?token=s3cret", retry: [1h], breaker: {{failures: 1}}}}
"""


def printed(*command: str, broker: BrokerProcess) -> str:
    result = CliRunner().invoke(group, list(command), env={"SYNCBROK_URL": broker.url})
    assert result.exit_code == 0, result.output
    return result.output


def test_a_query_is_sent_and_shown_nowhere(tmp_path: Path) -> None:
    """RULES 19: not in answers, events, metrics, words of failures, commands and the broker's own log lines; the form
    that is shown, written back, leaves it in force, after a restart too."""
    with (
        Recorder(lambda _: 500) as recorder,
        BrokerProcess(tmp_path / "storage", queues=QUEUES.format(url=recorder.url)) as broker,
    ):
        events_to = {"name": "ops", "pull": True}
        assert broker.request("POST", "/v1/queues/syncbrok.events/subscribers", events_to).status == 201
        sent = broker.request("POST", "/v1/queues/orders/messages", b"x").json()["id"]
        path = f"/v1/messages/{sent}"

        def told() -> bool:
            shown = broker.request("GET", path).json()["deliveries"]
            return {one["state"] for one in shown} == {"dead", "retrying"}

        eventually_blocking(told, "one is refused, one not reached")
        assert recorder.paths == ["/in?token=s3cret&v=2"]
        shown = {one: broker.request("GET", one).body.decode() for one in (*READ, path, f"{path}/critical-path")}
        pulled = broker.request("POST", "/v1/queues/syncbrok.events/pull", {"group": "ops", "max": 10})
        events, leases = pulled.body.decode(), [one["lease"] for one in pulled.json()["messages"]]
        assert "syncbrok.message.dead" in events
        assert "syncbrok.breaker.opened" in events
        shown["events"] = events
        for command in (("subscribers", "list", "orders"), ("messages", "show", sent)):
            shown[" ".join(command)] = printed(*command, broker=broker)
        shown["log cat"] = printed("log", "cat", "--storage", str(broker.storage), broker=broker)
        assert [one for one, text in shown.items() if "s3cret" in text] == []
        for one in (ONE, path, f"{path}/critical-path", "events", "log cat"):
            assert "?token=***" in shown[one], one
        before = broker.request("GET", ONE).json()
        kept = {name: before[name] for name in ("name", "endpoint", "headers", "paused", "timeout", "window")}
        assert broker.request("PATCH", ONE, {**kept, "window": 7}).json()["window"] == 7
        assert broker.request("POST", "/v1/queues/orders/subscribers", {"endpoint": "http://h/?k=***"}).status == 400
        assert broker.request("POST", "/v1/leases:ack", {"leases": leases}).json()["over"] == []
        # A broker that ends waits for what it has lent
        broker.terminate()
        broker.start()
        broker.request("POST", "/v1/queues/orders/messages", b"y")
        eventually_blocking(lambda: len(recorder.paths) == 2, "the second message")
        assert set(recorder.paths) == {"/in?token=s3cret&v=2"}
        assert "s3cret" not in broker.output()
