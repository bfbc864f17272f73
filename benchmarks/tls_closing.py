"""A TLS endpoint that closes after each answer: ``python -m benchmarks.tls_closing``."""

from pathlib import Path
from typing import Final

from benchmarks.delivery import QUEUE, deliver, subscribe
from benchmarks.endpoint_processes import Endpoints
from benchmarks.load import CONNECTIONS, fill
from benchmarks.processes import Broker, Failed
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

CONTENT_BYTES: Final = 4096


def once(folder: Path, options: Options) -> Readings:
    messages = options.messages_or(10_000, 500)
    with Endpoints(folder, 1, tls=True, closing=True) as endpoints:
        before_s = endpoints.cpu_s()
        bare = endpoints.client("closing", messages=messages, at_once=CONNECTIONS, message_bytes=CONTENT_BYTES)
        bare_endpoint_s = endpoints.cpu_s() - before_s
        bare_seen = endpoints.ended()
    with Endpoints(folder, 1, tls=True, closing=True) as endpoints, Broker(folder) as broker:
        subscribe(broker, endpoints.url(0), paused=True)
        fill(broker, QUEUE, messages, CONTENT_BYTES)
        before, before_s = broker.usage(), endpoints.cpu_s()
        seconds = deliver(broker)
        cpu_s, endpoint_s = broker.usage().cpu_s - before.cpu_s, endpoints.cpu_s() - before_s
        seen = endpoints.ended()
    if len(seen["seen"]) != messages or len(bare_seen["seen"]) != messages:
        raise Failed(f"{len(seen['seen'])} of the broker and {len(bare_seen['seen'])} of the client, not {messages}")
    beside = {
        "handshakes": float(seen["connections"]),
        "of them resumed": float(seen["resumed"]),
        "the bare client's resumed": float(bare_seen["resumed"]),
        "endpoint CPU us/delivery": 1e6 * endpoint_s / messages,
        "endpoint CPU us/delivery of the bare client": 1e6 * bare_endpoint_s / messages,
        "messages": float(messages),
    }
    return {
        "tls_closing": Reading(messages / seconds, messages / bare["seconds"], beside),
        "tls_closing_cpu": Reading(1e6 * cpu_s / messages, 1e6 * bare["cpu_s"] / messages, {}),
    }


_BARE: Final = (
    "a bare asyncio client, 64 at once, that resumes the TLS session of an earlier connection, at the same endpoint"
)

ROW = Row(
    "tls_closing",
    "10,000 messages of 4 KiB wait for a paused subscriber (window 64) whose HTTPS endpoint, a Python process, closes"
    " after each answer: a connection and a handshake for each; from un-pausing it until all are complete.",
    {
        "tls_closing": Aim("deliver to TLS that closes", "msg/s", _BARE),
        "tls_closing_cpu": Aim(
            "TLS that closes, CPU of the broker a delivery", "us", f"the CPU of {_BARE}", less_is_better=True
        ),
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
