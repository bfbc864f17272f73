"""The options of Spark's Kafka source and sink, and what they are called here. Pure."""

from collections.abc import Mapping
from typing import Final

_HERE: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "url",
    "subscribe": "queue",
    "subscribepattern": "queue, which takes a list",
    "topic": "queue",
    "startingoffsets": "startingSequence",
    "endingoffsets": "endingSequence",
    "startingtimestamp": "startingTime of a stream, since of a batch",
    "endingtimestamp": "until",
    "startingoffsetsbytimestamp": "startingTime of a stream, since of a batch",
    "endingoffsetsbytimestamp": "until",
    "maxoffsetspertrigger": "maxRecordsPerTrigger",
    "includeheaders": "the column headers",
}


def hint(option: str) -> str:
    """The word for an option of Kafka's here, to stand behind its name in an error; nothing for any other option."""
    here = _HERE.get(option.lower())
    return f" (here {here})" if here else ""
