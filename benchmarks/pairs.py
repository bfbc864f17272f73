"""Two checkouts side by side: ``python -m benchmarks.pairs ../other``.

A row of ``python -m benchmarks`` runs for seconds, in which a shared machine may become twice as fast: two runs of one
and the same code were seen 30 % apart. Here both brokers are alive at once and do each part in turns of a second, so
that both feel the same machine; the answer is the median of what one was beside the other in the same turn.

The parts ``queues-one`` and ``queues-many`` are taken only when they are named: declaring 1,000 queues takes seconds.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Final, NamedTuple

from benchmarks.batch import CONNECTIONS as BATCHES_AT_ONCE
from benchmarks.batch import LINES
from benchmarks.delivery import QUEUE, pause, resume, subscribe, wait_until_complete
from benchmarks.load import CONNECTIONS, NDJSON, content, lines, wrk
from benchmarks.processes import Broker, Failed, Missing, Nginx
from benchmarks.queues import QUEUES, SUBSCRIBERS, declare, quiet_since
from benchmarks.tree import delivered_backlog

_NOBODYS: Final = "nobodys"
_LOAD_S: Final = 1.0
_CHILDREN: Final = 10_000
_TURNS: Final = 15


class _Turn(NamedTuple):
    per_s: float
    cpu_us: float


class _Place(NamedTuple):
    broker: Broker
    folder: Path
    nginx: Nginx


def _posted(
    place: _Place, path: str, body: bytes, kind: str, messages: int = 1, connections: int = CONNECTIONS
) -> _Turn:
    before = place.broker.usage().cpu_s
    url = f"http://127.0.0.1:{place.broker.port}/v1/queues/{_NOBODYS}/{path}"
    seen = wrk(url, body, _LOAD_S, place.folder, connections=connections, kind=kind)
    cpu_s = place.broker.usage().cpu_s - before
    return _Turn(messages * seen.per_s, 1e6 * cpu_s / (messages * seen.requests))


def _delivered(place: _Place, *, parents: bool) -> _Turn:
    part = delivered_backlog(place.broker, _CHILDREN, parents=parents)
    return _Turn(_CHILDREN / part.seconds, 1e6 * part.cpu_s / _CHILDREN)


def _published_and_delivered(place: _Place) -> _Turn:
    broker, before = place.broker, place.broker.usage().cpu_s
    resume(broker)
    began = time.perf_counter()
    seen = wrk(f"http://127.0.0.1:{broker.port}/v1/queues/{QUEUE}/messages", content(), _LOAD_S, place.folder)
    wait_until_complete(broker)
    seconds = time.perf_counter() - began
    pause(broker)
    return _Turn(seen.requests / seconds, 1e6 * (broker.usage().cpu_s - before) / seen.requests)


def _to_queues(place: _Place, queues: int) -> _Turn:
    """Publish to the queues in turn until every subscriber has all. They are those of before, if as many."""
    before, received = place.broker.usage().cpu_s, place.nginx.received()
    url = f"http://127.0.0.1:{place.broker.port}/v1/queues/qN/messages"
    began = time.perf_counter()
    wrk(url, content(), _LOAD_S, place.folder, paths=queues)
    seconds = quiet_since(place.nginx) - began
    messages = (place.nginx.received() - received) / SUBSCRIBERS
    return _Turn(messages / seconds, 1e6 * (place.broker.usage().cpu_s - before) / messages)


PARTS: Final[dict[str, Callable[[_Place], _Turn]]] = {
    "publish": lambda place: _posted(place, "messages", content(), "text/plain"),
    "batch": lambda place: _posted(place, "messages:batch", lines(LINES), NDJSON, LINES, BATCHES_AT_ONCE),
    "batch-of-one": lambda place: _posted(place, "messages:batch", lines(1), NDJSON),
    "backlog": partial(_delivered, parents=False),
    "tree": partial(_delivered, parents=True),
    "publish_and_deliver": _published_and_delivered,
}
_ONE, _MANY = OF_QUEUES = ("queues-one", "queues-many")
"""parts that have queues of their own"""


def prepared(places: list[_Place], queues: int) -> Callable[[_Place], _Turn]:
    """The part of so many queues, which are declared, and each broker's first turn made."""
    turn = partial(_to_queues, queues=queues)
    for place in places:
        declare(place.broker, place.nginx.ports[:SUBSCRIBERS], queues)
        turn(place)
    return turn


def measure(here: _Place, other: _Place, part: str, turn: Callable[[_Place], _Turn], turns: int) -> str:
    """One line: of ``turns`` turns the median of what ``here`` was beside ``other`` in the same turn, in messages a
    second and in CPU for each message."""
    pairs: list[tuple[_Turn, _Turn]] = []
    for number in range(turns):
        order = (here, other) if number % 2 else (other, here)
        taken = {place: turn(place) for place in order}
        pairs.append((taken[here], taken[other]))
    rates = [mine.per_s / its.per_s for mine, its in pairs]
    low, _, high = quantiles(rates, n=4) if turns > 1 else (rates[0],) * 3
    cpu = median(mine.cpu_us / its.cpu_us for mine, its in pairs)
    mine, its = (median(turn.per_s for turn in side) for side in zip(*pairs, strict=True))
    return (
        f"{part:20} {median(rates):6.3f} of the other (half of the turns {low:.3f} to {high:.3f}),"
        f" CPU a message {cpu:.3f}; {mine:,.0f} and {its:,.0f} messages/s"
    )


def main(arguments: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("other", type=Path, help="a checkout of Syncbrok with its .venv (make there makes it)")
    flags.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"of: {', '.join(PARTS)}, which is the default, and {', '.join(OF_QUEUES)}",
    )
    flags.add_argument("--turns", type=int, default=_TURNS, metavar="N", help=f"of each part; default {_TURNS}")
    flags.add_argument("--queues", type=int, default=QUEUES, metavar="N", help=f"of {_MANY}; default {QUEUES:,}")
    given = flags.parse_intermixed_args(arguments)
    python = given.other.absolute() / ".venv/bin/python"
    if not python.exists():
        flags.error(f"{given.other} has no .venv/bin/python: `make lint` there makes it")
    if unknown := [part for part in given.parts if part not in (*PARTS, *OF_QUEUES)]:
        flags.error(f"no part {unknown[0]!r}")
    try:
        with tempfile.TemporaryDirectory() as name, ExitStack() as running:
            folder = Path(name)
            nginx = running.enter_context(Nginx(folder, SUBSCRIBERS))
            places: list[_Place] = []
            for program, own in ((sys.executable, folder / "here"), (str(python), folder / "other")):
                own.mkdir()
                broker = running.enter_context(Broker(own, python=program))
                subscribe(broker, nginx.url, paused=True)
                broker.ask("POST", "/v1/queues", {"name": _NOBODYS})
                places.append(_Place(broker, own, nginx))
                PARTS["backlog"](places[-1])  # the first of a broker's life is slower than all that follow
            for part in given.parts or PARTS:
                turn = PARTS[part] if part in PARTS else prepared(places, 1 if part == _ONE else given.queues)
                print(measure(*places, part, turn, given.turns), flush=True)
    except (Missing, Failed) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
