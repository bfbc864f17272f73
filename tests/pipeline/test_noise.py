"""What is kept from standard error, and what never is."""

import subprocess
import sys

from syncbrok.pipeline.noise import without_noise
from tests.support.process import ROOT

DAEMON = b"""Traceback (most recent call last):
  File "/x/pyspark/daemon.py", line 264, in manager
  File "/x/pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe
"""


def kept(text: bytes) -> bytes:
    return b"".join(without_noise(text.splitlines(keepends=True)))


def test_only_the_daemons_farewell_is_left_out() -> None:
    """A worker that nobody listens to any more, and what Java says of its modules. Every other line and stack comes
    out whole and in order, another broken pipe and a stack that is cut short among them."""
    other = DAEMON.replace(b"pyspark/daemon", b"mine/sender")
    wrong = DAEMON.replace(b"BrokenPipeError: [Errno 32] Broken pipe", b"MemoryError")
    assert (
        kept(b"one\n" + DAEMON + b"WARNING: Using incubator modules: jdk.incubator.vector\ntwo\n" + DAEMON)
        == b"one\ntwo\n"
    )
    for text in (other, wrong, b"a\n" + other + DAEMON.replace(DAEMON, b"b\n"), DAEMON[:-60], b"  indented\n\n"):
        assert kept(text) == text


def test_a_process_started_inside_is_heard() -> None:
    """Its standard error reaches ours, also where it outlives the block, and all of it where starting it failed; ours
    is as before."""
    say = f"import sys; sys.stderr.write({DAEMON.decode()!r} + sys.argv[1])"
    code = (
        "import subprocess, sys\nfrom syncbrok.pipeline.noise import filtered\n"
        f"say = [sys.executable, '-c', {say!r}]\n"
        "with filtered():\n    running = subprocess.Popen([*say, 'one\\n'])\n"
        "running.wait()\n"
        "try:\n    with filtered():\n        subprocess.run([*say, 'two\\n'])\n        raise OSError\n"
        "except OSError:\n    print('three', file=sys.stderr)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stderr
    assert told.split() == [b"one", b"two", b"three"]
