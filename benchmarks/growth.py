"""How throughput changes with what grows: ``python -m benchmarks.growth``.

Four series, each point measured as the rows of the benchmark are, for a few seconds: against the size of the backlog,
the connections of the publishers, the size of a message, and the number of queues. They go to
benchmarks/results/growth.json, and drawn to docs/growth.svg; ``--draw`` only draws what is measured already.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from benchmarks.delivery import QUEUE, deliver, subscribe
from benchmarks.load import content, fill, wrk
from benchmarks.machine import machine, versions
from benchmarks.plot import Line, Panel, picture, short
from benchmarks.processes import Broker, Failed, Missing, Nginx
from benchmarks.program import RESULTS, options_of, parser
from benchmarks.queues import traffic
from benchmarks.row import Options, progress, shown
from syncbrok.bench.processes import SinkProcess

PICTURE: Final = Path(__file__).parents[1] / "docs" / "growth.svg"
FILE: Final = "growth.json"
_DELIVERED_BYTES: Final = 256 << 20
_DELIVERED_MAX: Final = 50_000

_CEILING: Final = "ceiling of publish"
_COLOURS: Final = {"publish": 0, "deliver": 1, "publish in batches": 2, "publish and deliver": 2}

Point = dict[str, float]


def backlog(folder: Path, options: Options) -> Iterator[Point]:
    """Filled with batches of 5,000, then delivered."""
    for messages in _some(options, (10_000, 30_000, 100_000, 300_000, 1_000_000), (500, 1_000)):
        with _place(folder) as own, Nginx(folder) as nginx, Broker(Path(own)) as broker:
            subscribe(broker, nginx.url, paused=True)
            filled_s = fill(broker, QUEUE, messages)
            yield {"x": messages, "publish in batches": messages / filled_s, "deliver": messages / deliver(broker)}


def connections(folder: Path, options: Options) -> Iterator[Point]:
    """Publishers, one POST a message; no subscriber."""
    seconds = options.seconds_or(4)
    for count in _some(options, (1, 4, 16, 64, 256, 1_000), (1, 64)):
        with SinkProcess(folder / "bare.log") as bare:
            ceiling = wrk(bare.url, content(), seconds, folder, connections=count)
        published = _published(folder, seconds, content(), count)
        yield {"x": count, "publish": published, "ceiling": ceiling.per_s}


def sizes(folder: Path, options: Options) -> Iterator[Point]:
    """One POST a message, then the delivery of a backlog of such messages."""
    seconds = options.seconds_or(4)
    for size in _some(options, (64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20), (64, 1 << 20)):
        with SinkProcess(folder / "bare.log") as bare:
            ceiling = wrk(bare.url, content(size), seconds, folder)
        published = _published(folder, seconds, content(size), 64)
        messages = 64 if options.quick else min(_DELIVERED_MAX, _DELIVERED_BYTES // size)
        with _place(folder) as own, Nginx(folder) as nginx, Broker(Path(own)) as broker:
            subscribe(broker, nginx.url, paused=True)
            fill(broker, QUEUE, messages, size)
            delivered = messages / deliver(broker)
        yield {"x": size, "publish": published, "deliver": delivered, "ceiling": ceiling.per_s}


def queues(folder: Path, options: Options) -> Iterator[Point]:
    """One POST a message to the queues in turn: without subscribers, and with one each until all is delivered."""
    seconds = options.seconds_or(4)
    for count in _some(options, (1, 10, 100, 1_000), (1, 10)):
        alone = traffic(folder, count, seconds, subscribers=0)
        both = traffic(folder, count, seconds, subscribers=1)
        yield {"x": count, "publish": alone.published_per_s, "publish and deliver": both.per_s}


def _some(options: Options, full: tuple[int, ...], quick: tuple[int, ...]) -> tuple[int, ...]:
    return quick if options.quick else full


def _place(folder: Path) -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(dir=folder)


def _published(folder: Path, seconds: float, body: bytes, count: int) -> float:
    with _place(folder) as own, Broker(Path(own)) as broker:
        broker.ask("POST", "/v1/queues", {"name": QUEUE})
        return wrk(
            f"http://127.0.0.1:{broker.port}/v1/queues/{QUEUE}/messages", body, seconds, folder, connections=count
        ).per_s


class Series(NamedTuple):
    """``words`` names a value of x on the axis."""

    title: str
    x_words: str
    measure: Callable[[Path, Options], Iterator[Point]]
    words: Callable[[float], str] = short


def size_words(size_bytes: float) -> str:
    """65,536 as 64K."""
    for bound, unit in ((1 << 20, "M"), (1 << 10, "K")):
        if size_bytes >= bound:
            return f"{size_bytes / bound:g}{unit}"
    return f"{size_bytes:g}"


SERIES: Final = {
    "backlog": Series("Size of the backlog", "messages waiting", backlog),
    "connections": Series("Connections of publishers", "connections, one POST a message", connections),
    "sizes": Series("Size of a message", "bytes", sizes, size_words),
    "queues": Series("Number of queues", "queues, traffic spread evenly", queues),
}


def measure(names: list[str], options: Options, known: dict[str, Any]) -> dict[str, Any]:
    """``known`` with these series measured anew."""
    series = dict(known.get("series", {}))
    with tempfile.TemporaryDirectory(dir=options.storage, prefix="syncbrok-bench-") as folder:
        for name in names:
            points = []
            for point in SERIES[name].measure(Path(folder), options):
                points.append(point)
                progress(f"{name}: " + ", ".join(f"{key} {shown(value)}" for key, value in point.items()))
            series[name] = {"x": SERIES[name].x_words, "unit": "msg/s", "points": points}
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "official": options.official,
        "machine": machine(),
        "versions": versions(),
        "series": series,
    }


def draw(known: dict[str, Any]) -> str:
    """All series as one picture."""
    panels = []
    for name, series in known["series"].items():
        points = series["points"]
        lines = [
            Line(_CEILING if line == "ceiling" else line, [(one["x"], one[line]) for one in points], _COLOURS.get(line))
            for line in points[0]
            if line != "x"
        ]
        ticks = [(point["x"], SERIES[name].words(point["x"])) for point in points]
        panels.append(Panel(SERIES[name].title, series["x"], "messages a second", ticks, lines))
    of, by = known["machine"], known["versions"]
    note = (
        f"{of['cores']} cores ({of['processor']}), {of['kernel']}, Python {by['Python']}, {known['measured_at'][:10]}"
    )
    return picture("Throughput against what grows", panels, note)


def main() -> None:
    flags = parser(__doc__ or "")
    flags.add_argument("series", nargs="*", metavar="SERIES", help=f"of: {', '.join(SERIES)}; default all")
    flags.add_argument("--draw", action="store_true", help="measure nothing")
    given = flags.parse_args()
    if unknown := [name for name in given.series if name not in SERIES]:
        flags.error(f"no series {unknown[0]!r}")
    options = options_of(given)
    kept = given.results is not None or options.official
    file = (given.results or RESULTS) / FILE
    known = orjson.loads(file.read_bytes()) if kept and file.exists() else {}
    try:
        if not given.draw:
            known = measure(given.series or list(SERIES), options, known)
    except (Missing, Failed) as error:
        sys.exit(str(error))
    if not known:
        flags.error("nothing is measured yet")
    drawn = draw(known)
    if kept and not given.draw:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(orjson.dumps(known, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    if kept:
        (PICTURE if given.results is None else given.results / PICTURE.name).write_text(drawn)


if __name__ == "__main__":
    main()
