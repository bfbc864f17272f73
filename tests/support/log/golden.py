"""The golden logs: small logs with records of every kind, each as the version of its time wrote it. They never change.

``python -m tests.support.log.golden DIRECTORY`` writes one of today's format; a new one goes beside those in
``tests/golden`` when a record or a field has come, and what is there stays.
"""

import json
import sys
from pathlib import Path
from typing import Any

from syncbrok.log.format.records import SegmentOpened
from syncbrok.model.facts import (
    RULES,
    Action,
    Erased,
    Fact,
    FileApplied,
    JobChanged,
    Managed,
    Outcome,
    QueueDeleted,
    QueueSet,
    Rearmed,
    RearmedEntry,
    Reason,
    StoredMessage,
    SubscriberDeleted,
    Tried,
)
from syncbrok.model.jobs import Choice, JobKind, JobState, JobWish
from syncbrok.model.message import ParentFailure, Scope, Signature
from tests.support.log.segment_files import facts_in, write_log
from tests.support.log.story import START_US, Story

GOLDEN = Path(__file__).parents[2] / "golden"
FACTS = "facts.jsonl"
_WRITTEN_AS = {"StoredMessage": "Published"}
"""the kinds of facts whose class had another name when the first golden log was written"""
SIGNATURES = (
    Signature("v1"),
    Signature("v1a", public_key="whpk_" + 43 * "A" + "="),
    Signature("hmac", "sha256", "x-signature", "sha256={hex}", "{body}"),
)
_YEARS_US = 20 * 365 * 86_400 * 1_000_000


def told() -> Story:
    """Every kind of record, every flag of a message, every outcome; a key whose second message ends early."""
    story = Story()
    story.snapshot()
    orders, elsewhere, short = (
        story.queue(),
        story.queue("elsewhere"),
        story.queue("short", **_today(QueueSet, by="file")),
    )
    one, two = story.subscriber(orders), story.subscriber(orders, paused=True, start=1, headers=(("X-A", "b"),))
    far, leaver = story.subscriber(elsewhere), story.subscriber(short)
    reader = story.subscriber(elsewhere, counts=False, filter="size > 1", rate="9/s", signatures=SIGNATURES)
    story.add(FileApplied, "queue/orders", "0123", **_today(FileApplied, keys=(("retry", "4567"),)))
    plain = story.publish(orders, content=b"\x00plain\xff")
    child = story.publish(orders, plain, scope=Scope.SAME, policy=ParentFailure.HOLD)
    story.publish(elsewhere, plain, child, policy=ParentFailure.DELIVER, idempotency_key="once")
    later = story.publish(elsewhere, due_us=START_US + _YEARS_US)
    story.publish(orders, only=one)
    first, second, third = (story.publish(orders, key="k") for _ in range(3))
    story.attempt(plain, one)
    story.outcomes(story.row(plain, two), story.row(first, one, Outcome.FAILED, reason=Reason.STATUS, detail=b"no"))
    story.end(second, Outcome.DROPPED, Reason.CANCELLED)
    in_order = hasattr(SegmentOpened, "rules")
    if in_order:
        story.attempt(first, one, attempt=2)
    story.attempt(third, one)  # before the rule of today it overtook the first
    if not in_order:
        story.attempt(first, one, attempt=2)
    story.attempt(child, one, Outcome.DEAD, reason=Reason.GONE)
    story.end(child, Outcome.EXPIRED, Reason.EXPIRED, two)
    story.attempt(child, two, Outcome.LATE)
    entry = RearmedEntry(child, orders, (one,), (), (1,), ParentFailure.HOLD, "k")
    story.add(Rearmed, 1, (entry,), **_today(Rearmed, subscriber=one))
    story.attempt(child, one, attempt=2)
    story.end(story.publish(short), Outcome.SKIPPED, Reason.NONE)
    story.unsubscribe(leaver, **_today(SubscriberDeleted, by="operator"))
    story.delete_queue(short, **_today(QueueDeleted, by="operator"))
    story.seal()
    story.snapshot(bad=[(child, Outcome.EXPIRED)], **_today(SegmentOpened, rules=RULES, lost=((child, one),)))
    story.carry(story.message(later, elsewhere, due_us=START_US + _YEARS_US), [], [Tried(far, 1, START_US + _YEARS_US)])
    story.attempt(story.publish(elsewhere), far)
    story.outcomes(story.row(later, reader, Outcome.DROPPED, reason=Reason.RETENTION, attempt=0))
    story.outcomes(story.row(story.publish(elsewhere), far, Outcome.SKIPPED, reason=Reason.FILTERED, attempt=0))
    story.add(Erased, START_US, (story.message(child, orders).id,), **_today(Erased, by="operator"))
    story.add(Managed, "operator", Action.PURGE, orders)
    died, passed = story.publish(elsewhere), story.publish(elsewhere)
    story.attempt(died, far, Outcome.DEAD, reason=Reason.STATUS)
    story.outcomes(story.row(died, far, Outcome.DROPPED, reason=Reason.DISCARDED, attempt=0))
    story.outcomes(story.row(passed, far, Outcome.SKIPPED, reason=Reason.SEEK, attempt=0))
    story.outcomes(story.row(passed, reader, Outcome.DROPPED, reason=Reason.SEEK, attempt=0))
    brief = story.publish(elsewhere, key="b", **_today(StoredMessage, erase_after_us=3_600_000_000))
    story.carry(story.message(brief, elsewhere, key="b", **_today(StoredMessage, erase_after_us=3_600_000_000)))
    story.attempt(brief, far)
    story.add(Erased, START_US, (story.message(brief, elsewhere).id,), **_today(Erased, past_retention=True))
    job = _job(story, orders, one)
    story.add(JobChanged, *job)
    story.gap(story.last + 1, story.last + 2)
    story.seal()
    kept = JobChanged(story.last, START_US, *job)
    story.snapshot(**_today(SegmentOpened, rules=RULES, jobs=(kept,)))
    story.publish(orders, key="k", content=b"behind the third")
    return story


def _job(story: Story, queue: int, subscriber: int) -> tuple[object, ...]:
    """A job that is under way, without its sequence and time."""
    wish = JobWish(queue, subscriber, 1, 9, Choice.DEAD, ("status",), (), descendants=True, force=True)
    figures = (JobKind.RECOVER, JobState.RUNNING, "operator", START_US, START_US, 2, False, 5, 3, 1)
    return (story.last + 1, *figures, wish, "")


def _today(kind: Any, **more: object) -> dict[str, object]:
    """The fields that this version knows."""
    return {name: value for name, value in more.items() if hasattr(kind, name)}


def plain(value: Any) -> Any:
    """A fact as JSON."""
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "_asdict"):
        kind = type(value).__name__
        return {"": _WRITTEN_AS.get(kind, kind)} | {name: plain(one) for name, one in value._asdict().items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return [plain(one) for one in value] if isinstance(value, tuple) else value


def said(directory: Path) -> list[Any]:
    """What its facts say, read now."""
    facts: list[Fact] = facts_in(directory)
    return [json.loads(json.dumps(plain(fact))) for fact in facts]


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write_log(target, told())
    (target / FACTS).write_text("".join(json.dumps(one) + "\n" for one in said(target)))
