"""What was measured, as numbers and as text. Pure: no clock, no process, no file."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple


class Way(NamedTuple):
    """One way to do a job: ``job`` is ``publish``, ``deliver`` or ``hops``; ``client`` who speaks to the peer."""

    job: str
    client: str


class Figure(NamedTuple):
    """The runs of one way, in messages (hops) a second."""

    way: Way
    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.runs)

    @property
    def spread(self) -> float:
        """Greatest less least, as a share of the median."""
        return (max(self.runs) - min(self.runs)) / self.median if self.median else 0.0


class Row(NamedTuple):
    """One peer. ``durable``: what it acknowledges has been fsynced; ``None`` where nothing is acknowledged. ``stolen``:
    the share of the processors that the host of a virtual machine gave to others meanwhile, in the worst run."""

    peer: str
    version: str
    durable: bool | None
    settings: tuple[str, ...]
    figures: tuple[Figure, ...]
    stolen: float = 0.0

    def best(self, job: str) -> Figure | None:
        """The fastest way it did the job, by the median."""
        return max((figure for figure in self.figures if figure.way.job == job), key=lambda it: it.median, default=None)

    def by(self, way: Way) -> Figure | None:
        return next((figure for figure in self.figures if figure.way == way), None)


ALIKE: Final = Way("publish", "Node, 64 connections")
"""The way of publishing that every row has: 64 connections, one message in flight on each."""

_HEAD: Final = ("peer", "version", "fsynced", "publish msg/s", "from Node*", "deliver msg/s", "chain hops/s", "stolen")
_FSYNCED: Final = {True: "yes", False: "NO", None: "-"}
_NOTES: Final = (
    "Median of the runs; in brackets greatest less least, as a share of it. fsynced: before it is acknowledged.",
    "stolen: of the processors, by the host of a virtual machine, in the worst run; with much of it compare nothing.",
    "* By the peer's client for Node over 64 connections, one message in flight on each: the same way for all of them.",
    "  The column before is the fastest way that was measured, named below.",
)


def joined(measured: Sequence[Mapping[Way, float]]) -> tuple[Figure, ...]:
    """The figures of one peer from its runs; a way that is missing in a run has that many runs less."""
    runs: dict[Way, list[float]] = {}
    for one in measured:
        for way, per_s in one.items():
            runs.setdefault(way, []).append(per_s)
    return tuple(Figure(way, tuple(of_way)) for way, of_way in runs.items())


def table(rows: Sequence[Row]) -> str:
    """Columns of text, then what each peer was set to and by whom it was published to."""
    cells = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(_HEAD))]
    lines = ["  ".join(map(_set, line, widths, range(len(line)))).rstrip() for line in cells]
    lines += ["", *_NOTES, ""]
    for row in rows:
        lines += [f"{row.peer}", *(f"  {setting}" for setting in row.settings)]
        if best := row.best("publish"):
            lines += [f"  published fastest by {best.way.client}"]
    return "\n".join(lines)


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [
        {
            "peer": row.peer,
            "version": row.version,
            "fsynced": row.durable,
            "settings": list(row.settings),
            "stolen": round(row.stolen, 3),
            "figures": [
                {
                    "job": figure.way.job,
                    "client": figure.way.client,
                    "median_per_s": round(figure.median, 1),
                    "spread": round(figure.spread, 3),
                    "runs_per_s": [round(run, 1) for run in figure.runs],
                }
                for figure in row.figures
            ],
        }
        for row in rows
    ]


def merged(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``new`` in the place of what ``old`` says of the same peers; peers that were not measured again are kept."""
    again = {entry["peer"]: dict(entry) for entry in new}
    kept = [again.pop(entry["peer"], dict(entry)) for entry in old]
    return kept + list(again.values())


def _cells(row: Row) -> tuple[str, ...]:
    figures = (row.best("publish"), row.by(ALIKE), row.best("deliver"), row.best("hops"))
    return (row.peer, row.version, _FSYNCED[row.durable], *map(_number, figures), f"{row.stolen:.0%}")


def _number(figure: Figure | None) -> str:
    return f"{figure.median:,.0f} ({figure.spread:.0%})" if figure else "-"


def _set(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 3 else cell.rjust(width)
