"""A stream with ``option("reader", NAME)`` tells its broker how far it has come. A real broker, no Spark."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline.broker_log import BrokerLog
from syncbrok.pipeline.source.options import batch_options, stream_options
from syncbrok.pipeline.source.place_reporter import PlaceReporter
from syncbrok.pipeline.source.stream import SyncbrokStreamReader
from tests.support.broker.process import BrokerProcess

TWO = ReadMaxRows(2)


def readers(broker: BrokerProcess) -> list[tuple[Any, ...]]:
    listed = json.loads(broker.request("GET", "/v1/log/readers").body)["readers"]
    return [(one["name"], one["sequence"], one["lag"], one["hold"]) for one in listed]


def stream(url: str, **options: str) -> SyncbrokStreamReader:
    return SyncbrokStreamReader(stream_options({"url": url, **options}))


def test_a_stream_tells_what_it_has_read_and_no_more(tmp_path: Path) -> None:
    """A trigger's records count once Spark asks for the next one: what is under way may be read again. At the end of
    the log the reader has no lag; a stream without a name is none."""
    with BrokerProcess(tmp_path / "storage", queues="queues: {orders: {}}\n") as broker:
        durable = json.loads(broker.request("GET", "/v1/log/segments").body)["durable"]
        assert durable >= 2
        one = stream(broker.url, reader="warehouse", hold="true")
        at, told = one.initialOffset(), []
        while True:
            following = one.latestOffset(at, TWO)
            told += readers(broker)
            if following == at:
                break
            at = following
        assert told[0] == ("warehouse", 0, durable, True)
        assert told[1] == ("warehouse", 2, durable - 2, True)
        assert told[-1] == ("warehouse", durable, 0, True)
        unnamed = stream(broker.url)
        unnamed.latestOffset(unnamed.initialOffset(), TWO)
        assert len(readers(broker)) == 1
        with pytest.raises(BadSetting, match="does not note the place of reader other: the log is durable up to"):
            BrokerLog(broker.url).tell_reader("other", durable + 1, None)


def test_a_place_that_stands_is_told_now_and_then(tmp_path: Path) -> None:
    """So that a stream with nothing to read is not silent; a broker that is away is told the next time."""
    now_s = [0.0]
    with BrokerProcess(tmp_path / "storage", queues="queues: {orders: {}}\n") as broker:
        reporter = PlaceReporter(BrokerLog(broker.url), "idle", None, lambda: now_s[0])
        reporter.report(1)
        broker.request("DELETE", "/v1/log/readers/idle")
        reporter.report(1)
        assert readers(broker) == []
        now_s[0] = 10.0
        reporter.report(1)
        assert [one[:2] for one in readers(broker)] == [("idle", 1)]
        broker.kill()
        reporter.report(2)
        broker.start()
        assert [one[:2] for one in readers(broker)] == [("idle", 1)]
        reporter.report(2)
        assert [one[:2] for one in readers(broker)] == [("idle", 2)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"path": "storage/", "reader": "r"}, "reader is for a log over the network: give url"),
        ({"url": "http://b:1", "reader": "two words"}, "a reader's name has 1 to 128 letters"),
        ({"url": "http://b:1", "hold": "true"}, "name it with reader"),
        ({"url": "http://b:1", "reader": "r", "hold": "maybe"}, "hold is 'maybe'; it must be true or false"),
    ],
)
def test_mistakes_are_a_sentence(options: dict[str, str], told: str) -> None:
    """Before anything is read."""
    with pytest.raises(BadSetting, match=told):
        stream_options(options)


def test_a_batch_has_no_place() -> None:
    """It would be told once and be silent from then on."""
    with pytest.raises(BadSetting, match="reader is for a stream"):
        batch_options({"url": "http://b:1", "reader": "r"})
