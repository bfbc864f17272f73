"""``syncbrok pipeline audit``."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from syncbrok.cli.exits import FAILED, SEE_EXIT_CODES, USAGE, CommandFailed
from syncbrok.cli.pipeline.input import open_input
from syncbrok.cli.pipeline.session import Job, SessionOptions, job_session, session_options
from syncbrok.cli.show import as_json, print_json, print_table, printable
from syncbrok.model.errors import BadSetting
from syncbrok.model.units import parse_duration_s, parse_time_us
from syncbrok.pipeline.audit import job
from syncbrok.pipeline.audit.checksum_rule import ChecksumResult, checked
from syncbrok.pipeline.audit.rules import NO_REASONS, REASONS, RULES, VIOLATION, AuditFinding, sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHOWN_MAX: Final = 50


def _age(_context: click.Context, _parameter: click.Parameter, given: str | None) -> int | None:
    try:
        return None if given is None else int(parse_duration_s(given) * 1_000_000)
    except BadSetting as wrong:
        raise CommandFailed(f"--max-pending: {wrong.detail}", USAGE) from None


def _time(_context: click.Context, _parameter: click.Parameter, given: str | None) -> int | None:
    try:
        return None if given is None else parse_time_us(given)
    except BadSetting as wrong:
        raise CommandFailed(f"--since: {wrong.detail}", USAGE) from None


@click.command(
    "audit",
    help=f"""Prove from the log alone that every promise was kept, or name the records that break one.

Checked are checksums, sequences, snapshots, that no attempt began before its parents were complete, one end for each
delivery, attempt numbers, addressees, the order of keys, and what waits without a reason. Ends with 0 where all of it
holds, with 1 where it does not.

What has not ended is listed with why it waits. Of a running broker some of it is simply on its way. For a log at rest
(the broker had delivered all it could and was stopped) --settled makes everything that waits without a reason a
finding; --max-pending does so for what has waited longer than that, to the newest record of the log. Time in which the
broker was down counts.

\b
Examples:
  syncbrok pipeline audit --storage /var/lib/syncbrok
  syncbrok pipeline audit --archive hdfs://name:8020/syncbrok --master yarn --out hdfs://name:8020/audit
  syncbrok pipeline audit --settled --json

{SEE_EXIT_CODES}
""",
)
@session_options
@click.option("--archive", metavar="DIR", help="Read this archive too, for what the log no longer has.")
@click.option("--since", metavar="TIME", callback=_time,
              help="Only what records written from then on break (RFC 3339); all before is read too.")  # fmt: skip
@click.option("--settled", is_flag=True, help="The log is at rest: what waits must have a reason.")
@click.option("--max-pending", "pending_us_max", metavar="AGE", callback=_age,
              help="So long may something wait without a reason (30m, 2h).")  # fmt: skip
@as_json
def command(
    options: SessionOptions, archive: str | None, since: int | None, settled: bool, pending_us_max: int | None,
    json_wanted: bool,
) -> None:  # fmt: skip
    """See ``help``."""
    began = datetime.now(UTC)
    with job_session(options, "audit") as running:
        running.step("checksums")
        bytes_ = checked(running.spark, options.storage)
        told = _damaged(running, options, bytes_) if bytes_.violations else _proved(
            running, options, archive, bytes_, since_us=since, settled=settled, pending_us_max=pending_us_max
        )  # fmt: skip
    told |= {"storage": str(options.storage), "seconds": round((datetime.now(UTC) - began).total_seconds(), 1)}
    if json_wanted:
        print_json(told)
    else:
        _show(told)
    if told["violations"]:
        where = f"; all of them are in {options.out}" if options.out else "; --out DIR writes all of them"
        raise CommandFailed(f"the log in {options.storage} breaks {told['violations']} promises{where}", FAILED)


def _damaged(running: Job, options: SessionOptions, bytes_: ChecksumResult) -> dict[str, Any]:
    """The result where bytes are damaged. The other rules are not judged then, since their evidence may be wrong."""
    found = running.spark.createDataFrame(bytes_.violations, VIOLATION)
    _write(found, options.out, "violations")
    return {
        "checked": {"segments": bytes_.segments, "bytes": bytes_.bytes},
        "violations": len(bytes_.violations),
        "by_rule": {"checksum": len(bytes_.violations)},
        "shown": [one._asdict() for one in bytes_.violations[:_SHOWN_MAX]],
        "waiting": {},
        "judged": ["checksum"],
    }


def _proved(
    running: Job, options: SessionOptions, archive: str | None, bytes_: ChecksumResult, *, since_us: int | None,
    settled: bool, pending_us_max: int | None,
) -> dict[str, Any]:  # fmt: skip
    whole = open_input(running, options, archive)
    proof = job.prove(
        whole.read("messages", ",".join(job.MESSAGE_COLUMNS)),
        whole.read("deliveries", ",".join(job.DELIVERY_COLUMNS)),
        whole.read("facts", ",".join(job.FACT_COLUMNS)),
        since_us=since_us,
        settled=settled,
        pending_us_max=pending_us_max,
        step=running.step,
    )
    running.step("writing")
    _write(proof.violations, options.out, "violations")
    _write(proof.waiting, options.out, "waiting")
    by_rule = {row["rule"]: row["count"] for row in proof.violations.groupBy("rule").count().collect()}
    # A job on nothing costs a large part of a second too.
    shown = proof.violations.orderBy("sequence", "rule").limit(_SHOWN_MAX).collect() if by_rule else []
    waits: list[Any] = []
    if proof.counts["waiting"]:
        waits = proof.waiting.groupBy("why").agg({"*": "count", "message": "min"}).collect()
    judged = [rule for rule in RULES if rule != "waiting" or settled or pending_us_max is not None]
    return {
        "checked": {"segments": bytes_.segments, "bytes": bytes_.bytes} | proof.counts,
        "violations": sum(by_rule.values()),
        "by_rule": by_rule,
        "shown": [row.asDict() for row in shown],
        "waiting": {row["why"]: {"deliveries": row["count(1)"], "oldest": row["min(message)"]} for row in waits},
        "judged": judged,
    }


def _write(found: "DataFrame", out: str | None, name: str) -> None:
    """A table as Parquet, in place of an earlier one."""
    if out is not None:
        found.write.mode("overwrite").parquet(f"{out.rstrip('/')}/{name}")


def _show(told: dict[str, Any]) -> None:
    for one in told["shown"]:
        click.echo(printable(sentence(AuditFinding(**one))))
    more = told["violations"] - len(told["shown"])
    if more > 0:
        click.echo(f"... and {more} more")
    checked_, by_rule = told["checked"], told["by_rule"]
    rows = [(rule, by_rule.get(rule, 0) if rule in told["judged"] else "not judged", RULES[rule]) for rule in RULES]
    print_table(("rule", "found", "what it says"), rows, "no rules")
    if told["waiting"]:
        click.echo()
        waits = [
            (why, one["deliveries"], one["oldest"], REASONS[why] + (" (no reason)" if why in NO_REASONS else ""))
            for why, one in sorted(told["waiting"].items())
        ]
        print_table(("waits", "deliveries", "oldest message", "why"), waits, "nothing waits")
    said = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in checked_.items())
    click.echo(f"looked at {said} in {told['seconds']} s")
