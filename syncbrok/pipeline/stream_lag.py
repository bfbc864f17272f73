"""How far a stream is behind the end of its log, by the progress that Spark keeps of each trigger. Pure."""

from typing import Protocol

import orjson


class QueryProgress(Protocol):
    """The progress of a streaming query, as ``query.lastProgress`` and a listener's event have it."""

    @property
    def json(self) -> str:
        """All of it as JSON."""
        ...


def records_behind(progress: QueryProgress | None) -> int | None:
    """The records, of any kind, between what the trigger read and what was durable then, in all sources of this format
    together. None where the progress has none of them: before the first trigger, or of a query of others."""
    sources = [] if progress is None else orjson.loads(progress.json).get("sources", ())
    found = []
    for source in sources:
        latest, end = source.get("latestOffset"), source.get("endOffset")
        if isinstance(latest, dict) and isinstance(end, dict) and "next" in latest and "next" in end:
            found.append(max(0, latest["next"] - end["next"]))
    return sum(found) if found else None
