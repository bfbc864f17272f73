"""What is kept from standard error, and what never is."""

import subprocess
import sys

from syncbrok.pipeline.stderr_filter import without_noise
from tests.support.broker.process import ROOT

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
    java = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
    java += b"WARNING: package sun.security.action not in java.base\n"
    assert kept(b"one\n" + DAEMON + java + b"two\n" + DAEMON) == b"one\ntwo\n"
    for text in (b"WARNING: A terminally deprecated method has been called\n", b"package x not in java.base\n"):
        assert kept(text) == text
    for text in (other, wrong, b"a\n" + other + DAEMON.replace(DAEMON, b"b\n"), DAEMON[:-60], b"  indented\n\n"):
        assert kept(text) == text


def test_farewells_of_two_daemons_at_once_are_left_out() -> None:
    """Two workers write at the same time, line by line; where one of them has something else to say both are shown."""
    first, *others = DAEMON.splitlines(keepends=True)
    for mixed in ([first, first, *others, *others], [line for line in (first, *others) for _ in range(2)]):
        assert kept(b"".join((b"one\n", *mixed, b"two\n"))) == b"one\ntwo\n"
    wrong = b"".join([first, first, *others, *others[:-1], b"MemoryError\n", b"two\n"])
    assert kept(wrong) == wrong


def test_a_process_started_inside_is_heard() -> None:
    """Its standard error reaches ours, also where it outlives the block, and all of it where starting it failed; ours
    is as before."""
    say = f"import sys; sys.stderr.write({DAEMON.decode()!r} + sys.argv[1])"
    code = (
        "import subprocess, sys\nfrom syncbrok.pipeline.stderr_filter import filtered\n"
        f"say = [sys.executable, '-c', {say!r}]\n"
        "with filtered():\n    running = subprocess.Popen([*say, 'one\\n'])\n"
        "running.wait()\n"
        "try:\n    with filtered():\n        subprocess.run([*say, 'two\\n'])\n        raise OSError\n"
        "except OSError:\n    print('three', file=sys.stderr)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stderr
    assert told.split() == [b"one", b"two", b"three"]
