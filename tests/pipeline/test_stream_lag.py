"""How far a stream is behind, by the progress that Spark keeps."""

import json
from typing import Any, NamedTuple

from syncbrok.pipeline.stream_lag import records_behind


class Progress(NamedTuple):
    """The part of a progress that is asked for."""

    json: str


def progress(*sources: dict[str, Any]) -> Progress:
    return Progress(json.dumps({"batchId": 4, "sources": sources}))


def source(end: Any, latest: Any) -> dict[str, Any]:
    return {"description": "s", "startOffset": None, "endOffset": end, "latestOffset": latest}


def test_the_lag_is_what_all_sources_have_left() -> None:
    """PIPELINE, stream: records behind what the trigger read, of all sources of this format; nothing is said where
    there is none, or where no trigger has run."""
    at = [source({"next": 12}, {"next": 40}), source({"next": 7}, {"next": 7})]
    assert records_behind(progress(*at)) == 28
    assert records_behind(progress(source({"next": 9}, {"next": 4}))) == 0
    assert records_behind(progress(*at, source({"t": {"0": 3}}, {"t": {"0": 9}}), source(None, None))) == 28
    for nothing in (None, progress(), progress(source("5", "9"), source(None, {"next": 4}))):
        assert records_behind(nothing) is None
