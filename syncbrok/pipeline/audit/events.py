"""Frames of all that is known of messages, one for each kind of rows that ``row_kinds.EVENT_KINDS`` names: their
acceptance, the rows about them, what replays and carried records say of them."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.audit.row_encoding import NEVER, OUTCOMES, POLICIES, struct
from syncbrok.pipeline.audit.row_kinds import EVENT_KINDS
from syncbrok.pipeline.audit.rules import BAD_OUTCOMES, BY_OPERATOR


def accepted(messages: DataFrame) -> DataFrame:
    """A data frame of kind ``accepted``: a row for each message."""
    # The sequence that an id names stands in its 13th to 24th digit, without two bits of the variant.
    digits = f.concat(f.substring("id", 16, 3), f.substring("id", 20, 4), f.substring("id", 25, 4))
    number = f.conv(digits, 16, 10).cast("bigint")
    named = f.shiftleft(f.shiftright(number, 32), 30) + number.bitwiseAND(0x3FFF_FFFF)
    fields = {
        "message": f.col("sequence"),
        "queue": f.col("queue"),
        "time_us": f.unix_micros("time"),
        "named": f.coalesce(named, f.lit(0)),
        "parents": f.coalesce("parent_sequences", f.array().cast("array<bigint>")),
        "key": f.coalesce("key", f.lit("")),
        "is_same": f.col("scope") == "same",
        "policy": _number(POLICIES, f.col("parent_failure")) - 1,
        "not_before_us": f.coalesce(f.unix_micros("not_before"), f.lit(0)),
        "expires_us": f.coalesce(f.unix_micros("expires"), f.lit(NEVER)),
        "only": f.coalesce("only_subscriber", f.lit(0)),
        "own": ~f.col("carried"),
    }
    return messages.select(f.col("sequence").alias("message"), *_kinds("accepted", fields))


def rows(deliveries: DataFrame) -> DataFrame:
    """A data frame of kind ``row``: one for each row of an outcomes record. Rows that stand for many messages at a
    subscriber that does not count are left out: nobody waits for those."""
    fields = {
        "message": f.col("message"),
        "seq": f.col("sequence"),
        "pos": f.col("position"),
        "s": f.col("subscriber_number"),
        "attempt": f.col("attempt"),
        "outcome": _number(OUTCOMES, f.col("outcome")),
        "good": ~f.col("outcome").isin(*BAD_OUTCOMES) & ~f.col("reason").isin(*BY_OPERATOR),
        "after": f.col("after"),
        "due_us": f.coalesce(f.unix_micros("due"), f.lit(0)),
    }
    reason = f.coalesce(f.col("reason"), f.lit(""))
    passed_over = (reason == "seek") & (f.col("outcome") == "dropped")  # one row for all that had not been told there
    told = deliveries.where(~reason.isin("retention", "discarded") & ~passed_over)
    return told.select("message", *_kinds("row", fields))


def claims(scanned: DataFrame) -> DataFrame:
    """A data frame of kind ``claim``: what rare facts say of messages."""
    found = scanned.where("claim is not null")
    return found.select(
        "claim.message", *_kinds("claim", {name: f.col(f"claim.{name}") for name in EVENT_KINDS["claim"]})
    )


def ended_badly(scanned: DataFrame) -> DataFrame:
    """A data frame of kind ``bad``: the messages that snapshots list as ended badly, whose records are gone."""
    found = scanned.where("bad is not null")
    return found.select("bad.message", *_kinds("bad", {name: f.col(f"bad.{name}") for name in EVENT_KINDS["bad"]}))


def _kinds(kind: str, fields: dict[str, Column]) -> list[Column]:
    """Columns for all kinds of rows, of which ``kind`` is filled in with ``fields``."""
    own = f.struct(*(fields[name].cast(type_).alias(name) for name, type_ in EVENT_KINDS[kind].items()))
    return [
        (own if name == kind else f.lit(None).cast(struct(types))).alias(name) for name, types in EVENT_KINDS.items()
    ]  # fmt: skip


def _number(names: tuple[str, ...], named: Column) -> Column:
    return f.array_position(f.array(*(f.lit(name) for name in names)), named)
