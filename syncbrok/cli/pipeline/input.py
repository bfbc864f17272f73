"""The input of the jobs of ``syncbrok pipeline``, with a warning about parts of it that are lost."""

import click

from syncbrok.cli.pipeline.session import Job, SessionOptions
from syncbrok.pipeline.log_and_archive import LogAndArchive


def open_input(job: Job, options: SessionOptions, archive: str | None) -> LogAndArchive:
    """The log, together with the archive if there is one. Warns on standard error about parts that are missing in both:
    a job that finds little in the rest would look like a broker that did little."""
    whole = LogAndArchive(job.spark, options.storage, archive)
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
