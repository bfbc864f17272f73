"""What one process has to share out (syncbrok/space/budgets.py): the log has its descriptors before anybody else."""

import resource
import subprocess
import sys

import pytest

from syncbrok.model import limits
from syncbrok.model.errors import BadConfig
from syncbrok.space.budgets import Budgets, share_out


@pytest.mark.parametrize("limit", [limits.descriptors_min, 256, 1_024, 4_096, limits.descriptors_max])
def test_the_log_has_its_descriptors_before_anybody(limit: int) -> None:
    """INTERFACES 5, descriptors: however few there are, what is shared leaves room for the log, the indexes it keeps
    open and the listeners, and most of it is shared."""
    descriptors = share_out(limit)
    kept = limits.descriptors_reserved + descriptors.indexes_max
    assert descriptors.shared + kept == limit
    assert 16 <= descriptors.indexes_max <= limits.indexes_kept_max
    assert descriptors.shared >= limit * 3 // 8
    assert Budgets(descriptors).descriptors.total == descriptors.shared


def test_too_few_descriptors_are_refused_in_words() -> None:
    """INTERFACES 5, descriptors: a broker that could not open its next segment does not start, and says what to do."""
    with pytest.raises(BadConfig, match=r"ulimit -n|LimitNOFILE"):
        share_out(limits.descriptors_min - 1)


def test_the_soft_limit_is_raised_within_reason() -> None:
    """INTERFACES 5, descriptors: a shell's soft limit does not bind; the hard one does."""
    script = (
        "import resource; from syncbrok.space.budgets import raise_descriptors; "
        "print(raise_descriptors(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 512))

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, preexec_fn=lower)
    assert done.stdout.split() == ["512", "512", "512"]
