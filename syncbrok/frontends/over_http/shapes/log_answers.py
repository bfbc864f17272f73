"""Answers about the files of the log; see ``shapes.answers``."""

from typing import Annotated

from msgspec import Meta

from syncbrok.frontends.over_http.shapes.answers import JsonAnswer
from syncbrok.frontends.over_http.shapes.values import TimeText


class SegmentAnswer(JsonAnswer):
    """A segment of the log."""

    name: str
    first: Annotated[int, Meta(description="The sequence of its first record.")]
    last: Annotated[int, Meta(description="The sequence of its seal; of the last durable record where it has none.")]
    bytes: Annotated[int, Meta(description="Of its file; where it is not sealed, up to its last durable record.")]
    checksum: Annotated[
        str | None,
        Meta(
            description="CRC-32C of its records, as its seal says; the ETag of its bytes. Null where it is not sealed, "
            "or its seal cannot be read."
        ),
    ]
    sealed: bool = True
    records: Annotated[int | None, Meta(description="How many, its seal among them; null: not known here.")] = None
    first_at: Annotated[TimeText | None, Meta(description="When its first record was made; null: not known.")] = None
    last_at: Annotated[TimeText | None, Meta(description="When its last one was; null where it is not sealed.")] = None


class SegmentsAnswer(JsonAnswer):
    """The segments of the log that are here. Another node of the cluster is told of the sealed ones alone."""

    segments: list[SegmentAnswer]
    erased_before: Annotated[
        int | None,
        Meta(
            description="Of a cluster: those before this one are written anew without what was erased (RULES 32); 0: "
            "nothing was, null: that is under way. Null of a single broker."
        ),
    ] = 0
    log: Annotated[str | None, Meta(description="The log's uuid, in hexadecimal; null for another node.")] = None
    durable: Annotated[
        int | None,
        Meta(description="Up to this sequence all of it may be read here; null for another node."),
    ] = None


class ArchivedSegmentsAnswer(JsonAnswer):
    """The copies that are noted, of segments that the log still has."""

    log: Annotated[str, Meta(description="The log's uuid, in hexadecimal.")]
    lines: Annotated[list[str], Meta(description="As in the file `archived`.")]


class NotedAnswer(JsonAnswer):
    """How many of the lines are new; the others were noted before, or their segment is gone."""

    noted: int


class LogReaderAnswer(JsonAnswer):
    """A named reader of the log."""

    name: str
    sequence: Annotated[int, Meta(description="Through where it has read; 0 for nothing.")]
    lag: Annotated[int, Meta(description="How many durable records it has not read.")]
    hold: Annotated[bool, Meta(description="It asks that retention keeps what it has not read.")]
    holding: Annotated[bool, Meta(description="It is kept now. A reader that is silent for too long holds nothing.")]
    told_at: Annotated[TimeText, Meta(description="When it said last how far it has come.")]


class LogReadersAnswer(JsonAnswer):
    """All named readers of the log."""

    readers: list[LogReaderAnswer]
