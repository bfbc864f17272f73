"""What is replayed goes out below the new copies of its parents, once, whatever breaks on the way."""

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from syncbrok.cli.pipeline.group import command as pipeline
from syncbrok.model.errors import BadSetting
from syncbrok.model.names import id_text, make_message_id
from syncbrok.pipeline.replay import job
from syncbrok.pipeline.replay.known_parents import unknown_to
from syncbrok.pipeline.replay.writer import HEADER, ReplayTask, ReplayWriter
from syncbrok.pipeline.sink.publisher import BadRow, Publisher, PublishTarget
from tests.support.broker.process import BrokerProcess

QUEUES = "queues: {orders: {}, cards: {}, again: {}}\n"
FOREIGN = id_text(make_message_id(1_790_000_000_000, 7, bytes(16)))
"""an id of another log"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "storage", queues=QUEUES) as running:
        yield running


def publish(broker: BrokerProcess, queue: str, **line: Any) -> str:
    body = json.dumps(line).encode()
    answer = broker.request(
        "POST", f"/v1/queues/{queue}/messages:batch", body, {"Content-Type": "application/x-ndjson"}
    )
    assert answer.status == 201, answer
    return answer.json()["ids"][0]


def message(broker: BrokerProcess, id_: str) -> dict[str, Any]:
    return broker.request("GET", f"/v1/messages/{id_}").json()


def accepted(broker: BrokerProcess, queue: str) -> list[dict[str, Any]]:
    """All messages of a queue, in their order."""
    found: list[dict[str, Any]] = []
    while True:
        after = found[-1]["sequence"] if found else 0
        page = broker.request("GET", f"/v1/queues/{queue}/messages?after={after}&limit=1000").json()["messages"]
        if not page:
            return found
        found += page


def families(broker: BrokerProcess, chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Messages in two queues with parents in both, as the rows a replay takes."""
    rows: list[dict[str, Any]] = []
    for number in range(count):
        some = chance.sample(rows, min(len(rows), chance.choice((0, 1, 1, 2))))
        queue = chance.choice(("orders", "cards"))
        parents = [row["id"] for row in some]
        said: dict[str, Any] = {
            "headers": {"shop": "7"},
            "key": f"k{number % 3}",
            "erase_after": f"{number % 3}d" if number % 3 else None,
        }
        said = {name: value for name, value in said.items() if value is not None}
        id_ = publish(broker, queue, content=f"{number}", parents=parents, **said)
        rows.append(
            {
                "sequence": message(broker, id_)["sequence"],
                "id": id_,
                "queue": queue,
                "parents": parents,
                "key": f"k{number % 3}",
                "headers": [("shop", "7")],
                "content_type": "text/plain; charset=utf-8",
                "content": f"{number}".encode(),
                "parent_failure": "fail",
                "erase_after_us": number % 3 * 86_400_000_000 or None,
            }
        )
    children = Counter(parent for row in rows for parent in row["parents"])
    return [row | {"children": children[row["id"]]} for row in rows]


def test_copies_hang_below_copies_also_after_a_crash(broker: BrokerProcess) -> None:
    """Over two queues each copy names the copies of its parents, in the order of the originals; a run that was cut
    short anywhere is run again and publishes only what is missing."""
    seed = int(os.environ.get("SYNCBROK_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed: SYNCBROK_TEST_SEED={seed}")
    chance = random.Random(seed)
    rows = families(broker, chance, 60)
    order = ReplayTask(PublishTarget(broker.url), "a replay", None, frozenset())
    with Publisher(order.target) as publisher:
        cut_short = ReplayWriter(order, publisher)
        for row in rows[: chance.randrange(1, 50)]:
            list(cut_short.add(row))
        whole = ReplayWriter(order, publisher)
        results = [result for row in rows for result in whole.add(row)] + list(whole.flush())
    assert not len(whole), "no id is kept once the last child has come"
    new_id = {old: new for _, old, _, new, _ in results}
    assert len(new_id) == len(rows)
    assert len(set(new_id.values())) == len(rows)
    for queue in ("orders", "cards"):
        mine = [row for row in rows if row["queue"] == queue]
        assert len(accepted(broker, queue)) == 2 * len(mine), "each once more"
        copies = [message(broker, new_id[row["id"]]) for row in mine]
        assert [copy["sequence"] for copy in copies] == sorted(copy["sequence"] for copy in copies)
        for row, copy in zip(mine, copies, strict=True):
            assert copy["queue"] == queue
            assert copy["parents"] == [new_id[parent] for parent in row["parents"]]
            assert copy["key"] == row["key"]
            assert copy["headers"][HEADER] == row["id"]
            assert copy["headers"]["shop"] == "7"
            after_us = row["erase_after_us"]
            assert copy["erase_after"] == (f"{after_us // 86_400_000_000}d" if after_us else None)


def chain(length: int, content: bytes = b"x") -> list[dict[str, Any]]:
    """Each the child of the one before, as the rows a replay takes."""
    return [
        {
            "sequence": n,
            "id": f"old-{n}",
            "queue": "orders",
            "parents": [f"old-{n - 1}"] if n else [],
            "children": int(n + 1 < length),
            "key": None,
            "headers": None,
            "content_type": "text/plain",
            "content": content,
            "parent_failure": "fail",
        }
        for n in range(length)
    ]


def test_a_chain_of_a_thousand_in_one_queue_is_a_request_or_two(broker: BrokerProcess) -> None:
    """Depth costs nothing where parent and child go to the same queue: they refer to each other by their lines."""
    rows = chain(1_500)
    with Publisher(PublishTarget(broker.url)) as publisher:
        replaying = ReplayWriter(ReplayTask(PublishTarget(broker.url), "chain", "again", frozenset()), publisher)
        results = [result for row in rows for result in replaying.add(row)]
        assert len(results) == 1_000, "one batch went out when it was full"
        results += list(replaying.flush())
    copies = accepted(broker, "again")
    assert [copy["id"] for copy in copies] == [result[3] for result in results]
    last = message(broker, results[-1][3])
    assert last["parents"] == [results[-2][3]]


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        ("http: {batch_lines: 7}\n", chain(45)),
        ("http: {batch: 1MiB}\n", chain(45, b"x" * 100_000)),
        ("", chain(6, b"\x01" * 1_000_000)),
    ],
    ids=["lines", "bytes", "escapes"],
)
def test_a_broker_that_takes_less_gets_smaller_batches(tmp_path: Path, config: str, rows: list[dict[str, Any]]) -> None:
    """A batch that has too many lines or bytes for this broker goes out in halves, and what its second half says of the
    first says it by the new ids; bytes are those of the line as it is sent, six for each control character."""
    with BrokerProcess(tmp_path / "storage", queues=QUEUES, config=config) as broker:
        with Publisher(PublishTarget(broker.url)) as publisher:
            replaying = ReplayWriter(ReplayTask(PublishTarget(broker.url), "chain", None, frozenset()), publisher)
            results = [result for row in rows for result in replaying.add(row)] + list(replaying.flush())
        copies = [message(broker, one["id"]) for one in accepted(broker, "orders")]
    assert [copy["id"] for copy in copies] == [new_id for _, _, _, new_id, _ in results]
    assert [copy["parents"] for copy in copies] == [[], *([copy["id"]] for copy in copies[:-1])]
    assert [old_id for _, old_id, _, _, _ in results] == [row["id"] for row in rows]


def test_what_is_refused_is_named_by_its_old_id(broker: BrokerProcess) -> None:
    """One that no division makes smaller is named, and what to do; what was accepted before it is counted."""
    rows = chain(3)
    rows[1]["content"] = b"x" * 1_100_000
    with Publisher(PublishTarget(broker.url)) as publisher:
        replaying = ReplayWriter(ReplayTask(PublishTarget(broker.url), "n", None, frozenset()), publisher)
        results = list(replaying.add(rows[0])) + list(replaying.flush())
        assert len(results) == 1
        assert not [*replaying.add(rows[1]), *replaying.add(rows[2])]
        with pytest.raises(BadRow, match=r"message old-1 is refused: .*413.* 1 were accepted before.*run it again"):
            list(replaying.flush())


def test_what_the_broker_knows_is_asked(broker: BrokerProcess) -> None:
    """Of the parents outside, those this broker never issued are told from those it did."""
    known = [publish(broker, "orders", content=str(n)) for n in range(3)]
    assert unknown_to(PublishTarget(broker.url), [*known, FOREIGN]) == {FOREIGN}
    assert unknown_to(PublishTarget(broker.url), []) == frozenset()


def run(broker: BrokerProcess, sql: str, *more: str, storage: Path | None = None) -> Result:
    arguments = ["replay", "--storage", str(storage or broker.storage), "--sql", sql, "--url", broker.url, *more]
    return CliRunner().invoke(pipeline, arguments)


def test_the_command_says_first_and_publishes_once(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    """Nothing is published without --yes; then the selection, below new copies where the parent is selected and below
    the old parent where not; a second run publishes nothing. To another broker, which does not know the old parents, it
    refuses, or leaves them out; and one that has another log is told to be one."""
    root = publish(broker, "orders", content="root")
    child = publish(broker, "orders", content="child", parents=[root])
    grandchild = publish(broker, "cards", content="grandchild", parents=[child, root])
    broker.terminate()  # so that all of it stands below the watermark
    broker.start()
    sql = "SELECT * FROM messages WHERE content <> 'root'"
    dry = run(broker, sql, "--queue", "again")
    assert dry.exit_code == 0, dry.output
    assert "nothing is published yet" in dry.output
    assert "1 are not chosen; 0 of them not in what was read, 0 unknown to the broker" in dry.output
    assert not accepted(broker, "again")
    for told in ("published", "the broker had already"):
        done = run(broker, sql, "--queue", "again", "--yes", "--out", str(tmp_path / "out"))
        assert done.exit_code == 0, done.output
        assert told in done.output
        first, second = accepted(broker, "again")
        assert message(broker, first["id"])["parents"] == [root]
        assert message(broker, second["id"])["parents"] == [first["id"], root]
    table = spark.read.parquet(str(tmp_path / "out" / "replay")).collect()
    assert {row["id"]: row["new_id"] for row in table} == {child: first["id"], grandchild: second["id"]}
    with BrokerProcess(tmp_path / "other", queues=QUEUES) as other:
        refused = run(other, sql, "--queue", "again", "--yes", storage=broker.storage)
        assert refused.exit_code == 4, refused.output
        assert root in refused.output
        drop = ("--queue", "again", "--yes", "--missing-parents", "drop")
        refused = run(other, sql, *drop, storage=broker.storage)
        assert refused.exit_code == 4, refused.output
        assert "--other-log publishes copies" in refused.output
        assert not accepted(other, "again")
        done = run(other, sql, *drop, "--other-log", storage=broker.storage)
        assert done.exit_code == 0, done.output
        first, second = accepted(other, "again")
        assert not message(other, first["id"])["parents"]
        assert message(other, second["id"])["parents"] == [first["id"]]


def test_a_query_that_names_no_message_is_refused(spark: SparkSession) -> None:
    """The columns it has are said, and which one is wanted; rows of deliveries mean their message, not their own
    record; what this replay has published itself is not chosen again."""
    rows = [
        (3, "a", None, None, False),
        (9, "b", 1, None, False),
        (11, "c", None, "mine/a", False),
        (12, "d", None, None, True),
    ]
    columns = "sequence long, id string, only_subscriber int, idempotency_key string, erased boolean"
    messages = spark.createDataFrame(rows, columns)
    deliveries = spark.createDataFrame([(9, 3)], "sequence long, message long")
    with pytest.raises(BadSetting, match="columns n: one of message, id, sequence"):
        job.select(spark, "SELECT count(*) AS n FROM messages", messages)
    chosen = job.select(spark, "SELECT * FROM deliveries", messages, deliveries)
    assert [row["sequence"] for row in chosen.collect()] == [3]
    chosen = job.select(spark, "SELECT id FROM messages", messages, replay="mine")
    assert [row["id"] for row in chosen.collect()] == ["a"], "no test message, no copy of its own, nothing erased"


def test_the_same_question_has_the_same_name() -> None:
    """A replay without a name goes on where the same query stopped; another query or queue is another replay."""
    name = job.default_name("SELECT *  FROM messages", None)
    assert name == job.default_name("SELECT * FROM\nmessages", None)
    assert len({name, job.default_name("SELECT 1", None), job.default_name("SELECT * FROM messages", "q")}) == 3
