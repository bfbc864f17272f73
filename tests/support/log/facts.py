"""Hypothesis strategies for every fact of ``model.facts``."""

from typing import Any, Final

from hypothesis import strategies as st

from syncbrok.log.format.records import Gap, Record, SegmentOpened, SegmentSealed
from syncbrok.model.facts import (
    Action,
    Carried,
    Erased,
    FileApplied,
    JobChanged,
    Managed,
    Outcome,
    Outcomes,
    QueueDeleted,
    QueueSet,
    Rearmed,
    RearmedEntry,
    Reason,
    Row,
    StoredMessage,
    SubscriberDeleted,
    SubscriberSet,
    Tried,
)
from syncbrok.model.jobs import Choice, JobKind, JobState, JobWish
from syncbrok.model.message import (
    BacklogBound,
    BatchPolicy,
    BreakerPolicy,
    DisabledBy,
    EndpointAuth,
    Format,
    ParentFailure,
    QueueSettings,
    RetryPolicy,
    Scope,
    Signature,
    SubscriberSettings,
)

numbers = st.integers(0, 2**32 - 1)
small = st.integers(0, 2**16 - 1)
sequences = st.integers(0, 2**42 - 1)
times = st.integers(0, 2**62)
# Surrogates too: what a header brought in undecodable goes through as it came.
texts = st.text(st.characters(codec=None), max_size=20)
names = st.text("abc_.-", min_size=1, max_size=8)
ids = st.binary(min_size=16, max_size=16)
seconds = st.floats(0, 1e7, allow_nan=False)
pairs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
plain_pairs = st.lists(st.tuples(names, names), max_size=3).map(tuple)
retries = st.builds(RetryPolicy, st.lists(seconds, max_size=3).map(tuple), st.floats(0, 1))


def tuples_of(strategy: st.SearchStrategy, most: int = 3) -> st.SearchStrategy:
    return st.lists(strategy, max_size=most).map(tuple)


published = st.builds(
    StoredMessage,
    sequences,
    times,
    ids,
    numbers,
    sequences,
    numbers,
    st.sampled_from(Scope),
    st.sampled_from(ParentFailure),
    tuples_of(ids),
    texts,
    texts,
    st.sampled_from((b"", bytes(range(16)))),
    times,
    times,
    texts,
    pairs,
    st.binary(max_size=40),
    numbers,
    st.just(False),  # a record becomes one of an erased message where it stands
    times,
)
rows = st.builds(
    Row,
    sequences,
    numbers,
    small,
    st.sampled_from(Outcome),
    st.sampled_from(Reason),
    small,
    times,
    times,
    sequences,
    numbers,
    st.binary(max_size=20),
)
QUEUE_FIELDS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "scope": st.sampled_from(Scope),
    "parent_failure": st.sampled_from(ParentFailure),
    "retry": retries,
    "timeout_s": seconds,
    "window": numbers,
    "idempotency_window_s": seconds,
    "max_backlog": st.none() | st.builds(BacklogBound, st.none() | numbers, st.none() | numbers),
    "retention_s": st.none() | seconds,
    "erase_after_s": st.none() | seconds,
}
SUBSCRIBER_FIELDS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "endpoint": names,
    "name": st.none() | names,
    "format": st.sampled_from(Format),
    "retry": st.none() | retries,
    "timeout_s": st.none() | seconds,
    "window": st.none() | numbers,
    "start": st.none() | sequences,
    "paused": st.booleans(),
    "disabled_us": times,
    "disabled_by": st.sampled_from(DisabledBy),
    "disable_after_s": seconds,
    "types": st.none() | tuples_of(names),
    "rate": st.none() | st.text(min_size=1, max_size=9),
    "filter": st.none() | st.text(min_size=1, max_size=20),
    "secret_count": st.integers(0, 2),
    "headers": plain_pairs,
    "counts": st.booleans(),
    "breaker": st.none() | st.builds(BreakerPolicy, numbers, seconds, numbers, st.tuples(seconds, seconds)),
    "declared": st.booleans(),
    "signatures": tuples_of(st.builds(Signature, *[names] * 6)),
    "auth": st.none() | st.builds(EndpointAuth, *[names] * 5, st.booleans(), st.booleans()),
    "forward": tuples_of(names),
    "verdicts": st.booleans(),
    "batch": st.none() | st.builds(BatchPolicy, numbers, seconds),
    "credentials": sequences,
}
queues = st.builds(
    QueueSet,
    sequences,
    times,
    numbers,
    names,
    st.builds(QueueSettings, **QUEUE_FIELDS),
    names | st.just(""),
)
subscribers = st.builds(
    SubscriberSet,
    sequences,
    times,
    numbers,
    numbers,
    names,
    sequences,
    st.builds(SubscriberSettings, **SUBSCRIBER_FIELDS),
    names | st.just(""),
)
key_hashes = st.dictionaries(names, names).map(lambda keys: tuple(keys.items()))
applied = st.builds(FileApplied, sequences, times, names, names, st.none() | key_hashes)
entries = st.builds(
    RearmedEntry,
    sequences,
    numbers,
    tuples_of(numbers),
    tuples_of(sequences),
    tuples_of(numbers),
    st.sampled_from(ParentFailure),
)
ended = tuples_of(st.tuples(numbers, st.sampled_from(Outcome)))

wishes = st.builds(
    JobWish,
    numbers,
    numbers,
    sequences,
    sequences,
    st.sampled_from(Choice),
    tuples_of(names),
    tuples_of(sequences),
    st.booleans(),
    st.booleans(),
)
jobs = st.builds(
    JobChanged,
    sequences,
    times,
    sequences,
    st.sampled_from(JobKind),
    st.sampled_from(JobState),
    names,
    times,
    times,
    numbers,
    st.booleans(),
    numbers,
    numbers,
    numbers,
    wishes,
    names,
)
STRATEGIES: dict[type, st.SearchStrategy] = {
    StoredMessage: published,
    Outcomes: st.builds(Outcomes, sequences, times, tuples_of(rows)),
    Carried: st.builds(
        Carried, sequences, times, published, ended, tuples_of(st.builds(Tried, numbers, numbers, times))
    ),
    QueueSet: queues,
    QueueDeleted: st.builds(QueueDeleted, sequences, times, numbers, names | st.just("")),
    SubscriberSet: subscribers,
    SubscriberDeleted: st.builds(SubscriberDeleted, sequences, times, numbers, names | st.just("")),
    FileApplied: applied,
    Rearmed: st.builds(Rearmed, sequences, times, numbers, tuples_of(entries), numbers),
    SegmentOpened: st.builds(
        SegmentOpened,
        sequences,
        times,
        tuples_of(queues),
        tuples_of(subscribers),
        tuples_of(applied),
        tuples_of(st.tuples(sequences, st.sampled_from(Outcome))),
        times,
        numbers,
        tuples_of(st.tuples(sequences, numbers)),
        tuples_of(jobs),
    ),
    SegmentSealed: st.builds(SegmentSealed, sequences, times, sequences, numbers),
    Erased: st.builds(Erased, sequences, times, times, tuples_of(ids), st.booleans(), names | st.just("")),
    Managed: st.builds(Managed, sequences, times, names, st.sampled_from(Action), numbers, sequences),
    JobChanged: jobs,
    Gap: st.builds(Gap, sequences, times, sequences, sequences, names),
}
facts: st.SearchStrategy[Record] = st.one_of(*STRATEGIES.values())
