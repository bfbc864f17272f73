"""The events of a partition by columns: messages, and the rows about them."""

from collections import defaultdict

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from syncbrok.pipeline.audit.audience import NOBODY, Audiences
from syncbrok.pipeline.audit.fact_scan import CARRIED, REARMED
from syncbrok.pipeline.audit.message_history import AuditedReplay, CarriedClaim
from syncbrok.pipeline.audit.row_encoding import (
    FAILED,
    LATE,
    NEVER,
    OUTCOMES,
    Flags,
    Longs,
    flags,
    lists,
    longs,
    places,
)

Claims = dict[int, tuple[list[AuditedReplay], list[CarriedClaim]]]
"""what replays and carried records say, by message"""


class AuditMessages:
    """The accepted messages of a partition by columns, in order."""

    def __init__(self, table: pa.Table, claims: Claims, known: Audiences) -> None:
        self._known = known
        # If a message is there twice, its own record counts.
        order = np.lexsort((~flags(table, "own"), longs(table, "message")))
        numbers = longs(table, "message")[order]
        is_first = np.ones(len(numbers), bool)
        is_first[1:] = numbers[1:] != numbers[:-1]
        self.table = table.take(pa.array(order[is_first]))
        self.message, self.only = longs(self.table, "message"), longs(self.table, "only")
        self.own = flags(self.table, "own")
        self.parent_counts, self.parents = lists(self.table, "parents")
        self.record = self.message.copy()
        for at in np.flatnonzero(~self.own).tolist():
            carriers = [one.record for one in claims.get(int(self.message[at]), ((), ()))[1]]
            self.record[at] = min(carriers, default=int(self.message[at]))
        queues = self.table.column("queue").combine_chunks().dictionary_encode()
        which = pc.fill_null(queues.indices, -1).to_numpy().astype(np.int64)
        self.audience = known.of(queues.dictionary.to_pylist(), which, self.record)
        self.doubt = known.doubt(self.message, self.record)
        self.queue, self.queue_gone = known.queue[self.audience], known.queue_gone[self.audience]
        self.size, self.has_gone = known.size[self.audience], known.has_gone[self.audience]
        claimed, is_there = places(self.message, np.fromiter(claims, np.int64, len(claims)))
        self.is_ordinary = self.own & (self.only == 0) & (self.doubt == NEVER)
        self.is_ordinary &= known.newest[self.audience] < self.message
        self.is_ordinary[claimed[is_there]] = False

    def uncounted(self, at: Longs) -> tuple[Longs, Longs, Longs]:
        """The subscribers to which the messages at the places ``at``, each with a key and in its own record, were to
        come though they do not count them: as three columns the message's place, the subscriber, and the record because
        of which."""
        which, s, since = self._known.uncounted(self.queue[at], self.message[at])
        is_counted, _ = self._known.member(self.audience[at[which]], s)
        return at[which[~is_counted]], s[~is_counted], since[~is_counted]

    def key_of(self) -> tuple[Flags, list[str | None]]:
        keys = self.table.column("key").combine_chunks()
        has_key = pc.fill_null(pc.not_equal(keys, ""), False).to_numpy(zero_copy_only=False)
        return has_key & (self.only == 0), keys.to_pylist() if has_key.any() else [None] * len(keys)


class AuditRows:
    """The rows of a partition, by message, subscriber and place in the log; ``of`` is the message's place, or -1.
    Neighbours of one message and subscriber are a delivery."""

    def __init__(self, table: pa.Table, messages: AuditMessages, known: Audiences) -> None:
        message, s, seq, pos = (longs(table, name) for name in ("message", "s", "seq", "pos"))
        order = np.lexsort((pos, seq, s, message))
        self.message, self.s, self.seq, self.pos = message[order], s[order], seq[order], pos[order]
        self.attempt, self.outcome = longs(table, "attempt")[order], longs(table, "outcome")[order]
        self.good, self.due_us = flags(table, "good")[order], longs(table, "due_us")[order]
        # Nothing can have begun behind its own record: such a claim must not open a gate.
        self.after = np.minimum(longs(table, "after")[order], self.seq - 1)
        at, is_known = places(messages.message, self.message)
        self.of = np.where(is_known, at, -1)
        size = len(order)
        changed = (self.message[1:] != self.message[:-1]) | (self.s[1:] != self.s[:-1])
        self.is_first, self.is_last = np.ones(size, bool), np.ones(size, bool)
        self.is_first[1:], self.is_last[:-1] = changed, changed
        self.ends = (self.outcome != FAILED) & (self.outcome != LATE)
        audience = np.where(is_known, messages.audience[at] if len(messages.message) else NOBODY, NOBODY)
        self.is_counted, self.gone = known.member(audience, self.s)

    def ordinary(self, messages: AuditMessages) -> Flags:
        """For each message: true if it went the usual way."""
        ordinary: Flags = messages.is_ordinary.copy()
        before = np.append(0, self.attempt[:-1])
        is_rising = np.where(self.is_first, self.attempt >= 0, (self.attempt > before) | (self.attempt == 0))
        is_usual = self.is_counted & (self.outcome != LATE) & (self.seq < self.gone) & is_rising
        is_usual &= (self.ends == self.is_last) | (self.is_last & (self.outcome == FAILED))
        is_usual &= (self.attempt > 0) | self.ends
        is_usual &= (self.of >= 0) & (self.seq > messages.record[self.of]) if len(ordinary) else False
        ordinary[self.of[~is_usual & (self.of >= 0)]] = False
        self.closed = np.bincount(self.of[self.ends & (self.of >= 0)], minlength=len(ordinary))
        self.closed_badly = np.bincount(self.of[self.ends & ~self.good & (self.of >= 0)], minlength=len(ordinary))
        self.closed_by = self.most(self.seq, self.ends & (self.of >= 0), len(ordinary))
        is_over = (self.closed == messages.size) & (messages.size > 0)
        has_gone = messages.has_gone
        ordinary &= ~has_gone | (is_over & (self.closed_badly == 0))
        ordinary &= (messages.queue_gone == NEVER) | (is_over & (self.closed_by < messages.queue_gone))
        return ordinary

    def first_after(self) -> Longs:
        """For each row the lowest ``after`` among the attempts of its delivery; ``NEVER`` for none."""
        lowest = np.minimum.reduceat(np.where(self.attempt > 0, self.after, NEVER), np.flatnonzero(self.is_first))
        return np.asarray(lowest[np.cumsum(self.is_first) - 1], np.int64)

    def most(self, values: Longs, where: Flags, size: int) -> Longs:
        """For each message the highest of ``values`` in its rows ``where``; -1 for none."""
        found = np.full(size, -1, np.int64)
        np.maximum.at(found, self.of[where], values[where])
        return found

    def least(self, values: Longs, where: Flags, size: int) -> Longs:
        """For each message the lowest of ``values`` in its rows ``where``; ``NEVER`` for none."""
        found = np.full(size, NEVER)
        np.minimum.at(found, self.of[where], values[where])
        return found


def claims_of(table: pa.Table) -> Claims:
    claims: Claims = defaultdict(lambda: ([], []))
    for row in table.to_pylist():
        said = orjson.loads(row["said"])
        entries, carriers = claims[row["message"]]
        if row["of"] == REARMED:
            entries.append(
                AuditedReplay(row["record"], row["position"], int(said["replay"]), int(said["queue"]),
                      tuple(said["subscribers"]), tuple(said["parents"]), bool(said.get("key")), int(said["for"]))
            )  # fmt: skip
        elif row["of"] == CARRIED:
            ended = tuple((int(number), OUTCOMES.index(outcome) + 1) for number, outcome in said["ended"])
            tried = tuple((int(one["subscriber"]), int(one["attempts"]), int(one["due_us"])) for one in said["tried"])
            carriers.append(CarriedClaim(row["record"], ended, tried))
    return dict(claims)
