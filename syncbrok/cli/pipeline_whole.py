"""What the jobs of ``syncbrok pipeline`` read, and what of it is nowhere any more, said to who waits."""

import click

from syncbrok.cli.pipeline_session import Job, SessionOptions
from syncbrok.pipeline.whole import Whole


def looked_at(job: Job, options: SessionOptions, archive: str | None) -> Whole:
    """The log, and the archive where there is one. Where parts are missing in both it says so on standard error: a job
    that is right about what it read, and finds little, would look like a broker that did little."""
    whole = Whole(job.spark, options.storage, archive)
    if archive is not None:
        for gap in whole.gaps:
            click.echo(f"sequences {gap.first} to {gap.last} are neither in the archive nor in the log", err=True)
    elif whole.gaps:
        click.echo(
            f"the log begins at sequence {whole.gaps[-1].last + 1}: retention dropped what came before. "
            "--archive DIR reads it where it was archived",
            err=True,
        )
    return whole
