"""The job ``report``: its tables agree with what the broker itself says, and writing again changes nothing."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from syncbrok.cli.main import group
from syncbrok.log.offline.order import OrderChecker
from syncbrok.model.errors import BadSetting
from syncbrok.model.facts import Outcome, Outcomes, QueueSet, StoredMessage, SubscriberSet
from syncbrok.pipeline.log_and_archive import LogAndArchive
from syncbrok.pipeline.report import job
from syncbrok.pipeline.report.counts import summed
from syncbrok.pipeline.report.job import report
from syncbrok.pipeline.report.latency import percentiles
from syncbrok.pipeline.report.store import ReportStore
from syncbrok.pipeline.states.declared_facts import KINDS
from tests.support.log.segment_files import facts_in
from tests.support.pipeline.broker_log import RealLog
from tests.support.pipeline.states_log import StatesLog

Tables = Callable[[str], list[dict[str, Any]]]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(group, ["pipeline", "report", *arguments])


@pytest.fixture(scope="module")
def written(spark: SparkSession, real_log: RealLog, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The report on the real log, by the command; where it is, and what the command said."""
    assert spark is not None
    out = tmp_path_factory.mktemp("report")
    done = run("--storage", str(real_log.storage), "--out", str(out))
    assert done.exit_code == 0, done.output
    return out, done


@pytest.fixture
def table(written: tuple[Path, Result]) -> Tables:
    return lambda name: pq.read_table(written[0] / "report" / name).to_pylist()


def sums(rows: list[dict[str, Any]], by: tuple[str, ...], what: str) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row in rows:
        found[tuple(row[name] for name in by)] += row[what] or 0
    return +found


def at_end(rows: list[dict[str, Any]], by: tuple[str, ...], what: str) -> Counter[Any]:
    last = max(row["hour"] for row in rows)
    return sums([row for row in rows if row["hour"] == last], by, what)


def test_queues_are_as_the_broker_says(table: Tables, real_log: RealLog) -> None:
    """Accepted, complete and not ended messages of every queue are those of GET /v1/queues and its messages."""
    said = {name: queue["statistics"] for name, queue in real_log.answers.queues.items()}
    queues = table("queues")
    assert sums(queues, ("queue",), "accepted") == +Counter({(name,): one["accepted"] for name, one in said.items()})
    assert at_end(queues, ("queue",), "backlog") == +Counter({(name,): one["waiting"] for name, one in said.items()})
    states = Counter((one["queue"],) for one in real_log.answers.messages.values() if one["state"] == "complete")
    assert sums(queues, ("queue",), "completed") == states


def test_subscribers_are_as_the_broker_says(table: Tables, real_log: RealLog) -> None:
    """What each has got is what its statistics count, before the crash and after it; what it has still to get is what
    the broker says of every delivery; the dead letters and their reasons are those of its list."""
    names = ("queue", "subscriber")
    open_ = {"blocked", "pending", "in_flight", "retrying", "paused"}
    pending = Counter(
        (message["queue"], one["subscriber"])
        for message in real_log.answers.messages.values()
        for one in message["deliveries"]
        if one["state"] in open_
    )
    assert at_end(table("subscribers"), names, "backlog") == pending
    each = Counter((one["queue"], one["subscriber"], one["reason"]) for one in real_log.answers.dead_letters)
    assert sums(table("dead_letters"), (*names, "reason"), "letters") == each
    delivered = sums(table("subscribers"), names, "delivered")
    counted = {key: one["statistics"]["delivered"] for key, one in real_log.answers.subscribers.items()}
    assert delivered == +Counter(counted)


def test_attempts_are_those_of_the_log(table: Tables, real_log: RealLog) -> None:
    """Every attempt is counted once, in the endpoints, by hour and, where it failed, by reason; latencies too."""
    rows = [
        row for fact in facts_in(real_log.storage) if isinstance(fact, Outcomes) for row in fact.rows if row.attempt
    ]
    failed = [row for row in rows if row.outcome not in {Outcome.DELIVERED, Outcome.LATE}]
    assert sum(row["attempts"] for row in table("endpoints")) == len(rows)
    assert sum(row["attempts"] for row in table("subscribers")) == len(rows)
    assert sum(row["n"] for row in table("latencies") if row["what"] == "attempt") == len(rows)
    reasons = Counter((row.reason.name.lower(), row.status) for row in failed)
    assert sums(table("failures"), ("reason", "status"), "attempts") == reasons
    assert max(row["attempt_max_us"] for row in table("endpoints")) == max(row.latency_us for row in rows)


def test_blame_is_on_those_who_kept_others_waiting(table: Tables, real_log: RealLog) -> None:
    """Who was down, paused or slow is blamed; a subscriber of a queue without children is not."""
    blamed = sums(table("blame"), ("queue", "subscriber"), "waited_us")
    assert blamed["notices", "mail"] > 0
    assert blamed["exports", "warehouse"] > 0
    assert not any(queue == "ticks" for queue, _ in blamed)
    assert real_log.answers.queues.keys() >= {queue for queue, _ in blamed if queue}


def test_a_dead_letter_that_was_dropped_is_none(spark: SparkSession, states_logs: tuple[StatesLog, StatesLog]) -> None:
    """RULES 34: it is gone from the list, so the report does not count it either: its dead letters are the states
    ``dead`` of the same log, of deliveries that their messages count."""
    storage = states_logs[0].storage
    whole = LogAndArchive(spark, storage)
    kinds = {"messages": job.MESSAGES, "deliveries": job.DELIVERIES, "facts": job.FACTS}
    made = report(*(whole.read(kind, ",".join(columns)) for kind, columns in kinds.items()))
    found = sums(made.frame("dead_letters").toArrow().to_pylist(), ("queue", "subscriber", "reason"), "letters")
    states = spark.read.format("syncbrok").option("kind", "states").load(str(storage)).where("counted").collect()
    each = [(one.queue, one.subscriber, one.reason) for one in states if one.state == "dead"]
    assert any(one.reason == "discarded" for one in states)
    assert found == Counter(each)


def test_a_report_since_the_crash(spark: SparkSession, real_log: RealLog) -> None:
    """A report from a moment on counts what happened then, and the backlog all the same: deliveries of each subscriber
    are those whose rows came later."""
    facts = {fact.sequence: fact for fact in facts_in(real_log.storage)}
    since = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=facts[real_log.killed_at].time_us + 1)
    whole = LogAndArchive(spark, real_log.storage)
    kinds = {"messages": job.MESSAGES, "deliveries": job.DELIVERIES, "facts": job.FACTS}
    frames = [whole.read(kind, ",".join(columns)) for kind, columns in kinds.items()]
    made = report(frames[0], frames[1], frames[2], since=since)
    rows = made.frame("subscribers").toArrow().to_pylist()
    later = Counter(
        row.subscriber
        for fact in facts.values()
        if isinstance(fact, Outcomes) and fact.sequence > real_log.killed_at
        for row in fact.rows
        if row.outcome is Outcome.DELIVERED
    )
    queues = {fact.number: fact.name for fact in facts.values() if isinstance(fact, QueueSet)}
    names = {fact.number: (queues[fact.queue], fact.id) for fact in facts.values() if isinstance(fact, SubscriberSet)}
    wanted = Counter({names[number]: count for number, count in later.items()})
    assert sums(rows, ("queue", "subscriber"), "delivered") == wanted
    assert sum(at_end(rows, ("queue",), "backlog").values()) > 0


def test_a_report_until_a_moment(spark: SparkSession, real_log: RealLog) -> None:
    """It tells of what the log said by then, to the microsecond: messages, attempts and the backlog of that moment,
    whether its rows are met by Spark first or not."""
    facts = facts_in(real_log.storage)
    end_us = next(fact.time_us for fact in facts if fact.sequence >= real_log.killed_at)
    until = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=end_us)
    early = [fact for fact in facts if fact.time_us < end_us]
    whole = LogAndArchive(spark, real_log.storage)
    seen = whole.read("facts", ",".join(job.FACTS))
    messages = whole.rows("messages", ",".join(job.MESSAGES))
    deliveries = whole.rows("deliveries", ",".join(job.DELIVERIES))
    ways = [(messages, deliveries), (messages.frame(), deliveries.frame())]
    made = [report(one, other, seen, until=until).tables for one, other in ways]
    for name in made[0].keys() - {"period"}:  # which says when it was made
        same, other = (sorted(one[name].to_pylist(), key=repr) for one in made)
        assert same == other, name
    queues = made[0]["queues"].to_pylist()
    judge = OrderChecker()
    for fact in early:
        judge.apply(fact)
    published = [fact for fact in early if isinstance(fact, StoredMessage)]
    waiting = {one.message for one in judge.waiting()}
    rows = [row for fact in early if isinstance(fact, Outcomes) for row in fact.rows if row.attempt]
    assert 0 < len(published) < sum(isinstance(fact, StoredMessage) for fact in facts)
    assert sum(row["accepted"] or 0 for row in queues) == len(published)
    assert sum(at_end(queues, ("queue",), "backlog").values()) == len(waiting) > 0
    assert sum(row["attempts"] for row in made[0]["endpoints"].to_pylist()) == len(rows)


@pytest.mark.parametrize(
    "ends", [{"since": datetime(1970, 1, 1, tzinfo=UTC)}, {"until": datetime(9999, 1, 1, tzinfo=UTC)}]
)
def test_a_period_of_ages_is_refused(spark: SparkSession, real_log: RealLog, ends: dict[str, datetime]) -> None:
    """One mistyped year would fill the memory with empty hours. It is told at once, with the time the log is of."""
    whole = LogAndArchive(spark, real_log.storage)
    messages, deliveries = whole.rows("messages"), whole.rows("deliveries")
    with pytest.raises(BadSetting, match=r"hours, a report has at most 100,000: say .* the log, which is from 20\d\d-"):
        report(messages, deliveries, whole.read("facts", ",".join(job.FACTS)), **ends)


def test_facts_that_declare_nothing_are_not_read(spark: SparkSession, real_log: RealLog) -> None:
    """A tenth of the facts is enough for a report: all that declare something, and the last of the log, which says when
    it ends."""
    whole = LogAndArchive(spark, real_log.storage)
    every = {row["sequence"]: row["kind"] for row in whole.read("facts", "sequence,kind").collect()}
    rows = whole.read("facts", "sequence,kind", fact_kinds=KINDS).collect()
    some = {row["sequence"]: row["kind"] for row in rows}
    assert some.items() <= every.items()
    assert {at for at, kind in every.items() if kind in KINDS} <= some.keys()
    assert max(some) == max(every)
    assert len(some) < len(every) / 10


def test_the_command_says_the_most_telling(written: tuple[Path, Result], real_log: RealLog) -> None:
    """Where the page is, dead letters, the slowest endpoint and who was waited for most; beside the page there are the
    tables and nothing else."""
    out, done = written
    told = (str(out / "report.html"), f"{len(real_log.answers.dead_letters):,}", "slowest", "most waited for")
    assert all(one in done.output for one in told), done.output
    assert {path.name for path in out.iterdir()} == {"report", "report.html"}
    assert all(path.suffix == "" for path in (out / "report").iterdir())


def test_writing_again_replaces(spark: SparkSession, tmp_path: Path) -> None:
    """A table and a page are replaced as a whole, and nothing of an earlier or interrupted run stays."""
    place = ReportStore(spark, str(tmp_path))
    (tmp_path / "report/hours.new/left").mkdir(parents=True)
    for count in (3, 2):
        place.write_table("report/hours", pa.table({"hour": list(range(count))}))
        assert place.write_text("report.html", f"of {count}") == str(tmp_path / "report.html")
        assert spark.read.parquet(str(tmp_path / "report/hours")).count() == count
    assert (tmp_path / "report.html").read_text() == "of 2"
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["hours"]
    assert {path.name for path in tmp_path.iterdir()} == {"report", "report.html"}


def test_mistakes_are_told(spark: SparkSession, real_log: RealLog, tmp_path: Path) -> None:
    """No log, a time that is none, and a time in which nothing happened each end with what to mend."""
    assert spark is not None
    assert run("--storage", str(tmp_path)).exit_code == 3
    wrong = run("--storage", str(real_log.storage), "--since", "yesterday")
    assert wrong.exit_code == 2
    assert "--since" in wrong.output
    later = run("--storage", str(real_log.storage), "--out", str(tmp_path), "--since", "2100-01-01T00:00:00Z")
    assert later.exit_code == 4
    assert "the log ends at" in str(later.exception) + later.output


def test_percentiles_are_right_to_a_percent() -> None:
    """Of counts in buckets, over whatever they are summed by, counted anywhere; the maximum is exact, nothing is beyond
    it."""
    us = np.arange(1, 100_001) * 17
    parts = [summed({"hour": us[part::3] // 17 % 4}, us[part::3]) for part in range(3)]
    counts = pa.concat_tables(parts)
    hour, bucket, n, longest = (counts[name].to_numpy() for name in ("hour", "bucket", "n", "max_us"))
    for by, count in ((hour, 25_000), (np.zeros_like(hour), 100_000)):
        found = percentiles(by, bucket, n, longest)
        assert found.n.tolist() == [count] * len(set(by.tolist()))
        for one, share in ((found.p50_us, 0.5), (found.p90_us, 0.9), (found.p99_us, 0.99)):
            assert (abs(one / (1_700_000 * share) - 1) < 0.0101).all()
        assert ((found.max_us >= 1_699_900) & (found.max_us <= 1_700_000)).all()
        assert found.max_us.max() == 1_700_000
