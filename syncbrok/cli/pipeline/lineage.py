"""``syncbrok pipeline lineage``."""

from pathlib import Path
from typing import Final

import click
from pyspark.sql import functions as f

from syncbrok.cli.exits import SEE_EXIT_CODES
from syncbrok.cli.pipeline.input import open_input
from syncbrok.cli.pipeline.session import SessionOptions, job_session, session_options
from syncbrok.cli.show import moment, print_fields, print_table
from syncbrok.model.units import render_time
from syncbrok.pipeline.lineage import job
from syncbrok.pipeline.lineage.tree_picture import picture, root_of
from syncbrok.pipeline.lineage.tree_svg import duration
from syncbrok.pipeline.states.declared_facts import KINDS as DECLARING

_SLOWEST: Final = 5


@click.command(
    "lineage",
    help=f"""Trees of messages: how deep, how large, how late, and which chain of waits made them so.

Writes Parquet below DIR/lineage (nodes, edges, trees, critical_paths) in place of what an earlier run wrote there, and
a picture of one tree, DIR/lineage/tree.svg: by default of the one that took longest.

A tree is what hangs below one root along first parents. Its critical path leads from the message that was complete
last up to the beginning, at each message through the parent that was done last, in other trees too; on it is all the
time that the tree took, each moment once. syncbrok.pipeline.lineage.job says what the columns mean.

\b
Examples:
  syncbrok pipeline lineage --storage /var/lib/syncbrok --out /data/pipeline
  syncbrok pipeline lineage --root 0197f3c2-6a3b-8000-8000-00022b1c9d10
  syncbrok pipeline lineage --since 2026-07-01T00:00:00Z --until 2026-07-02T00:00:00Z

{SEE_EXIT_CODES}
""",
)
@session_options
@click.option("--archive", metavar="DIR", help="Read this archive too, for what the log no longer has.")
@click.option("--root", "wanted", metavar="ID or SEQUENCE", help="Draw the tree of this message.")
@click.option("--since", metavar="TIME", help="Only messages accepted at or after this time (RFC 3339).")
@click.option("--until", metavar="TIME", help="Only messages accepted before this time.")
def command(
    options: SessionOptions, archive: str | None, wanted: str | None, since: str | None, until: str | None
) -> None:
    """See ``help``."""
    out = options.out_or("pipeline") + "/lineage"
    with job_session(options, "lineage") as running:
        running.step("reading")
        whole = open_input(running, options, archive)
        messages = whole.rows("messages", ",".join(job.MESSAGES), since, until)
        deliveries = whole.rows("deliveries", ",".join(job.DELIVERIES), since)
        made = job.lineage_of_log(messages, deliveries, whole.read("facts", ",".join(job.FACTS), fact_kinds=DECLARING))
        running.step("following who waited for whom")
        found = job.write(made, out)
        running.step("drawing")
        root = root_of(found.nodes, found.trees, wanted)
        drawn = None if root is None else _drawn(found, root, out)
        told = job.summary(found.trees)
        # Spark hands a time over as this machine's zone has it, and without saying so.
        timed = job.slowest(found.trees, _SLOWEST).withColumn("first_us", f.unix_micros("first_at"))
        slowest = [row.asDict() for row in timed.collect()]
    print_table(
        ("root", "queue", "messages", "depth", "first accepted", "took", "critical path", "steps"),
        [
            (
                row["root"],
                row["queue"],
                row["messages"],
                row["depth"],
                moment(render_time(row["first_us"])),
                "-" if row["took_us"] is None else duration(row["took_us"]),
                "-" if row["critical_us"] is None else duration(row["critical_us"]),
                row["steps"],
            )
            for row in slowest
        ],
        "no messages",
    )
    print_fields([*told, ("tables", out), ("picture", drawn)])


def _drawn(found: job.LineageTables, root: int, out: str) -> str:
    svg = picture(found.nodes, found.trees, found.critical_paths, root)
    if "://" in out:
        # A picture is for a person, who is here; the tables are where they were asked for.
        path = Path("tree.svg").absolute()
    else:
        path = Path(out) / "tree.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg)
    return str(path)
