"""What a figure was measured on: figures move with it."""

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
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

    ``others``: processes that are no descendants of this one, the kernel's own among them; ``stolen``: time that the
    host of a virtual machine gave to another. A figure with much of either says little. What the kernel does on
    interrupts counts for whom it interrupts, and in a container nobody outside is seen.

    Not: what the processors did, less what this process and its children have used. Spark's workers belong to a daemon
    that ignores their end, so nobody ever inherits their time, and a sixth of the pipeline's row was taken for others'.
    """

    def __init__(self) -> None:
        self._began = _processors_s()
        self._others_began_s = others_s(_stats(), os.getpid())

    def shares(self) -> dict[str, float]:
        """Since it began."""
        all_s, stolen_s = (now - then for now, then in zip(_processors_s(), self._began, strict=True))
        used_s = max(0.0, others_s(_stats(), os.getpid()) - self._others_began_s)
        return {"others": round(used_s / (all_s or 1.0), 3), "stolen": round(stolen_s / (all_s or 1.0), 3)}


def others_s(stats: Iterable[str], own: int) -> float:
    """Seconds used so far by all processes but ``own`` and those it has started, each with what it has inherited from
    children that ended. ``stats`` are their ``/proc/PID/stat`` (proc(5): parent is field 4, times 14 to 17)."""
    used_s: dict[int, float] = {}
    parents: dict[int, int] = {}
    for stat in stats:
        # A program's name may have spaces and brackets of its own.
        pid, fields = int(stat.split(" ", 1)[0]), stat.rpartition(")")[2].split()
        parents[pid] = int(fields[1])
        used_s[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return sum(seconds for pid, seconds in used_s.items() if not _descends(pid, own, parents))


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor


def _stats() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            yield path.read_text(errors="replace")


def _processors_s() -> tuple[float, float]:
    """Seconds of all processors and those stolen since the machine started."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(ticks) / os.sysconf("SC_CLK_TCK"), ticks[7] / os.sysconf("SC_CLK_TCK")


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
