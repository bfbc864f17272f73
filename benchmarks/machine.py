"""What a figure was measured on: figures move with it."""

import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.processes import find
from syncbrok import __version__

_PACKAGES: Final = ("uvloop", "httptools", "numpy", "orjson", "aiohttp", "crc32c")


def machine() -> dict[str, str]:
    """Processor, cores, memory, kernel."""
    memory_kib = int(_first(r"^MemTotal:\s*(\d+) kB$", "/proc/meminfo") or 0)
    return {
        "processor": _first(r"^model name\s*: (.*)$", "/proc/cpuinfo") or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_kib / (1 << 20):.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    """Of everything that has a part in a figure. Raises ``Missing`` where wrk or nginx is not installed."""
    return {
        "syncbrok": __version__,
        "commit": _commit(),
        "Python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
        "wrk": _said("wrk", "-v", r"wrk \S*?(\d[\d.]*\S*)"),
        "nginx": _said("nginx", "-v", r"nginx/(\S+)"),
    }


def _first(pattern: str, path: str) -> str:
    found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    return found[1] if found else ""


def _said(program: str, flag: str, pattern: str) -> str:
    """Both say their version on standard error or output, and wrk then ends with 1."""
    done = subprocess.run([find(program), flag], capture_output=True, text=True, check=False)
    found = re.search(pattern, done.stdout + done.stderr)
    return found[1] if found else "unknown"


def _commit() -> str:
    """The commit of the working directory, with a + where it has changes of its own; empty without git."""
    root = Path(__file__).parents[1]
    try:
        asked = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
        done = subprocess.run(asked, cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.stdout.write(f"{machine()}\n{versions()}\n")
