"""What filters cost a message: ``python -m benchmarks.filters``."""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

import orjson

from benchmarks.delivery import wait_until_complete
from benchmarks.load import NDJSON
from benchmarks.processes import Broker, Nginx
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run
from syncbrok.delivery.filtering.filter_contexts import FilterContexts
from syncbrok.delivery.filtering.message_filter import compile_filter
from syncbrok.model.facts import StoredMessage
from syncbrok.model.message import ParentFailure, Scope
from syncbrok.model.names import MessageId

CONTENT_BYTES: Final = 4_096
HEADERS: Final = {"x-shop": "north", "ce-type": "order.paid", "x-trace": "a" * 32}
CASES: Final = {
    "filter_header": ('headers["x-shop"] == "north"', 15.0),
    "filter_ce": ('ce.type == "order.paid"', 15.0),
    "filter_data": ('data.status == "paid"', 40.0),
}
"""a filter that lets all through, and the microseconds that it may take"""
FURTHER: Final = tuple(f'headers["x-shop"] != "shop {number}"' for number in range(10))
FURTHER_US: Final = 3.0
_LINES: Final = 500
_TURNS: Final = 9
_TOGETHER: Final = 32
"""messages, of which all have their context at hand still when the further filters ask"""


def content() -> bytes:
    """An order of ``CONTENT_BYTES``: what is looked for among some lines of it."""
    order = {
        "status": "paid",
        "lines": [{"article": f"article {number}", "price": 100 + number, "tags": ["a", "b"]} for number in range(60)],
        "note": "",
    }
    order["note"] = "x" * (CONTENT_BYTES - len(orjson.dumps(order)))
    return orjson.dumps(order)


def messages(count: int) -> list[StoredMessage]:
    """Messages as a dispatcher has them, each another one."""
    body, headers = content(), tuple(HEADERS.items())
    none = (Scope.ALL, ParentFailure.HOLD, (), "", "", b"", 0, 0)
    return [
        StoredMessage(one, 0, MessageId(bytes(16)), 1, one, 0, *none, "application/json", headers, body)
        for one in range(1, count + 1)
    ]


def verdict_us(filters: Sequence[str], count: int) -> tuple[float, float]:
    """Microseconds of CPU a message, in this process: until the first of these has said whether it passes, and for each
    of the others after it, which is 0 where there is none. Taken by themselves: as a difference of two runs the little
    that a further one takes is lost in their noise."""
    first, *others = [compile_filter(text) for text in filters]
    some, contexts = messages(count), FilterContexts()
    first_s: list[float] = []
    others_s: list[float] = []
    for _ in range(_TURNS):
        taken_s = [0.0, 0.0]
        for at in range(0, count, _TOGETHER):
            together = some[at : at + _TOGETHER]
            began_s = time.process_time()
            for message in together:
                contexts.verdict(first, message, "shop")
            first_ended_s = time.process_time()
            for message in together:
                for one in others:
                    contexts.verdict(one, message, "shop")
            taken_s[0] += first_ended_s - began_s
            taken_s[1] += time.process_time() - first_ended_s
        first_s.append(taken_s[0])
        others_s.append(taken_s[1])
        contexts.forget(message.sequence for message in some)
    return 1e6 * median(first_s) / count, 1e6 * median(others_s) / count / max(len(others), 1)


def delivered_us(broker: Broker, nginx: Nginx, queue: str, filters: Sequence[str | None], count: int) -> float:
    """Microseconds of the broker's CPU a message that comes and goes to as many subscribers as there are filters; None:
    without one."""
    broker.ask("POST", "/v1/queues", {"name": queue})
    path = f"/v1/queues/{queue}"
    for number, text in enumerate(filters):
        given = {"name": f"s{number}", "endpoint": f"{nginx.url}{number}", "filter": text}
        broker.ask("POST", f"{path}/subscribers", given)
    line = orjson.dumps({"data": orjson.loads(content()), "headers": HEADERS}) + b"\n"
    before_s = broker.usage().cpu_s
    for done in range(0, count, _LINES):
        broker.ask("POST", f"{path}/messages:batch", line * min(_LINES, count - done), NDJSON)
    wait_until_complete(broker, queue=queue)
    return 1e6 * (broker.usage().cpu_s - before_s) / count


def once(folder: Path, options: Options) -> Readings:
    several, count = options.messages_or(5_000, 300), options.messages_or(10_000, 300)
    one_us = {key: verdict_us([text], several)[0] for key, (text, _) in CASES.items()}
    header = CASES["filter_header"][0]
    _, further_us = verdict_us([header, *FURTHER], several)
    with Nginx(folder) as nginx, Broker(folder) as broker:
        delivered_us(broker, nginx, "warm", [header], count // 5)
        none_us = delivered_us(broker, nginx, "none", [None], count)
        whole_us = {key: delivered_us(broker, nginx, key, [text], count) - none_us for key, (text, _) in CASES.items()}
        all_us, all_none_us = (
            delivered_us(broker, nginx, name, filters, count // 2)
            for name, filters in (("all", [header, *FURTHER]), ("all-none", [None] * (1 + len(FURTHER))))
        )
    beside = {"broker CPU us/message without": none_us}
    readings = {
        key: Reading(one_us[key], most_us, {"broker CPU us/message more": whole_us[key], **beside})
        for key, (_, most_us) in CASES.items()
    }
    more_us = (all_us - all_none_us - whole_us["filter_header"]) / len(FURTHER)
    beside = {"broker CPU us/message more": more_us, "broker CPU us/message to eleven without": all_none_us}
    return readings | {"filter_further": Reading(further_us, FURTHER_US, beside)}


def _aim(what: str, most_us: float) -> Aim:
    return Aim(f"filter: {what}", "us", "what it may take", most_us, less_is_better=True)


ROW = Row(
    "filters",
    "What it takes to ask a filter about a message of 4 KiB of JSON with three headers, each message another one: the"
    " CPU of the evaluation alone, in one process, median of 9 turns. Beside it what a broker needs more than without"
    " it for 10,000 such messages, published in batches and delivered to nginx.",
    {
        "filter_header": _aim("one header", CASES["filter_header"][1]),
        "filter_ce": _aim("an attribute of a CloudEvent", CASES["filter_ce"][1]),
        "filter_data": _aim("a name in 4 KiB of JSON", CASES["filter_data"][1]),
        "filter_further": _aim("each of ten further ones", FURTHER_US),
    },
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
