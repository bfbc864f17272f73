"""``make bench``: every job three times, each beside its ceiling. Arguments are those of ``syncbrok bench``."""

import sys

from syncbrok.cli.bench import command

if __name__ == "__main__":
    command(["--runs", "3", *sys.argv[1:]], prog_name="make bench")
