"""``syncbrok pipeline report``."""

from datetime import UTC, datetime, timedelta

import click

from syncbrok.cli.exits import SEE_EXIT_CODES, USAGE, CommandFailed
from syncbrok.cli.pipeline.input import open_input
from syncbrok.cli.pipeline.session import SessionOptions, job_session, session_options
from syncbrok.cli.show import print_fields
from syncbrok.model.errors import BadSetting
from syncbrok.model.units import parse_time_us
from syncbrok.pipeline.report import job
from syncbrok.pipeline.report.formatting import count, duration, endpoint, share
from syncbrok.pipeline.states.declared_facts import KINDS as DECLARING


def _time(_context: click.Context, parameter: click.Parameter, given: str | None) -> datetime | None:
    if given is None:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=parse_time_us(given))
    except BadSetting as wrong:
        raise CommandFailed(f"--{parameter.name}: {wrong.detail}", USAGE) from None


@click.command(
    "report",
    help=f"""What was accepted, delivered, slow and dead, by queue, subscriber and hour, and who kept others waiting.

Writes DIR/report.html, one page that needs nothing else, and its tables as Parquet below DIR/report, in place of what
an earlier run wrote there. syncbrok.pipeline.report.job says what the tables and their columns mean.

\b
Examples:
  syncbrok pipeline report --storage /var/lib/syncbrok --out /srv/report
  syncbrok pipeline report --archive hdfs://name:8020/syncbrok --out hdfs://name:8020/report --master yarn
  syncbrok pipeline report --since 2026-07-01T00:00:00Z --until 2026-07-02T00:00:00Z

{SEE_EXIT_CODES}
""",
)
@session_options
@click.option("--archive", metavar="DIR", help="Read this archive too, for what the log no longer has.")
@click.option("--since", metavar="TIME", callback=_time, help="What happened at or after this time (RFC 3339).")
@click.option(
    "--until", metavar="TIME", callback=_time, help="What happened before this time; the log as it stood then."
)
def command(options: SessionOptions, archive: str | None, since: datetime | None, until: datetime | None) -> None:
    """See ``help``."""
    if since and until and since >= until:
        raise CommandFailed(f"--since {since} is not before --until {until}", USAGE)
    with job_session(options, "report") as running:
        running.step("counting")
        whole = open_input(running, options, archive)
        messages = whole.rows("messages", ",".join(job.MESSAGES))
        deliveries = whole.rows("deliveries", ",".join(job.DELIVERIES))
        facts = whole.read("facts", ",".join(job.FACTS), fact_kinds=DECLARING)
        found = job.report(messages, deliveries, facts, since=since, until=until)
        running.step("writing")
        source = str(options.storage) + (f" and the archive {archive}" if archive else "")
        written = job.write(found, options.out_or("pipeline"), source=source)
    _show(written)


def _show(written: job.ReportWritten) -> None:
    totals = written.page.totals
    blamed = next((row for row in written.page.blame if row["subscriber"] is not None), None)
    slowest = next(iter(written.page.endpoints), None)
    told = [
        ("accepted", f"{count(totals['messages_accepted'])} messages"),
        ("delivered", f"{count(totals['deliveries_delivered'])} deliveries"),
        ("failed attempts", share(totals["deliveries_failed"], totals["deliveries_attempts"])),
        ("dead letters", count(totals["letters"] or 0)),
        ("not ended", f"{count(sum(row['backlog'] or 0 for row in written.page.queues))} messages"),
        (
            "complete after",
            totals.get("complete_p50_us") is not None
            and f"{duration(totals['complete_p50_us'])} (half), {duration(totals['complete_p99_us'])} (99 %)",
        ),
        ("slowest", slowest and f"{_who(slowest)}: 99 % within {duration(slowest['attempt_p99_us'])}"),
        ("most waited for", blamed and f"{_who(blamed)}: {duration(blamed['waited_us'])} in all"),
        ("tables", written.tables),
        ("page", written.where),
    ]
    print_fields(told)


def _who(row: job.Row) -> str:
    return f"{row['queue']} / {row['subscriber']}" + (f" at {endpoint(row['endpoint'])}" if row["endpoint"] else "")
