"""What the broker says of itself arrives as a webhook (RULES 30): a real broker, killed right after the fact."""

import json
from pathlib import Path

from tests.support.broker.process import BrokerProcess
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking

EVENTS = "/v1/queues/syncbrok.events"


def test_that_an_endpoint_was_disabled_arrives_though_the_broker_is_killed(tmp_path: Path) -> None:
    """RULES 30, DESIGN 1, durable: the event stands in the batch of the fact. While its own endpoint is down the broker
    is killed as soon as the subscriber is shown as disabled; after a start the event comes."""
    with Recorder() as ops, Recorder() as gone:
        ops.answer, gone.answer = (lambda _: 503), (lambda _: 410)
        with BrokerProcess(tmp_path) as broker:
            given = {"name": "ops", "endpoint": ops.url, "retry": ["100ms"] * 50, "breaker": False}
            assert broker.request("POST", f"{EVENTS}/subscribers", given).status == 201
            assert broker.request("POST", f"{EVENTS}/messages", b"mine").status == 403
            broker.request("POST", "/v1/queues", {"name": "q"})
            broker.request("POST", "/v1/queues/q/subscribers", {"name": "s", "endpoint": gone.url})
            broker.request("POST", "/v1/queues/q/messages", b"x")
            eventually_blocking(
                lambda: broker.request("GET", "/v1/queues/q/subscribers/s").json()["state"] == "disabled",
                "it is disabled",
            )
            broker.kill()
            before = len(ops.requests)
            ops.answer = lambda _: 200
            broker.start()

            def disabled() -> dict[str, str] | None:
                kind = "syncbrok.endpoint.disabled"
                found = [one for one in ops.requests[before:] if one.headers.get("ce-type") == kind]
                return json.loads(found[0].body) if found else None

            data = eventually_blocking(disabled, "the event comes after the kill")
            assert data == {"queue": "q", "subscriber": "s", "endpoint": gone.url, "reason": "gone", "by": None}
            shown = broker.request("GET", "/v1/queues/q/subscribers/s").json()
            assert (shown["state"], shown["disabled_reason"]) == ("disabled", "gone")
