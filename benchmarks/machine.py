"""What a figure was measured on: figures move with it."""

import os
import platform
import re
import resource
import subprocess
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


class Watch:
    """Who else used the processors while something was measured, as a share of all of them.

    ``others``: processes that are no children of this one, and the kernel's own; ``stolen``: time that the host of a
    virtual machine gave to another. A figure with much of either says little.
    """

    def __init__(self) -> None:
        self._began = _processors_s()
        self._own_began_s = _own_s()

    def shares(self) -> dict[str, float]:
        """Since it began. Children count when they have ended."""
        busy_s, idle_s, stolen_s = (now - then for now, then in zip(_processors_s(), self._began, strict=True))
        all_s = busy_s + idle_s + stolen_s or 1.0
        others_s = max(0.0, busy_s - (_own_s() - self._own_began_s))
        return {"others": round(others_s / all_s, 3), "stolen": round(stolen_s / all_s, 3)}


def _processors_s() -> tuple[float, float, float]:
    """Seconds busy, idle and stolen since the machine started, summed over its processors."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, idle, waiting, hard, soft, stolen = (count / os.sysconf("SC_CLK_TCK") for count in ticks)
    return user + nice + system + hard + soft, idle + waiting, stolen


def _own_s() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


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
