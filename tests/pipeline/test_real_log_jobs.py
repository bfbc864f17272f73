"""Each job of ``syncbrok pipeline``, as a command, on a log that a broker wrote under load, with failures and kill -9:
what comes out agrees with the broker's own ``/v1`` answers."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from syncbrok.cli.main import group
from syncbrok.pipeline.log_and_archive import LogAndArchive
from tests.support.pipeline.broker_log import RealLog


class Runs:
    """The jobs on a copy of the log, in the session of the tests; each writes below ``out``."""

    def __init__(self, spark: SparkSession, log: RealLog, folder: Path) -> None:
        self.storage = log.copied(folder)
        self.out = folder / "out"
        self._spark = spark

    def job(self, *arguments: str, code: int = 0) -> str:
        """What the command prints."""
        where = ["--storage", str(self.storage), "--quiet"]
        ran = CliRunner().invoke(group, ["pipeline", arguments[0], *where, *arguments[1:]])
        assert ran.exit_code == code, f"{ran.output}\n{ran.exception!r}"
        return ran.output

    def table(self, name: str) -> DataFrame:
        return self._spark.read.parquet(str(self.out / name))


@pytest.fixture(scope="module")
def runs(spark: SparkSession, real_log: RealLog, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(spark, real_log, tmp_path_factory.mktemp("jobs"))


def test_archive_and_log_are_the_whole(spark: SparkSession, runs: Runs, real_log: RealLog) -> None:
    """Everything sealed is archived once, however often the job runs; archive and live log together have every message
    the broker knows, in its queue, and nothing twice."""
    archive = str(runs.out / "archive")
    first = json.loads(runs.job("archive", "--out", archive, "--json"))
    again = json.loads(runs.job("archive", "--out", archive, "--json"))
    *sealed, live = sorted(runs.storage.glob("*.log"))
    assert (first["segments"], again["segments"], again["waiting"]) == (len(sealed), 0, 1)
    archived = {row.sequence for row in LogAndArchive(spark, None, archive).read("messages", "sequence").collect()}
    assert first["written"]["messages"]["rows"] == len(archived)
    assert archived == {sequence for sequence in real_log.answers.messages if sequence < int(live.stem)}
    assert len(archived) < len(real_log.answers.messages)
    rows = LogAndArchive(spark, runs.storage, archive).read("messages", "sequence,id,queue").collect()
    known = {(one["sequence"], one["id"], one["queue"]) for one in real_log.answers.messages.values()}
    assert len(rows) == len(known)
    assert {tuple(row) for row in rows} == known


def test_the_report_counts_as_the_broker_does(runs: Runs, real_log: RealLog) -> None:
    """Accepted and waiting messages of each queue, dead letters by subscriber and reason."""
    runs.job("report", "--out", str(runs.out))
    page = (runs.out / "report.html").read_text()
    assert all(queue in page for queue in real_log.answers.queues)
    assert "<script src" not in page
    hours = runs.table("report/queues").orderBy("hour").collect()
    accepted: Counter[str] = Counter()
    waiting: dict[str, int] = {}
    for row in hours:
        accepted[row.queue] += row.accepted
        waiting[row.queue] = row.backlog
    statistics = {name: queue["statistics"] for name, queue in real_log.answers.queues.items()}
    assert accepted == {name: one["accepted"] for name, one in statistics.items()}
    assert waiting == {name: one["waiting"] for name, one in statistics.items()}
    letters: Counter[Any] = Counter()
    for row in runs.table("report/dead_letters").collect():
        letters[row.queue, row.subscriber, row.reason] += row.letters
    assert letters == Counter((one["queue"], one["subscriber"], one["reason"]) for one in real_log.answers.dead_letters)


def test_trees_are_those_the_broker_shows(runs: Runs, real_log: RealLog) -> None:
    """Every message in the tree of its root at its depth; the broker's trees have the same members and edges; the chain
    took as long as its links one after the other."""
    runs.job("lineage", "--out", str(runs.out))
    known = real_log.answers.messages
    nodes = {row.sequence: row for row in runs.table("lineage/nodes").collect()}
    assert {at: (row.root, row.depth, row.id) for at, row in nodes.items()} == {
        at: (one["root"], one["depth"], one["id"]) for at, one in known.items()
    }
    sizes = {row.root: row.messages for row in runs.table("lineage/trees").collect()}
    assert sizes == Counter(one["root"] for one in known.values())
    complete = {at for at, one in known.items() if one["state"] == "complete"}
    assert complete <= {at for at, row in nodes.items() if row.complete_at is not None}
    edges = {(row.parent, row.child) for row in runs.table("lineage/edges").collect()}
    sequence_of = {one["id"]: one["sequence"] for one in known.values()}
    told = {
        (sequence_of[parent], node["sequence"])
        for tree in real_log.answers.trees
        for node in tree["nodes"]
        for parent in node["parents"]
    }
    assert len(told) > 400
    assert told <= edges
    assert (runs.out / "lineage" / "tree.svg").read_text().startswith("<svg")


def test_the_audit_finds_no_promise_broken(runs: Runs, real_log: RealLog) -> None:
    """A broker that was killed under load, mended, replayed and stopped kept every promise, and what still waits when
    it had nothing left to do waits for a reason."""
    told = json.loads(runs.job("audit", "--settled", "--json"))
    assert told["violations"] == 0, told["shown"]
    assert told["checked"]["messages"] == len(real_log.answers.messages)
    assert told["checked"]["records"] == real_log.answers.metrics["syncbrok_log_sequence"]
    unended = Counter(
        delivery["state"]
        for message in real_log.answers.messages.values()
        for delivery in message["deliveries"]
        if delivery["state"] in {"blocked", "pending", "in_flight", "retrying", "paused"}
    )
    assert sum(one["deliveries"] for one in told["waiting"].values()) == sum(unended.values()), told["waiting"]


def test_a_replay_is_shown_before_it_is_done(runs: Runs, real_log: RealLog) -> None:
    """Messages chosen by SQL, as many as the broker has accepted; nothing is published, no broker is even running."""
    said = runs.job("replay", "--sql", "SELECT * FROM messages WHERE queue = 'held'")
    row = next(line for line in said.splitlines() if line.startswith("held"))
    assert int(row.split()[1].replace(",", "")) == real_log.answers.queues["held"]["statistics"]["accepted"]
    assert "nothing is published yet" in said
