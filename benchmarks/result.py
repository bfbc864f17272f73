"""What came of a row: as JSON for machines, as a table for people."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import orjson
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.load import CONNECTIONS, MESSAGE_BYTES
from benchmarks.machine import machine, versions
from benchmarks.row import Aim, Options, Reading, Row, Run, shown


def of(row: Row, options: Options, runs: list[Run]) -> dict[str, Any]:
    """The JSON of a row. Every figure is the median of its runs, beside the median of the ceilings; ``spread`` is
    largest less smallest as a share of the median; ``processors`` is what ``machine.Watch`` saw meanwhile."""
    return {
        "row": row.name,
        "about": row.about,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "official": options.official,
        "runs": len(runs),
        "message_bytes": MESSAGE_BYTES,
        "connections": CONNECTIONS,
        "sync": "always",
        "processors": {who: median(one.processors[who] for one in runs) for who in runs[0].processors},
        "machine": machine(),
        "versions": versions(),
        "figures": {key: _figure(aim, [one.readings[key] for one in runs], options) for key, aim in row.aims.items()},
    }


def _figure(aim: Aim, readings: list[Reading], options: Options) -> dict[str, Any]:
    values, ceilings = [one.value for one in readings], [one.ceiling for one in readings]
    value = median(values)
    ratio = median(one.value / one.ceiling if one.ceiling else 0.0 for one in readings)
    return {
        "title": aim.title,
        "unit": aim.unit,
        "value": value,
        "values": values,
        "spread": (max(values) - min(values)) / value if value else 0.0,
        "ceiling_is": aim.ceiling_is,
        "ceiling": median(ceilings),
        "ceilings": ceilings,
        "ratio": ratio,
        "less_is_better": aim.less_is_better,
        "of_ceiling": aim.of_ceiling,
        "at_least": aim.at_least,
        "beyond": aim.beyond,
        "reached": "" if options.quick or options.messages else _reached(aim, ratio if aim.of_ceiling else value),
        "beside": {name: median(one.beside[name] for one in readings) for name in readings[0].beside},
    }


def _reached(aim: Aim, value: float) -> str:
    """``beyond``, ``at least``, ``no``; empty where nothing is aimed at, as where the numbers are not the row's own."""
    if aim.at_least is None:
        return ""
    sign = -1 if aim.less_is_better else 1
    if aim.beyond is not None and sign * value >= sign * aim.beyond:
        return "beyond"
    return "at least" if sign * value >= sign * aim.at_least else "no"


def write(result: dict[str, Any], folder: Path) -> None:
    """``folder``/ROW.json."""
    folder.mkdir(parents=True, exist_ok=True)
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    (folder / f"{result['row']}.json").write_bytes(text)


def show(results: list[dict[str, Any]]) -> None:
    """A table of all figures, then the machine and the versions."""
    if not results:
        return
    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False, header_style="bold")
    for name in ("figure", "median", "spread", "ceiling", "ratio", "at least", "beyond", "reached"):
        table.add_column(name, justify="left" if name in {"figure", "reached"} else "right")
    for result in results:
        for one in result["figures"].values():
            table.add_row(*_cells(one))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    last = results[-1]
    for result in results:
        sys.stdout.write("\n" + "".join(_explained(one) for one in result["figures"].values()))
        others, stolen = result["processors"]["others"], result["processors"]["stolen"]
        sys.stdout.write(f"    processors meanwhile: {others:.1%} for others, {stolen:.1%} stolen by the host\n")
    sys.stdout.write("\n")
    for known in (last["machine"], last["versions"]):
        sys.stdout.write(", ".join(f"{name} {value}" for name, value in known.items()) + "\n")
    runs = f"median of {last['runs']} runs" if last["runs"] > 1 else "one run"
    sys.stdout.write(f"{MESSAGE_BYTES}-byte messages, policy always, {runs}\n")
    sys.stdout.flush()


def _explained(one: dict[str, Any]) -> str:
    beside = "; ".join(f"{name} {shown(value)}" for name, value in one["beside"].items())
    return f"{one['title']}\n    ceiling: {one['ceiling_is']}\n    {beside}\n"


def _cells(one: dict[str, Any]) -> list[str]:
    of = " of it" if one["of_ceiling"] else ""
    aims = [shown(one[aim]) + of if one[aim] is not None else "" for aim in ("at_least", "beyond")]
    value, ratio = f"{shown(one['value'])} {one['unit']}", f"{one['ratio']:.2f}"
    return [one["title"], value, f"{one['spread']:.0%}", shown(one["ceiling"]), ratio, *aims, one["reached"]]
