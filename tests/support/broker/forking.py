"""``python -m tests.support.broker.forking FD``: imports all of ``syncbrok serve``, then forks a broker for each
request that it hears on the socket ``FD``, and tells when one has ended. It ends with the socket, and they with it.

A request is a line of JSON: ``arguments``, ``cwd``, ``environment``, ``out`` (a file for its output) and
``descriptors`` (soft and hard limit). Answers: ``{"pid"}`` once it lives, ``{"pid", "code"}`` once it has ended.
"""

import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time

import syncbrok.cli.serve.broker
import syncbrok.cli.serve.serve
import syncbrok.cli.serve.single_node  # noqa: F401 (what a broker imports while it starts)
from syncbrok.cli.main import main

_READ_BYTES = 1 << 16


def _serve(hears: socket.socket) -> None:
    """Fork for each request; returns in the children only, which go on as the program."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    pending, alive = b"", set[int]()
    while True:
        for ready in select.select([hears, woken], [], [])[0]:
            if ready is woken:
                os.read(woken, _READ_BYTES)
                _tell_ends(hears, alive)
                continue
            read = hears.recv(_READ_BYTES)
            if not read:
                for pid in alive:
                    os.kill(pid, signal.SIGKILL)
                sys.exit()
            *lines, pending = (pending + read).split(b"\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    hears.close()
                    os.close(woken)
                    os.close(wakes)
                    _become(json.loads(line))
                    return
                alive.add(pid)
                hears.sendall(json.dumps({"pid": pid}).encode() + b"\n")
                _tell_ends(hears, alive)


def _tell_ends(hears: socket.socket, alive: set[int]) -> None:
    for pid in [*alive]:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            alive.discard(pid)
            told = {"pid": pid, "code": os.waitstatus_to_exitcode(status)}
            hears.sendall(json.dumps(told).encode() + b"\n")


def _become(asked: dict[str, object]) -> None:
    """Take on what was asked for."""
    out = os.open(str(asked["out"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    os.chdir(str(asked["cwd"]))
    os.environ.clear()
    os.environ.update(asked["environment"])  # type: ignore[call-overload]
    time.tzset()
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(asked["descriptors"]))  # type: ignore[arg-type]
    sys.argv = ["syncbrok", *asked["arguments"]]  # type: ignore[misc]


if __name__ == "__main__":
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    gc.unfreeze()
    main()
