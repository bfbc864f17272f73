"""Which messages say themselves how long their content is kept (RULES 37)."""

import random

from syncbrok.model.facts import Extras
from syncbrok.space.state.own_times import OwnTimes


def test_many_times_are_some_sets_none_of_them_early() -> None:
    """RULES 37: whatever times publishers name, each counts for no less, and for less than a hundredth more; some
    thousand sets hold them, and nothing stays of what is erased; a checkpoint keeps all."""
    chance, own = random.Random(7), OwnTimes()
    named = {one: chance.randrange(1_000_000, 10 ** chance.randrange(7, 15)) for one in range(1, 20_000)}
    for one, time_us in named.items():
        own.note(one, {0: Extras(one, erase_after_us=time_us)})
    own.note(50_000, {3: Extras(50_003), 4: Extras(50_004, erase_after_us=1_000_000)})
    assert len(own.times_us) < 8_000
    loaded = OwnTimes()
    loaded.load(own.save())
    for known in (own, loaded):
        found = {one: time_us for time_us in known.times_us for one in known.after(time_us, 0, 30_000)}
        assert found.keys() == {*named, 50_004}
        assert all(0 <= found[one] - time_us < time_us / 100 for one, time_us in named.items())
        assert 50_004 in known
        assert 50_003 not in known
    own.forget([*named, 50_004])
    assert (bool(own), own.times_us) == (False, ())
