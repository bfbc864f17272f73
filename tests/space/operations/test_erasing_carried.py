"""Erasing by a job what retention has carried along (RULES 32): its own record is no longer in the log."""

from pathlib import Path

import pytest

from syncbrok.model import limits
from syncbrok.model.jobs import JobState
from syncbrok.model.names import sequence_of
from syncbrok.space.channels import Bound, EraseMessages
from tests.support.polling import eventually
from tests.support.space.spaces import Clock, Consumer, running_space

DAY_S = 86_400.0


@pytest.mark.parametrize("by", ["ids", "key", "before"])
async def test_what_was_carried_is_erased_too(tmp_path: Path, by: str) -> None:
    """RULES 32: by its id, by its key and with all before a place; dropped first, by force, as any that has not
    ended."""
    clock = Clock()
    options = {"segment_bytes": limits.segment_bytes_min, "retention_s": DAY_S}
    async with running_space(tmp_path, Consumer(), clock_us=clock, **options) as running:
        await running.queue("q")
        await running.subscribe("q", "b", paused=True)
        one = await running.publish("q", b"of-ann", key="ann")
        await running.space._committer.keep_snapshot()
        clock.forward(2 * DAY_S)
        await running.space._committer.keep_snapshot()
        assert await running.space._maintenance.drop_expired() > 0
        assert running.space._journal.first_sequence > sequence_of(one), "it was carried"
        wish = {"ids": {"sequences": (sequence_of(one),)}, "key": {"key": "ann"}, "before": {"before": Bound(10**6)}}[
            by
        ]
        planned = await running.put(EraseMessages("q", force=True, **wish))
        assert planned.total == 1
        await eventually(lambda: running.view.job(planned.job.number).state is JobState.DONE, "the job is over")
        assert (await running.view.message(one)).erased
        assert running.view.job(planned.job.number).done == 1
