"""How the cost of the pipeline grows with the log: ``python -m benchmarks.pipeline_growth``.

Logs of 1, 2, 4 and 8 million messages to read and archive, of 0.6, 1.3, 2.5 and 5 million in families to follow. Goes
to benchmarks/results/pipeline-growth.json, and drawn to docs/pipeline-growth.svg; ``--draw`` only draws what is there.
"""

import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.machine import machine, versions
from benchmarks.pipeline import MESSAGES, MESSAGES_QUICK, TREES, timed
from benchmarks.pipeline_logs import BLOCK, BLOCK_QUICK, families, plain
from benchmarks.plot import Line, Panel, picture, short
from benchmarks.processes import Failed, Missing
from benchmarks.program import RESULTS, options_of, parser
from benchmarks.row import Options, progress, shown

PICTURE: Final = Path(__file__).parents[1] / "docs" / "pipeline-growth.svg"
FILE: Final = "pipeline-growth.json"
STEPS: Final = (1, 2, 4, 8)

Point = dict[str, float]


def point(folder: Path, step: int, options: Options) -> Point:
    """Measured on logs of its own, which are written unless they are there."""
    messages = options.messages_or(MESSAGES, MESSAGES_QUICK) * step // STEPS[-1]
    logs = {"plain": folder / f"plain-{messages}", "families": folder / f"families-{messages}"}
    if not logs["plain"].exists():
        plain(logs["plain"], messages)
    if not logs["families"].exists():
        families(logs["families"], messages * TREES // MESSAGES, BLOCK_QUICK if options.quick else BLOCK)
    wanted = {**{name: str(path) for name, path in logs.items()}, "archive": str(logs["plain"])}
    return {"step": step, **timed({**wanted, "scratch": str(folder), "repeat": 1})}


def measure(steps: list[int], folder: Path, options: Options, known: dict[str, Any]) -> dict[str, Any]:
    """``known`` with these steps measured anew."""
    points = {one["step"]: one for one in known.get("points", ())}
    for step in steps:
        points[step] = point(folder, step, options)
        progress(", ".join(f"{name} {shown(value)}" for name, value in points[step].items()))
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "official": options.official,
        "machine": machine(),
        "versions": versions(),
        "points": [points[step] for step in sorted(points)],
    }


def draw(known: dict[str, Any]) -> str:
    """Reads beside Parquet, and the jobs: seconds against messages."""
    found: list[Point] = known["points"]

    def line(name: str, key: str, colour: int | None, across: str = "rows") -> Line:
        return Line(name, [(one[across], one[key]) for one in found], colour)

    def ticks(across: str) -> list[tuple[float, str]]:
        return [(one[across], short(round(one[across], -5) or one[across])) for one in found]

    reading = [
        line("full, log", "full", 0),
        line("full, Parquet", "full_parquet", None),
        line("2 columns, log", "narrow", 1),
        line("2 columns, Parquet", "narrow_parquet", None),
        line("count, log", "count", 2),
    ]
    jobs = [
        line("archive", "archive", 0),
        line("plain Parquet", "parquet_write", None),
    ]
    following = [
        line("critical paths", "paths", 1, "messages"),
        line("audit", "audit", 0, "messages"),
        line("trees", "trees", 2, "messages"),
    ]
    by = known["machine"]
    note = f"{by['cores']} cores ({by['processor']}), Python {known['versions']['Python']}, {known['measured_at'][:10]}"
    return picture(
        "What the pipeline costs against the size of the log",
        [
            Panel("Reading", "messages in the log", "seconds", ticks("rows"), reading),
            Panel("Writing", "messages in the log", "seconds", ticks("rows"), jobs),
            Panel("Lineage and audit, chains of 1,000", "messages in the log", "seconds", ticks("messages"), following),
        ],
        note,
        columns=3,
    )


def main() -> None:
    flags = parser(__doc__ or "")
    flags.add_argument("steps", nargs="*", type=int, metavar="STEP", help=f"of: {STEPS}, in eighths; default all")
    flags.add_argument("--logs", type=Path, metavar="DIR", help="keep the logs there, and use them again")
    flags.add_argument("--draw", action="store_true", help="measure nothing")
    given = flags.parse_args()
    if any(step not in STEPS for step in given.steps):
        flags.error(f"the steps are {STEPS}")
    options = options_of(given)
    kept = given.results is not None or options.official
    file = (given.results or RESULTS) / FILE
    known = orjson.loads(file.read_bytes()) if kept and file.exists() else {}
    try:
        if not given.draw:
            with tempfile.TemporaryDirectory(dir=options.storage, prefix="syncbrok-bench-") as folder:
                known = measure(given.steps or list(STEPS), given.logs or Path(folder), options, known)
    except (Missing, Failed) as error:
        sys.exit(str(error))
    if not known:
        flags.error("nothing is measured yet")
    drawn = draw(known)
    if not kept:
        return
    if not given.draw:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(orjson.dumps(known, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    (PICTURE if given.results is None else given.results / PICTURE.name).write_text(drawn)


if __name__ == "__main__":
    main()
