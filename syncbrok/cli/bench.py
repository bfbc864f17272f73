"""``syncbrok bench``: the benchmark, which comes with the source and not with an installed package."""

import importlib.util
import subprocess
import sys

import click

from syncbrok.cli.exits import EXIT_CODES, FAILED, CommandFailed


@click.command(
    "bench",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    help=f"""Measure publishing and delivering on this machine, beside the ceilings that the same run measures: what the
disk and the sockets can do. Run it in a checkout. Further arguments are those of the benchmark (try --help).

\b
Example:
  syncbrok bench

{EXIT_CODES}
""",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """See ``help``."""
    sys.path.insert(0, "")
    if importlib.util.find_spec("benchmarks") is None:
        raise CommandFailed("the benchmark is not here", FAILED, "run it in a checkout of the source: make bench")
    sys.exit(subprocess.run([sys.executable, "-m", "benchmarks", *arguments], check=False).returncode)  # noqa: S603
