"""Brokers forked from one process that has imported all of ``syncbrok serve`` (``tests.support.broker.forking``).

A start of ``python -m syncbrok serve`` takes a second of a processor, and nine tenths of it are imports; the tests
start a broker hundreds of times. A fork of a process that has done them is a process as any other: it has a pid,
descriptors and an environment of its own, and is killed as hard. Where imports would read something else (another
environment, another copy of the project) nothing is forked: ``BrokerProcess`` starts those as a user does, and so do
the tests of the command itself.
"""

import atexit
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path


class Forked:
    """What ``subprocess.Popen`` is to the owner of a process."""

    def __init__(self, pid: int, parent: "_Parent") -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._parent = parent

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises ``subprocess.TimeoutExpired``."""
        code = self._ended(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("syncbrok serve", timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Where it has ended nothing happens."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _ended(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            self._parent.learn(self, timeout_s)
        return self.returncode


class _Parent:
    """The process that forks, begun with the first request. ``environment`` is that of its imports."""

    def __init__(self) -> None:
        self.environment = _environment()
        ours, theirs = socket.socketpair()
        self._socket, self._lines = ours, ours.makefile("rb")
        with theirs:
            command = [sys.executable, "-m", "tests.support.broker.forking", str(theirs.fileno())]
            root = Path(__file__).parents[3]
            self._process = subprocess.Popen(command, cwd=root, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        self._changed = threading.Condition()
        self._born: list[int] = []
        self._codes: dict[int, int] = {}
        self._over = False
        self._asking = threading.Lock()
        threading.Thread(target=self._hear, name="ends of forked brokers", daemon=True).start()
        atexit.register(self._end)

    def start(self, arguments: Sequence[str], cwd: Path, environment: dict[str, str], out: Path) -> Forked:
        """``syncbrok ARGUMENTS`` with its output appended to ``out``."""
        asked = {
            "arguments": arguments,
            "cwd": str(cwd),
            "environment": environment,
            "out": str(out),
            "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE),
        }
        with self._asking:
            self._socket.sendall(json.dumps(asked).encode() + b"\n")
            with self._changed:
                self._changed.wait_for(lambda: self._born or self._over)
                assert self._born, "the process that forks brokers has ended: what it said stands above"
                return Forked(self._born.pop(), self)

    def learn(self, one: Forked, timeout_s: float | None) -> None:
        """Set its ``returncode`` once it has ended. Any number of threads may wait for the same one: a code is told
        once, and whoever comes later finds it set."""
        with self._changed:
            self._changed.wait_for(
                lambda: one.returncode is not None or one.pid in self._codes or self._over, timeout_s
            )
            if one.returncode is None:
                one.returncode = self._codes.pop(one.pid, None)

    def _hear(self) -> None:
        for line in self._lines:
            told = json.loads(line)
            with self._changed:
                if "code" in told:
                    self._codes[told["pid"]] = told["code"]
                else:
                    self._codes.pop(told["pid"], None)  # of one before with the same pid, whom nobody waited for
                    self._born.append(told["pid"])
                self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _end(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)
        self._process.wait()


_parent: _Parent | None = None


def fork(arguments: Sequence[str], cwd: Path, environment: dict[str, str], out: Path) -> Forked | None:
    """``syncbrok ARGUMENTS`` in a process of its own; None where its imports would have read another environment."""
    global _parent  # noqa: PLW0603 (one for the process of the tests, begun when it is first needed)
    _parent = _parent or _Parent()
    if _environment() != _parent.environment:
        return None
    return _parent.start(arguments, cwd, environment, out)


def _environment() -> dict[str, str]:
    """Without what the broker reads itself, each time, and what pytest says of its test."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SYNCBROK_", "PYTEST_"))}
