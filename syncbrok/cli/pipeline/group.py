"""``syncbrok pipeline``: the jobs that run on Spark. Needs the extra ``syncbrok[spark]``; says so where it is not."""

from typing import Any, Final

import click

from syncbrok.cli.exits import SEE_EXIT_CODES
from syncbrok.cli.lazily import Lazily
from syncbrok.cli.pipeline.session import without_extra

_JOBS: Final = {
    "archive": ("pipeline.archive", "Sealed segments to Parquet, verified; retention may then drop them."),
    "report": ("pipeline.report", "What was accepted, delivered, slow and dead: Parquet and an HTML page."),
    "lineage": ("pipeline.lineage", "Trees of messages, their critical paths, a picture of one."),
    "audit": ("pipeline.audit", "Prove from the log alone that every promise was kept."),
    "replay": ("pipeline.replay", "Select messages by SQL and publish them again, in causal order."),
}


class Jobs(Lazily):
    """A job's module imports Spark and what else it needs of the extra."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        with without_extra():
            return super().get_command(ctx, cmd_name)


@click.command(
    "pipeline",
    cls=Jobs,
    modules=_JOBS,
    help=f"""The log as data: jobs that read it with Spark, on this machine or on a cluster.

They read the files; no broker need be running, and a running one is not disturbed. With --log URL they read the log
over the network, from a broker or a node of a cluster that runs.

\b
Examples:
  syncbrok pipeline audit --storage /var/lib/syncbrok
  syncbrok pipeline archive --out /data/syncbrok
  syncbrok pipeline audit --log https://broker:10000 --log-ca ca.pem
  syncbrok pipeline report --master spark://HOST:7077 --conf spark.executor.memory=8g
  syncbrok pipeline JOB --help

Install them with pip install 'syncbrok[spark]'; Java comes along where there is none. Settings of Spark are taken from
SPARK_CONF_DIR, SPARK_HOME and the environment as usual, and --conf wins.

{SEE_EXIT_CODES}
""",
)
def command(**_: Any) -> None:
    """See ``help``."""
