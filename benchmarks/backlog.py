"""Delivering a backlog: ``python -m benchmarks.backlog``."""

from pathlib import Path

from benchmarks.delivery import QUEUE, deliver, subscribe
from benchmarks.load import content, fill, wrk
from benchmarks.processes import Broker, Nginx
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run


def once(folder: Path, options: Options) -> Readings:
    messages = options.messages_or(200_000, 5_000)
    with Nginx(folder) as nginx, Broker(folder) as broker:
        ceiling = wrk(nginx.url, content(), options.seconds_or(5), folder)
        subscribe(broker, nginx.url, paused=True)
        fill(broker, QUEUE, messages)
        before, nginx_before_s = broker.usage(), nginx.cpu_s()
        seconds = deliver(broker)
        cpu_s, nginx_s = broker.usage().cpu_s - before.cpu_s, nginx.cpu_s() - nginx_before_s
    beside = {
        "broker CPU us/message": 1e6 * cpu_s / messages,
        "nginx CPU us/message": 1e6 * nginx_s / messages,
        "messages": float(messages),
    }
    return {"backlog": Reading(messages / seconds, ceiling.per_s, beside)}


ROW = Row(
    "backlog",
    "200,000 messages wait for a paused subscriber (window 64); from un-pausing it until all are complete, that is"
    " delivered and the fact fsynced.",
    {"backlog": Aim("deliver a backlog", "msg/s", "wrk, 64 connections, posting to the same nginx", 25_000, 48_000)},
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
