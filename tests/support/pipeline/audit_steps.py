"""The steps of the audit one behind the other in this process, without Spark: what its shuffles bring together is cut
into partitions by hand. For many random logs in seconds; that Spark does the same is tested on a few."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from syncbrok.model.facts import Fact
from syncbrok.pipeline import schema
from syncbrok.pipeline.audit import (
    causal_rules,
    end_propagation,
    fact_scan,
    histories,
    key_history,
    key_rule,
    row_encoding,
    waiting_rule,
)
from syncbrok.pipeline.audit.audience import Audiences
from syncbrok.pipeline.audit.declarations import declared
from syncbrok.pipeline.audit.retention_drops import Drops
from syncbrok.pipeline.audit.row_encoding import DELIVER, NEVER, OUTCOMES, POLICIES
from syncbrok.pipeline.audit.row_kinds import EVENT_KINDS
from syncbrok.pipeline.audit.rules import BAD_OUTCOMES, BY_OPERATOR
from tests.support.pipeline.audit_frames import rows_of

PARTITIONS = 3

Rows = list[dict[str, Any]]
By = dict[str, Rows]


class Judged(NamedTuple):
    """Findings of the rules that need no bitmaps, and why what waits does."""

    found: list[tuple[str, int, int, int]]
    waiting: dict[tuple[int, int], str]


def judged_in_steps(facts: Sequence[Fact]) -> Judged:
    rows = rows_of(facts)
    scanned = kinds_of(fact_scan.scan([facts_batch(rows.facts)]))
    said = fact_scan.put_together((one["sequence"], one["kind"], one["said"]) for one in scanned.get("fact", []))
    first = min(fact.sequence for fact in facts)
    known = declared(said.declarations, first)
    audiences = Audiences(known, first)
    events = {
        "accepted": [_accepted(one) for one in rows.messages],
        "row": [_row(one) for one in rows.deliveries if _says_of_one(one)],
        "claim": scanned.get("claim", []),
        "bad": scanned.get("bad", []),
    }
    told = _run(events, EVENT_KINDS, {}, lambda batches: histories.histories(batches, audiences))
    settled = _settled(told)
    drops: dict[int, list[tuple[int, int]]] = {}
    for one in rows.deliveries:
        if one["reason"] == "retention":
            drops.setdefault(one["subscriber_number"], []).append((one["sequence"], one["message"]))
    meeting = {name: told.get(name, []) for name in ("history", "edge", "bad")} | {"settled": settled}
    met = _run(
        meeting,
        causal_rules.CAUSAL_INPUT,
        {"edge": "parent"},
        lambda batches: causal_rules.judged_edges(batches, audiences, said.began, drops),
    )
    lined = _lined(told.get("line", []), said.rules, drops)
    kept = {"open": told.get("open", []), "state": met.get("state", []), "behind": lined.get("behind", [])}
    end_us = max(fact.time_us for fact in facts)
    at_end = waiting_rule.LogEnd(end_us, frozenset(known.frozen()))
    waits: Rows = []
    for part in _parts(kept | {"settled": settled}, {}):
        for batch in waiting_rule.waiting(_batches(part, waiting_rule.WAITING_INPUT), at_end):
            waits += batch.to_pylist()
    findings = [tuple(one.values())[:4] for frame in (told, met, lined) for one in frame.get("found", [])]
    findings += [tuple(one)[:4] for one in known.violations]
    return Judged(sorted(findings), {(one["message"], one["subscriber"]): one["why"] for one in waits})  # type: ignore[arg-type]


def _run(rows: By, kinds: row_encoding.Kinds, to: dict[str, str], task: Any) -> By:
    found: By = {}
    for part in _parts(rows, to):
        for kind, some in kinds_of(task(_batches(part, kinds))).items():
            found.setdefault(kind, []).extend(some)
    return found


def _parts(rows: By, to: dict[str, str]) -> Iterator[By]:
    """As a shuffle does: by the message, or by the column that ``to`` names."""
    for number in range(PARTITIONS):
        yield {
            kind: [one for one in some if one[to.get(kind, "message")] % PARTITIONS == number]
            for kind, some in rows.items()
        }


def _batches(rows: By, kinds: row_encoding.Kinds) -> list[pa.RecordBatch]:
    return [
        batch
        for kind, some in rows.items()
        for batch in row_encoding.packed_rows(kinds, kind, [tuple(one[name] for name in kinds[kind]) for one in some])
    ]


def kinds_of(batches: Iterable[pa.RecordBatch]) -> By:
    """Rows of several kinds, by kind."""
    found: By = {}
    for batch in batches:
        for row in batch.to_pylist():
            ((kind, values),) = ((kind, values) for kind, values in row.items() if values is not None)
            found.setdefault(kind, []).append(values)
    return found


def facts_batch(rows: Rows) -> pa.RecordBatch:
    """Rows of kind ``facts`` as a task is handed them."""
    columns = schema.columns_of("facts", "sequence,time,kind,detail")
    arrays = [pa.array([row.get(one.name) for row in rows], one.arrow) for one in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow_schema(columns))


# -- what Spark's expressions do --------------------------------------------------------------------------------------


def _accepted(row: dict[str, Any]) -> dict[str, Any]:
    number = int(row["id"].replace("-", "")[13:24], 16)
    return {
        "message": row["sequence"],
        "queue": row["queue"],
        "time_us": _us(row["time"], 0),
        "named": (number >> 32 << 30) + (number & 0x3FFF_FFFF),
        "parents": row["parent_sequences"],
        "key": row["key"] or "",
        "is_same": row["scope"] == "same",
        "policy": POLICIES.index(row["parent_failure"]),
        "not_before_us": _us(row["not_before"], 0),
        "expires_us": _us(row["expires"], NEVER),
        "only": row["only_subscriber"] or 0,
        "own": not row["carried"],
    }


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "message": row["message"],
        "seq": row["sequence"],
        "pos": row["position"],
        "s": row["subscriber_number"],
        "attempt": row["attempt"],
        "outcome": OUTCOMES.index(row["outcome"]) + 1,
        "good": row["outcome"] not in BAD_OUTCOMES and row["reason"] not in BY_OPERATOR,
        "after": row["after"],
        "due_us": _us(row["due"], 0),
    }


def _us(time: Any, missing: int) -> int:
    return missing if time is None else int(time.timestamp() * 1_000_000)


def _settled(told: By) -> Rows:
    standing_ = {one["message"]: one for one in told.get("history", [])}
    listed = {one["message"]: one for one in told.get("bad", [])}
    nowhere = {"since": NEVER}
    rows = []
    for edge in (one for one in told.get("edge", []) if one["follows"]):
        above = standing_.get(edge["parent"])
        row = [edge["child"], edge["record"], edge["policy"], edge["cancelled"], 0, 0, 0]
        if above is not None and above["record"] < edge["record"]:
            row[4:] = [edge["parent"] if above["follows"] else 0, above["complete"], above["ended"]]
        elif above is None and edge["policy"] != DELIVER:
            bad = listed.get(edge["parent"], nowhere)
            row[5] = bad["mended"] if bad["since"] < edge["record"] else 0
        rows.append(row)
    if not rows:
        return []
    names = ["child", "record", "policy", "cancelled", "parent", "complete", "ended"]
    batch = pa.RecordBatch.from_arrays([pa.array(one, pa.int64()) for one in zip(*rows, strict=True)], names=names)
    return [row for one in end_propagation._task(iter([batch])) for row in one.to_pylist()]


def _lined(lines: Rows, rules: key_history.Rules, drops: Mapping[int, Drops]) -> By:
    found: By = {}
    for number in range(PARTITIONS):
        part = [one for one in lines if hash((one["queue"], one["key"], one["s"])) % PARTITIONS == number]
        for kind, some in kinds_of(key_rule.judged(_batches({"line": part}, key_rule.KEY_INPUT), rules, drops)).items():
            found.setdefault(kind, []).extend(some)
    return found


def _says_of_one(row: Mapping[str, Any]) -> bool:
    """As ``audit.events.rows`` chooses."""
    passed_over = row["reason"] == "seek" and row["outcome"] == "dropped"
    return row["reason"] not in ("retention", "discarded") and not passed_over
