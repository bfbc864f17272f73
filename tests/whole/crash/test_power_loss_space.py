"""No power loss over the whole Space breaks a promise: checkpoint, retention, secrets, archive, keys and order.

``tests/support/power/tree.py`` says what is modelled of a disk. Broken by hand to see it fail: ``secrets.json`` not
fsynced before its rename, and its directory not after it; the copy in the archive not fsynced (the start is refused; a
message is gone and not in the archive); the archive's directory not fsynced after the rename; the directory of a new
directory not fsynced.
"""

import random
from pathlib import Path

from tests.support.power.space import loses_power_twice, record

STATES = 80


async def test_no_power_loss_breaks_a_promise(tmp_path: Path, seed: int) -> None:
    """DESIGN 1; RULES 2, 5, 13, 19 and 21: after a power loss at any moment, and another while the Space recovers, it
    starts; what was accepted is there, or had ended and is whole in the archive; an end that was answered stays; no
    child goes before its parents; the newest secret that was answered signs; idempotency keys are known."""
    dice = random.Random(seed)
    life = await record(tmp_path / "recorded", dice)
    for number in range(STATES):
        assert not await loses_power_twice(life, tmp_path, dice), f"state {number}"
