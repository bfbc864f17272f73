"""What was measured, as numbers and as text. Pure: no clock, no process, no file."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple


class Way(NamedTuple):
    """One way to do a job: ``job`` is ``publish``, ``deliver``, ``hops`` or ``layer``; ``client`` who speaks to the
    peer; ``in_flight`` how many messages wait for their acknowledgement at a time."""

    job: str
    client: str
    in_flight: int = 64


class Reading(NamedTuple):
    """One way in one run: messages (hops) a second, and the microseconds of CPU that each took of the client and of the
    server. ``None`` where that was not asked."""

    per_s: float
    client_us: float | None = None
    server_us: float | None = None


class Figure(NamedTuple):
    """The runs of one way."""

    way: Way
    readings: tuple[Reading, ...]

    @property
    def runs(self) -> tuple[float, ...]:
        return tuple(one.per_s for one in self.readings)

    @property
    def median(self) -> float:
        return median(self.runs)

    @property
    def spread(self) -> float:
        """Greatest less least, as a share of the median."""
        return (max(self.runs) - min(self.runs)) / self.median if self.median else 0.0

    @property
    def client_us(self) -> float | None:
        return _median([one.client_us for one in self.readings])

    @property
    def server_us(self) -> float | None:
        return _median([one.server_us for one in self.readings])


class Row(NamedTuple):
    """One peer at one size of its messages. ``durable``: what it acknowledges has been fsynced; ``None`` where nothing
    is acknowledged. ``stolen``: the share of the processors that the host of a virtual machine gave to others
    meanwhile, in the worst run."""

    peer: str
    version: str
    message_bytes: int
    durable: bool | None
    settings: tuple[str, ...]
    figures: tuple[Figure, ...]
    stolen: float = 0.0

    def best(self, job: str, in_flight: int = 0) -> Figure | None:
        """The fastest way it did the job, by the median; with ``in_flight`` of those from Node with so many."""
        ways = [one for one in self.figures if one.way.job == job]
        if in_flight:
            ways = [one for one in ways if one.way.in_flight == in_flight and _from_node(one.way)]
        return max(ways, key=lambda it: it.median, default=None)

    def by(self, way: Way) -> Figure | None:
        return next((figure for figure in self.figures if figure.way == way), None)


MANY: Final = 1_000
"""messages in flight of a program that publishes for many users at once"""
ALIKE: Final = Way("publish", "Node, 64 connections")
"""The way of publishing that every row has: 64 connections, one message in flight on each."""
LAYERS: Final = (
    Way("layer", "nginx, answers at once"),
    Way("layer", "bare server, answers at once"),
    Way("layer", "bare server, group-commits"),
)
"""What a POST from Node goes through without a broker, each with a layer more than the one before it."""

_HEAD: Final = (
    "peer",
    "version",
    "fsynced",
    "publish msg/s",
    "from Node*",
    "64 in flight",
    f"{MANY:,} in flight",
    "deliver msg/s",
    "chain hops/s",
    "stolen",
)
_WAYS_HEAD: Final = ("published to", "by", "msg/s", "Node us", "server us")
_LAYERS_HEAD: Final = ("a POST from Node to", "msg/s", "Node us", "server us", "more")
_FSYNCED: Final = {True: "yes", False: "NO", None: "-"}
_NOTES: Final = (
    "Median of the runs; in brackets greatest less least, as a share of it. fsynced: before it is acknowledged.",
    "stolen: of the processors, by the host of a virtual machine, in the worst run; with much of it compare nothing.",
    "* By the peer's client for Node over 64 connections, one message in flight on each: the same way for all of them.",
    "  The column before is the fastest way that was measured, those after it the fastest from Node with so many in",
    "  flight on as few connections as the client likes. us: microseconds of CPU a message.",
)


def joined(measured: Sequence[Mapping[Way, Reading]]) -> tuple[Figure, ...]:
    """The figures of one peer from its runs; a way that is missing in a run has that many runs less."""
    runs: dict[Way, list[Reading]] = {}
    for one in measured:
        for way, reading in one.items():
            runs.setdefault(way, []).append(reading)
    return tuple(Figure(way, tuple(of_way)) for way, of_way in runs.items())


def table(rows: Sequence[Row]) -> str:
    """For each size a table of the peers, one of every way to publish from Node, and one of what the layers below a
    single POST cost; then what each peer was set to. Columns of text."""
    lines: list[str] = []
    for size in dict.fromkeys(row.message_bytes for row in rows):
        of_size = [row for row in rows if row.message_bytes == size]
        lines += [f"messages of {size:,} bytes", "", *_columns([_HEAD, *map(_cells, of_size)], left=3), ""]
        if ways := [_way_cells(row, figure) for row in of_size for figure in row.figures if _published(figure.way)]:
            lines += [*_columns([_WAYS_HEAD, *ways], left=2), ""]
        if layers := _layers(of_size):
            lines += [*_columns([_LAYERS_HEAD, *layers], left=1), ""]
    lines += [*_NOTES, ""]
    for row in {row.peer: row for row in rows}.values():
        lines += [f"{row.peer}", *(f"  {setting}" for setting in row.settings)]
    return "\n".join(lines)


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [
        {
            "peer": row.peer,
            "version": row.version,
            "message_bytes": row.message_bytes,
            "fsynced": row.durable,
            "settings": list(row.settings),
            "stolen": round(row.stolen, 3),
            "figures": [_figure_as_json(figure) for figure in row.figures],
        }
        for row in rows
    ]


def merged(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``new`` in the place of what ``old`` says of the same peer at the same size; what was not measured again is
    kept."""
    again = {_key(entry): dict(entry) for entry in new}
    kept = [again.pop(_key(entry), dict(entry)) for entry in old]
    return kept + list(again.values())


def _key(entry: Mapping[str, Any]) -> tuple[str, int]:
    return entry["peer"], entry["message_bytes"]


def _figure_as_json(figure: Figure) -> dict[str, Any]:
    costs = {"client_cpu_us": figure.client_us, "server_cpu_us": figure.server_us}
    return {
        "job": figure.way.job,
        "client": figure.way.client,
        "in_flight": figure.way.in_flight,
        "median_per_s": round(figure.median, 1),
        "spread": round(figure.spread, 3),
        "runs_per_s": [round(run, 1) for run in figure.runs],
        **{name: round(value, 2) for name, value in costs.items() if value is not None},
    }


def _from_node(way: Way) -> bool:
    return way.client.startswith("Node")


def _published(way: Way) -> bool:
    return way.job == "publish" and _from_node(way)


def _cells(row: Row) -> tuple[str, ...]:
    figures = (
        row.best("publish"),
        row.by(ALIKE),
        row.best("publish", 64),
        row.best("publish", MANY),
        row.best("deliver"),
        row.best("hops"),
    )
    return (row.peer, row.version, _FSYNCED[row.durable], *map(_number, figures), f"{row.stolen:.0%}")


def _way_cells(row: Row, figure: Figure) -> tuple[str, ...]:
    return (row.peer, figure.way.client, _number(figure), _us(figure.client_us), _us(figure.server_us))


def _layers(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """A line each: what was posted to, how fast, and the CPU of both together beyond that of the line before."""
    steps = [(way.client, found) for way in LAYERS for row in rows if (found := row.by(way))]
    steps += [(row.peer, found) for row in rows if row.peer == "Syncbrok" and (found := row.by(ALIKE))]
    lines: list[tuple[str, ...]] = []
    before_us: float | None = None
    for name, figure in steps:
        both_us = None if figure.client_us is None or figure.server_us is None else figure.client_us + figure.server_us
        more = "-" if both_us is None or before_us is None else f"{both_us - before_us:+.1f} us"
        lines.append((name, _number(figure), _us(figure.client_us), _us(figure.server_us), more))
        before_us = both_us
    return lines if len(lines) > 1 else []


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _number(figure: Figure | None) -> str:
    return f"{figure.median:,.0f} ({figure.spread:.0%})" if figure else "-"


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _columns(cells: Sequence[tuple[str, ...]], left: int) -> list[str]:
    """Lines; so many columns are set to the left, the rest are numbers and set to the right."""
    widths = [max(len(line[at]) for line in cells) for at in range(len(cells[0]))]

    def set_(cell: str, column: int) -> str:
        return cell.ljust(widths[column]) if column < left else cell.rjust(widths[column])

    return ["  ".join(map(set_, line, range(len(line)))).rstrip() for line in cells]
