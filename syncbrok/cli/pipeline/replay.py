"""``syncbrok pipeline replay``."""

from typing import Any, Final

import click
from pyspark.sql import functions as f

from syncbrok.cli.exits import REFUSED, SEE_EXIT_CODES, CommandFailed
from syncbrok.cli.pipeline.input import open_input
from syncbrok.cli.pipeline.session import Job, SessionOptions, job_session, session_options
from syncbrok.cli.show import moment, print_fields, print_table
from syncbrok.model.units import render_time
from syncbrok.pipeline.replay import job
from syncbrok.pipeline.replay.known_parents import unknown_to
from syncbrok.pipeline.replay.writer import HEADER, ReplayTask
from syncbrok.pipeline.schema import KINDS
from syncbrok.pipeline.sink.publisher import Publisher, PublishTarget

_ROWS: Final = 10
_OUTSIDE_ASKED_MAX: Final = 1_000_000
_COUNTED_ROWS: Final = 50


_HELP: Final = f"""Choose messages of log and archive by SQL and publish them again, in causal order.

Without --yes nothing is published: it says what would be. The query sees the views messages, deliveries and facts and
must have a column id, or message, or sequence.

The broker gets new messages, with new ids, for the subscribers its queues have now; a message whose parents are chosen
too waits for their new copies. The header {HEADER} tells subscribers the id of the original. Run it again after a crash
or a refusal: each message has the idempotency key NAME/ID, and what the broker has already it does not take twice
(within the queue's idempotency window, 24 hours unless set otherwise).

This is not the broker's own replay (syncbrok messages replay, syncbrok dead-letters replay), which delivers the same
message again to those who have missed it, under its own id.

\b
Examples:
  syncbrok pipeline replay --sql "SELECT * FROM messages WHERE queue = 'orders' AND time >= '2026-07-01'"
  syncbrok pipeline replay --sql "SELECT message FROM deliveries WHERE outcome = 'dead'" --queue mended --yes
  syncbrok pipeline replay --archive /data/archive --sql "SELECT * FROM messages WHERE headers['shop'] = '7'" --yes

{SEE_EXIT_CODES}
"""  # noqa: S608  # examples


@click.command("replay", help=_HELP)
@session_options
@click.option("--sql", required=True, metavar="QUERY", help="Which messages.")
@click.option("--archive", metavar="DIR", help="Read this archive too, for what the log no longer has.")
@click.option("--since", metavar="TIME", help="Only look at what was accepted at or after this time (RFC 3339).")
@click.option("--until", metavar="TIME", help="Only look at what was accepted before this time.")
@click.option("--url", envvar="SYNCBROK_URL", default="http://127.0.0.1:10000", metavar="URL[,URL...]",
              help="The broker, or a cluster's nodes; SYNCBROK_URL. Default: http://127.0.0.1:10000.")  # fmt: skip
@click.option("--token", envvar="SYNCBROK_TOKEN", metavar="TOKEN",
              help="Where the broker asks for one; better in SYNCBROK_TOKEN: flags are seen in ps.")  # fmt: skip
@click.option("--queue", metavar="QUEUE", help="Publish all of it there; by default each message to its own queue.")
@click.option("--name", metavar="NAME", help="Of this replay, part of the keys; by default made from query and queue.")
@click.option("--missing-parents", type=click.Choice(["drop", "fail"]), default="fail", show_default=True,
              help="A parent not chosen that the broker does not know: leave it out, or publish nothing.")  # fmt: skip
@click.option("--other-log", is_flag=True, help="Publish to a broker that has another log than the messages.")
@click.option("--yes", is_flag=True, help="Publish.")
def command(options: SessionOptions, sql: str, archive: str | None, yes: bool, **given: Any) -> None:
    """See ``help``."""
    name = given["name"] or job.default_name(sql, given["queue"])
    target = PublishTarget(given["url"], given["token"])
    with job_session(options, "replay") as running:
        running.step("choosing")
        whole = open_input(running, options, archive)
        messages, deliveries, facts = (whole.read(kind, None, given["since"], given["until"]) for kind in KINDS)
        ids = whole.read("messages", "id", given["since"], given["until"])
        chosen = job.select(running.spark, sql, messages, deliveries, facts, name).persist()
        try:
            outside = _planned(running, job.plan(chosen, ids, given["queue"]), chosen)
            missing = _missing(target, outside, must=yes)
            _say_outside(outside, missing)
            if not yes:
                click.echo(f"nothing is published yet; --yes publishes it as {name!r} to {target.url}", err=True)
                return
            if missing and given["missing_parents"] == "fail":
                raise CommandFailed(
                    f"the broker does not know {len(missing)} parents that are not chosen, such as {min(missing)}; "
                    "nothing was published", REFUSED, "choose them too, or leave them out with --missing-parents drop"
                )  # fmt: skip
            if not given["other_log"]:
                _check_log(target, whole.log_id)
            _publish(running, chosen, ReplayTask(target, name, given["queue"], missing or frozenset()), options.out)
        finally:
            chosen.unpersist()


def _check_log(target: PublishTarget, log_id: str) -> None:
    """Raises ``CommandFailed`` where the broker has another log: its subscribers would get what is none of theirs."""
    with Publisher(target) as publisher:
        found = publisher.log_id()
    if found is None:
        click.echo("whether the broker has this log cannot be said: it does not tell this token which it has", err=True)
    elif found != log_id:
        raise CommandFailed(
            f"the broker at {target.url} has the log {found}, and the messages are of the log {log_id}; nothing was "
            "published", REFUSED, "is that the broker? --other-log publishes copies at another one"
        )  # fmt: skip


def _planned(running: Job, plan: job.ReplayJobPlan, chosen: Any) -> dict[str, bool]:
    """Says what would be done; the parents outside, and whether they are in what was read."""
    running.step("planning")
    queues, levels = plan.queues.collect(), plan.levels.persist()
    # A chain has as many levels as messages.
    count, total = levels.agg(f.count("*"), f.sum("messages")).collect()[0]
    sizes = [row["messages"] for row in levels.orderBy("depth").limit(_ROWS).collect()]
    levels.unpersist()
    shown = ("sequence", f.unix_micros("time").alias("time_us"), "queue", "id", "parents")
    first = chosen.select(*shown).orderBy("sequence").limit(_ROWS).collect()
    outside = {row["id"]: row["in_log"] for row in plan.outside.limit(_OUTSIDE_ASKED_MAX + 1).collect()}
    if len(outside) > _OUTSIDE_ASKED_MAX:
        raise CommandFailed(
            f"more than {_OUTSIDE_ASKED_MAX:,} parents are outside of the selection; choose them too", REFUSED
        )
    print_table(("queue", "messages", "bytes"), [tuple(row) for row in queues], "the query chooses no message")
    if count:
        print_table(
            ("sequence", "accepted", "queue", "id", "parents"),
            [(r["sequence"], moment(render_time(r["time_us"])), r["queue"], r["id"], len(r["parents"])) for r in first],
            "",
        )
        told = ", ".join(f"{size:,}" for size in sizes) + (", ..." if count > _ROWS else "")
        print_fields([("messages", f"{total:,}"), ("levels", f"{count:,} ({told})")])
    return outside


def _missing(target: PublishTarget, outside: dict[str, bool], *, must: bool) -> frozenset[str] | None:
    """The parents outside that the broker does not know; None where it does not answer and need not."""
    if not outside:
        return frozenset()
    try:
        return unknown_to(target, sorted(outside))
    except Exception as error:
        if must:
            raise
        click.echo(f"which of them the broker knows cannot be said: {error}", err=True)
        return None


def _say_outside(outside: dict[str, bool], missing: frozenset[str] | None) -> None:
    if not outside:
        return
    gone = sum(not there for there in outside.values())
    told = f"{len(outside):,} are not chosen; {gone:,} of them not in what was read"
    if missing is not None:
        told += f", {len(missing):,} unknown to the broker"
    examples = sorted(missing)[:_ROWS] if missing else []
    print_fields([("parents", told), ("unknown", examples)])


def _publish(running: Job, chosen: Any, task: ReplayTask, out: str | None) -> None:
    queues = [task.queue] if task.queue else [row["queue"] for row in chosen.select("queue").distinct().collect()]
    with Publisher(task.target) as publisher:
        for queue in queues:
            publisher.check_queue(queue)
    running.step("publishing")
    results = job.publish(chosen, task)
    if out:
        results.write.mode("overwrite").parquet(f"{out}/replay")
        results = running.spark.read.parquet(f"{out}/replay")
    counts = results.groupBy("queue", "known").count().collect()
    for known, words in ((False, "published"), (True, "the broker had already")):
        some = {row["queue"]: row["count"] for row in counts if row["known"] is known}
        if some:
            told = ", ".join(f"{count:,} to {queue}" for queue, count in sorted(some.items()))
            print_fields([(words, told)])
    print_fields([("name", task.name), ("new ids", f"{out}/replay" if out else None)])
