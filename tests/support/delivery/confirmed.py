"""What an attempt says of the messages before it, judged by the facts alone (RULES 24)."""

from syncbrok.delivery.handler import Attempt
from syncbrok.log.format.records import Record
from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Outcomes, Rearmed
from tests.support.delivery.factlog import FactLog

_GOES_ON = (Outcome.FAILED, Outcome.LATE)


class JudgedLog(FactLog):
    """A log whose attempts are judged as they are handed out."""

    def __init__(self, *of: object) -> None:
        super().__init__(*of)  # type: ignore[arg-type]
        self.said: dict[int, int] = {}
        """subscriber -> up to where it was told that all has ended"""
        self.is_exact = True
        """whether all that ever happened is known to the scheduler"""

    def take(self, limit: int = 1_000) -> list[Attempt]:
        taken = super().take(limit)
        kept = self.scheduler.state
        for attempt in taken:
            if attempt.replay:
                assert attempt.confirmed == (0, 0)
                continue
            self._judge(attempt, is_exact=self.is_exact and not self.gone and not kept.replays)
        return taken

    def _judge(self, attempt: Attempt, *, is_exact: bool) -> None:
        number, (previous, through) = attempt.subscriber, attempt.confirmed
        delivered, ended = _ends(self.facts, number)
        greatest = max((one for one in delivered if one < attempt.message), default=0)
        assert previous in (delivered | {0}), (attempt, "names what was not delivered")
        assert previous <= greatest
        is_forgotten = not previous and attempt.message in self._mended()
        assert previous == greatest or is_forgotten or self.gone or not self.is_exact, (attempt, greatest)
        assert through < attempt.message
        if attempt.message <= self.said.get(number, 0):
            assert attempt.message in self._mended(), (attempt, "was said to have ended")
        self.said[number] = max(self.said.get(number, 0), through)
        cursor = self.scheduler.state.cursors[number]
        if not cursor.is_counted or cursor.subscriber.settings.start is not None:
            return
        of_queue = [
            one.sequence for one in self.messages() if one.queue == cursor.queue and one.sequence > cursor.since
        ]
        still_open = [one for one in of_queue if one not in ended]
        assert all(one > through or one <= self.gone for one in still_open), (attempt, still_open)
        still_out = [one.message for one in self.out if one.subscriber == number]  # of what was cancelled, for instance
        assert not is_exact or through == min(still_open + still_out) - 1, (attempt, still_open)

    def _mended(self) -> set[int]:
        """Messages that nobody was to get any more, until a replay sent them all the same."""
        return {entry.message for fact in self.facts if isinstance(fact, Rearmed) for entry in fact.entries}


def _ends(facts: list[Record], number: int) -> tuple[set[int], set[int]]:
    """(messages delivered at the subscriber, messages that have ended there), as the durable rows say."""
    delivered: set[int] = set()
    ended: set[int] = set()
    for fact in facts:
        for row in fact.rows if isinstance(fact, Outcomes) else ():
            if row.subscriber in (number, ALL_SUBSCRIBERS) and row.outcome not in _GOES_ON:
                ended.add(row.message)
                if row.outcome is Outcome.DELIVERED:
                    delivered.add(row.message)
    return delivered, ended
