"""What one worker of ``make test`` does in one piece, and what is begun first: for xdist, which asks ``conftest``.

``tests/pipeline`` is two units: the tests of one share a Spark and a log that a broker wrote, and each further worker
would start and warm up another of each, a minute of its processor. As one unit it went on for ten minutes after all
other workers had ended. These are the longest, so they are begun first. Then come files with a few long stories: xdist
begins with the file that has the most tests, which would leave these to the end, when the other workers have nothing
left to do. All other files go as xdist gives them out.
"""

from typing import Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SHARED: Final = "tests/pipeline/"
WRITERS: Final = ("tests/pipeline/archive/", "tests/pipeline/sink/", "tests/pipeline/test_pages.py")
"""of the pipeline, those that write: they need no log but their own"""
READERS: Final = ("tests/whole/test_tidy.py", "tests/whole/test_dependencies.py")
BEGUN_FIRST: Final = (
    SHARED,
    "tests/bench/",
    "tests/whole/disk/test_disk_faults.py",
    "tests/whole/crash/test_crash.py",
    "tests/whole/crash/test_power_loss",
    "tests/frontends/test_together.py",
    "tests/whole/test_mutations.py",
    "tests/whole/test_readme.py",
    "tests/whole/cluster/test_cluster.py",
)
"""beginnings of paths, the longest first; beside Spark, which needs both processors, no cluster holds an election"""


class WorkUnits(LoadFileScheduling):
    """Whole files to each worker (``--dist loadfile``), the pipeline in two pieces, and the readers together."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(SHARED):
            return WRITERS[0] if nodeid.startswith(WRITERS) else SHARED
        return READERS[0] if nodeid.startswith(READERS) else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=turn), last=False)
        super()._assign_work_unit(node)


def turn(unit: str) -> int:
    """When a unit is begun; of several with the same turn, that with the most tests."""
    return next((at for at, path in enumerate(BEGUN_FIRST) if unit.startswith(path)), len(BEGUN_FIRST))
