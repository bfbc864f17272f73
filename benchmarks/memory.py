"""What waiting messages cost in memory: ``python -m benchmarks.memory``."""

from pathlib import Path
from typing import Final

from benchmarks.delivery import QUEUE, statistics, subscribe
from benchmarks.load import fill
from benchmarks.processes import Broker, Failed, Nginx
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

MESSAGES: Final = 5_000_000
MESSAGES_QUICK: Final = 20_000
_MB: Final = 1e6
_ID_BYTES: Final = 16


def wait(broker: Broker, messages: int) -> float:
    """Let so many more wait; the seconds it took to publish them. Raises ``Failed`` where the broker counts others."""
    before = statistics(broker)["waiting"]
    seconds = fill(broker, QUEUE, messages)
    if (waiting := statistics(broker)["waiting"] - before) != messages:
        raise Failed(f"{waiting} wait of {messages} messages")
    return seconds


def once(folder: Path, options: Options) -> Readings:
    messages = options.messages_or(MESSAGES, MESSAGES_QUICK)
    with Nginx(folder) as nginx, Broker(folder) as broker:
        subscribe(broker, nginx.url, paused=True)
        idle = broker.usage()
        seconds = wait(broker, messages)
        full = broker.usage()
        broker.stop()
        broker.start()
        restarted = broker.usage()
    above_bytes = full.resident_bytes - idle.resident_bytes
    beside = {
        "bytes/message": above_bytes / messages,
        "idle MB": idle.resident_bytes / _MB,
        "after a restart MB above idle": (restarted.resident_bytes - idle.resident_bytes) / _MB,
        "published/s": messages / seconds,
        "broker CPU us/message": 1e6 * (full.cpu_s - idle.cpu_s) / messages,
    }
    return {"memory": Reading(above_bytes / _MB, _ID_BYTES * messages / _MB, beside)}


ROW = Row(
    "memory",
    "5 million messages wait for a paused subscriber: resident memory of the broker when the last is accepted, less"
    " what it was before the first. Millions of bytes.",
    {
        "memory": Aim(
            "memory for 5 million waiting",
            "MB",
            "what 16 bytes a message take, as an id each would",
            500,
            200,
            less_is_better=True,
        )
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
