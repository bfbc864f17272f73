"""Batches over HTTP: what is sent again, what is not, and how it is told."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline.sink.publisher import BatchRefused, BrokerGone, Publisher, PublishTarget, check_url
from tests.support.broker.process import BrokerProcess, held_port

LINE = b'{"content":"a","idempotency_key":"%d"}'


@contextmanager
def answering(*answers: int | None, retry_after: str | None = None) -> Iterator[tuple[str, list[bytes]]]:
    """An HTTP server that answers with these statuses, one request after the other, and 201 from then on; None breaks
    the connection off. What it was sent is the list."""
    sent: list[bytes] = []
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent.append(self.rfile.read(int(self.headers["Content-Length"])))
            status = left.pop(0) if left else 201
            if status is None:
                self.close_connection = True
                return
            ids = json.dumps({"ids": [str(n) for n in range(sent[-1].count(b"\n") + 1)]}).encode()
            body = ids if status < 300 else b'{"detail": "line 2: no", "line": 2, "mend": "do"}'
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if retry_after:
                self.send_header("Retry-After", retry_after)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", sent
        finally:
            server.shutdown()
            thread.join()


def pausing() -> tuple[list[float], Callable[[float], None]]:
    """What was waited, and how to wait without waiting."""
    pauses: list[float] = []
    return pauses, pauses.append


def test_what_the_broker_cannot_take_now_is_sent_again() -> None:
    """429, 503, 507, a proxy's 502 and a broken connection: the same bytes again, after a growing pause."""
    pauses, sleep = pausing()
    with answering(429, 503, None, 507, 502, 504) as (url, sent), Publisher(PublishTarget(url), sleep) as publisher:
        published = publisher.publish("orders", [LINE % 1, LINE % 2])
    assert published.ids == ["0", "1"]
    assert not published.was_known
    assert sent == [b"\n".join([LINE % 1, LINE % 2])] * 7
    assert publisher.retries == len(pauses) == 6
    assert all(0 < pause <= 0.1 * 2**number for number, pause in enumerate(pauses))


def test_retry_after_is_honoured() -> None:
    """The broker says when it expects to take more; sooner is not asked."""
    pauses, sleep = pausing()
    with answering(503, retry_after="7") as (url, _), Publisher(PublishTarget(url), sleep) as publisher:
        publisher.publish("orders", [LINE % 1])
    assert pauses == [7]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 500])
def test_what_asking_again_does_not_mend_is_refused_at_once(status: int) -> None:
    """The error has the line, counted from 0, what the broker says and what to do."""
    with answering(status) as (url, sent), Publisher(PublishTarget(url)) as publisher:
        with pytest.raises(BatchRefused, match=rf"queue 'orders': {status}: no \(do\)") as refused:
            publisher.publish("orders", [LINE % 1, LINE % 2])
        assert (refused.value.status, refused.value.line) == (status, 1)
        assert len(sent) == 1


def test_no_broker_within_the_time_is_an_error_that_says_what_is_not_known() -> None:
    """Whether the last batch was accepted is not known; repeating it with the same keys is right, and said."""
    pauses, sleep = pausing()
    with held_port() as port:
        url = f"http://127.0.0.1:{port}"
        with (
            Publisher(PublishTarget(url, retry_timeout_s=1.0), sleep) as publisher,
            pytest.raises(BrokerGone, match=r"did not take a batch of 1 .* within 1 s, and whether .* same keys"),
        ):
            publisher.publish("orders", [LINE % 1])
        assert pauses
        with Publisher(PublishTarget(url)) as publisher, pytest.raises(BrokerGone, match=f"no broker answers at {url}"):
            publisher.check_queue("orders", within_s=0.1)


def test_a_cluster_has_several_addresses() -> None:
    """PIPELINE, sink: commas between them; a batch that a node took without a word goes to the next, since each line
    has a key."""
    pauses, sleep = pausing()
    with answering(None) as (one, first), answering() as (other, second):
        with Publisher(PublishTarget(f"{one},{other}"), sleep) as publisher:
            assert publisher.publish("orders", [LINE % 1, LINE % 2]).ids == ["0", "1"]
        assert (first == second, pauses) == (True, [])
    with pytest.raises(BadSetting):
        check_url(f"{one},")


def test_the_broker_answers_a_repeated_batch_with_the_first_ids(broker: BrokerProcess) -> None:
    """RULES 4, as the sink relies on it: known lines return their first id, among new ones too; 200 if all are."""
    broker.request("POST", "/v1/queues", {"name": "orders"})
    with Publisher(PublishTarget(broker.url)) as publisher:
        first = publisher.publish("orders", [LINE % 1, LINE % 2])
        again = publisher.publish("orders", [LINE % 1, LINE % 2])
        mixed = publisher.publish("orders", [LINE % 2, LINE % 3])
    assert not first.was_known
    assert again == (first.ids, True)
    assert mixed.ids[0] == first.ids[1]
    assert not mixed.was_known
    assert broker.request("GET", "/v1/queues/orders").json()["statistics"]["accepted"] == 3


def test_a_conflict_of_keys_names_the_line_and_what_it_means(broker: BrokerProcess) -> None:
    """The same key for other content: nothing of the batch is accepted, and the error says what may be wrong."""
    broker.request("POST", "/v1/queues", {"name": "orders"})
    with Publisher(PublishTarget(broker.url)) as publisher:
        publisher.publish("orders", [LINE % 1])
        with pytest.raises(BatchRefused, match=r"409.*is the column unique") as refused:
            publisher.publish("orders", [LINE % 2, b'{"content":"other","idempotency_key":"1"}'])
        assert refused.value.line == 1
        with pytest.raises(BatchRefused, match="syncbrok queues create"):
            publisher.publish("nothing", [LINE % 1])
        with pytest.raises(BatchRefused, match="syncbrok queues create"):
            publisher.check_queue("nothing")
        publisher.check_queue("orders")
    assert broker.request("GET", "/v1/queues/orders").json()["statistics"]["accepted"] == 1


def test_a_token_is_sent_and_asked_for(tmp_path: Path) -> None:
    """A broker with tokens takes nothing without one; a token that may only publish is enough for the sink."""
    digest = hashlib.sha256(b"open-sesame").hexdigest()
    config = f"http: {{tokens: [{{name: spark, sha256: {digest}, scopes: [publish]}}]}}\n"
    with BrokerProcess(tmp_path / "storage", queues="queues: {orders: {}}\n", config=config) as broker:
        with (
            Publisher(PublishTarget(broker.url)) as publisher,
            pytest.raises(BatchRefused, match=r"401.*the option token"),
        ):
            publisher.publish("orders", [LINE % 1])
        with Publisher(PublishTarget(broker.url, "open-sesame")) as publisher:
            publisher.check_queue("orders")
            assert len(publisher.publish("orders", [LINE % 1]).ids) == 1


def test_what_answers_may_be_something_else() -> None:
    """A web server that answers 201 to everything is no broker, and nothing was published."""
    with (
        answering() as (url, _),
        Publisher(PublishTarget(url, retry_timeout_s=0)) as publisher,
        pytest.raises(BrokerGone, match="is no broker"),
    ):
        publisher.publish("orders", [b"\n"])


@pytest.mark.parametrize("url", ["127.0.0.1:10000", "ftp://x", "http://", "http://a:99999", "http://a b"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    """Before anything is sent."""
    with pytest.raises(BadSetting, match="url: expected"):
        check_url(url)
