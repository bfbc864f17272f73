"""The log where descriptors are short (``log/segments/descriptors.py``): what cannot be opened is no failed disk.

Each case runs in a process of its own, whose limit it lowers and uses up.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from syncbrok.model import limits

_USED_UP = """
import gc, os, resource, sys
from pathlib import Path
from syncbrok.log.segments.descriptors import open_file
from syncbrok.model.errors import NoDescriptors
from tests.support.log.journals import open_journal, publish, roll

def use_up():
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return held

resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
directory = Path(sys.argv[1])
"""


def run(directory: Path, script: str) -> str:
    """What the script printed; it must end well."""
    code = textwrap.dedent(_USED_UP) + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory)],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def test_a_log_writes_rolls_and_reads_without_a_descriptor_left(tmp_path: Path) -> None:
    """INTERFACES 5, descriptors: connections that have used up every descriptor keep the log from nothing: it rolls,
    makes its next segment and reads from sealed ones."""
    script = """
    journal = open_journal(directory / "log")
    publish(journal, 3)
    held = use_up()
    for _ in range(20):
        roll(journal)
        publish(journal, 3)
    found = [one.sequence for one in journal.facts() if hasattr(one, "content")]
    assert [one.content for one in journal.read_many(found)] == [b"message %d" % one for one in found]
    print(len(found), len(held) > 100)
    for one in held: os.close(one)
    journal.close()
    print(len([1 for one in open_journal(directory / "log").facts() if hasattr(one, "content")]))
    """
    assert run(tmp_path, script).split() == ["63", "True", "63"]


def test_without_even_its_own_it_refuses_and_goes_on_later(tmp_path: Path) -> None:
    """INTERFACES 5, descriptors: a roll that finds no descriptor is refused ("nothing was kept"), never "the log has
    failed", and the same roll succeeds when there are descriptors again."""
    script = """
    journal = open_journal(directory / "log")
    publish(journal, 3)
    held = use_up()
    from syncbrok.log.segments import descriptors
    while descriptors._give_one(): held += use_up()
    rolls = 0
    try:
        for rolls in range(5):
            roll(journal)  # one finds what the roll before has closed
            held += use_up()
    except NoDescriptors as refused:
        print(refused.slug)
    for one in held: os.close(one)
    roll(journal)
    publish(journal, 3)
    journal.close()
    print(len([1 for one in open_journal(directory / "log").facts() if hasattr(one, "content")]))
    """
    assert run(tmp_path, script).split() == ["no-descriptors", "6"]


@pytest.mark.parametrize("kept", [16, limits.indexes_kept_max])
def test_indexes_are_kept_open_up_to_their_number(tmp_path: Path, kept: int) -> None:
    """INTERFACES 5, descriptors: opening and reading a log of many segments holds no more of their indexes open than
    it may."""
    script = f"""
    journal = open_journal(directory / "log")
    for _ in range(60):
        publish(journal, 1)
        roll(journal)
    journal.close()
    del journal
    gc.collect()  # it has its indexes as long as it is there
    without = len(os.listdir("/proc/self/fd"))
    journal = open_journal(directory / "log", indexes_max={kept})
    journal.queue_sequences(1, 0, 1_000)
    print(len(os.listdir("/proc/self/fd")) - without)
    """
    opened = int(run(tmp_path, script))
    beside = 12  # the lock, the active segment and its spare, the watermark, the reserve and the like
    assert opened <= 16 + beside if kept == 16 else opened > 50
