"""From a journal to the state it tells of: the last checkpoint and what came after it, or everything."""

import logging
from collections.abc import Callable
from itertools import islice

from syncbrok.delivery.scheduler import Scheduler
from syncbrok.log.journal import Journal
from syncbrok.space.state import State

_log = logging.getLogger(__name__)

_facts_together = 4_096


def recover(journal: Journal, make_scheduler: Callable[[], Scheduler]) -> tuple[State, int]:
    """The state, and how many facts were replayed. A checkpoint that cannot be read costs time and nothing else."""
    state = _from_checkpoint(journal, make_scheduler) or State(make_scheduler())
    replayed = 0
    facts = journal.replay(state.through)
    while together := tuple(islice(facts, _facts_together)):
        state.apply(together)
        replayed += len(together)
    for segment in journal.segments():
        state.time_us = max(state.time_us, segment.last_time_us)
    return state, replayed


def _from_checkpoint(journal: Journal, make_scheduler: Callable[[], Scheduler]) -> State | None:
    saved = journal.load_checkpoint()
    if saved is None:
        return None
    through, parts = saved
    try:
        return State.load(make_scheduler(), through, parts)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as problem:
        _log.warning("syncbrok.space.checkpoint_unreadable", extra={"through": through, "detail": repr(problem)})
        return None
