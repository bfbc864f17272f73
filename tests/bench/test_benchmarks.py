"""The benchmark: every row can be measured and says what it measured. How fast is not asked here."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread, Timer
from xml.etree import ElementTree as ET

import orjson
import pytest

from benchmarks.__main__ import ROWS
from benchmarks.growth import FILE, PICTURE, draw
from benchmarks.load import wrk
from benchmarks.log_end import LagWatch, LogEnd, Place
from benchmarks.machine import others_s
from benchmarks.processes import Missing, find
from benchmarks.program import RESULTS
from benchmarks.result import of
from benchmarks.row import Aim, Options, Reading, Row, Run, kept
from tests.support.broker.process import ROOT
from tests.support.http.node_client import node

NODE = "node_clients"
"""a row where Node is, with the client built: what is collected must not hang on that"""
NAMES = [row.name for row in ROWS if row.name != NODE]
LONG = {"failover", "cluster_leader", "pipeline"}
"""A minute of both processors each, however quick. The row cluster goes the same way as the first two, and tests of the
cluster do the blows; the jobs have tests of their own."""
AT_ONCE = 3


def installed() -> bool:
    try:
        return bool(find("wrk") and find("nginx"))
    except Missing:
        return False


needs_both = pytest.mark.skipif(not installed(), reason="Debian's wrk and nginx-light are not installed")


def measure(folder: Path, name: str, path: str = os.environ["PATH"]) -> "subprocess.CompletedProcess[str]":
    """``python -m benchmarks.NAME --quick`` with its logs and results below ``folder``."""
    storage = folder / name
    storage.mkdir()
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--storage", str(storage)]
    command += ["--results", str(folder)]
    environment = {**os.environ, "PATH": path}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def measured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, dict[str, "Future[object]"]]]:
    """Every row that a test was selected for, several at once: nothing here asks how fast."""
    folder = tmp_path_factory.mktemp("benchmarks")
    prefix = test_a_row_says_figure_ceiling_and_what_it_was_measured_on.__name__
    asked = {item.name for item in request.session.items}
    names = [name for name in NAMES if f"{prefix}[{name}]" in asked]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield folder, {name: pool.submit(measure, folder, name) for name in names}


@needs_both
@pytest.mark.parametrize("name", [name for name in NAMES if name not in LONG])
def test_a_row_says_figure_ceiling_and_what_it_was_measured_on(
    measured: tuple[Path, dict[str, "Future[subprocess.CompletedProcess[str]]"]], name: str
) -> None:
    """Each row is one program; it leaves a JSON with figure, ceiling, ratio, aims, every run, machine and versions,
    shows the same as a table, and leaves no log behind."""
    folder, runs = measured
    done = runs[name].result()
    assert done.returncode == 0, done.stderr
    result = orjson.loads((folder / f"{name}.json").read_bytes())
    (row,) = (row for row in ROWS if row.name == name)
    assert (result["row"], result["official"], result["runs"]) == (name, False, 1)
    assert list(result["figures"]) == list(row.aims)
    for figure in result["figures"].values():
        assert figure["values"] == [figure["value"]]
        assert figure["value"] > 0 < figure["ceiling"]
        assert figure["ratio"] == pytest.approx(figure["value"] / figure["ceiling"])
        assert figure["title"] in done.stdout
        assert figure["ceiling_is"] in done.stdout
    assert {"processor", "cores", "memory", "kernel"} == set(result["machine"])
    assert {"Python", "uvloop", "httptools", "numpy", "wrk", "nginx", "commit"} <= set(result["versions"])
    assert list((folder / name).iterdir()) == []


@needs_both
def test_two_checkouts_are_measured_in_turns(tmp_path: Path) -> None:
    """Each part is done by this checkout and by the Syncbrok of the other's own interpreter, not by what stands in the
    working directory; what has no .venv is told what to do. The queues of a part are declared for it alone."""
    parts = ["publish", "tree", "queues-one", "queues-many"]
    command = [sys.executable, "-m", "benchmarks.pairs", str(tmp_path), "--turns", "1", "--queues", "5", *parts]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2
    assert f"{tmp_path} has no .venv/bin/python: `make lint` there makes it" in refused.stderr
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == parts
    assert all("of the other" in line for line in done.stdout.splitlines())
    assert (tmp_path / "said").read_text().startswith("-P -m syncbrok serve")


def test_what_is_not_installed_is_named_with_its_package(tmp_path: Path) -> None:
    """Without wrk the benchmark says at once what to install, and nothing is measured."""
    done = measure(tmp_path, "publish", path=str(tmp_path))
    assert done.returncode == 1
    assert "wrk is not installed; on Debian and Ubuntu: apt-get install wrk" in done.stderr
    assert not (tmp_path / "publish.json").exists()


def test_a_figure_is_the_median_of_its_runs() -> None:
    """Three runs give their median and spread; for latencies less is better; and a scale that is not the row's own is
    not held against the aims."""
    aims = {"fast": Aim("fast", "msg/s", "", 20, 45), "late": Aim("late", "ms", "", 8, 3, less_is_better=True)}
    row = Row("row", "", aims, lambda _folder, _options: iter(()))
    readings = [{"fast": Reading(value, 100, {"us": value}), "late": Reading(value, 1, {})} for value in (50, 4, 30)]
    runs = [Run(one, {"others": 0, "stolen": 0}) for one in readings]
    figures = of(row, Options(), runs)["figures"]
    assert (figures["fast"]["value"], figures["fast"]["spread"]) == (30, 46 / 30)
    assert (figures["fast"]["ratio"], figures["fast"]["beside"]) == (0.3, {"us": 30})
    assert (figures["fast"]["reached"], figures["late"]["reached"]) == ("at least", "no")
    assert of(row, Options(), runs[1:2])["figures"]["late"]["reached"] == "at least"
    assert of(row, Options(messages=1), runs)["figures"]["fast"]["reached"] == ""


def test_what_others_used_is_what_no_descendant_used() -> None:
    """A process's own time, its children's and theirs are no disturbance, also where a name has spaces and brackets;
    what anybody else used is, with what he inherited from children of his own."""

    def stat(pid: int, parent: int, *ticks: int, name: str = "python") -> str:
        return f"{pid} ({name}) S {parent} 0 0 0 -1 0 0 0 0 0 {' '.join(map(str, ticks))} 20 0 1 0 99 0 0\n"

    hz = os.sysconf("SC_CLK_TCK")
    stats = [
        stat(1, 0, hz, 0, 2 * hz, 0),
        stat(2, 0, 0, 4 * hz, 0, 0, name="kworker/0:1) S 10"),
        stat(10, 1, 100 * hz, 100 * hz, 100 * hz, 100 * hz),
        stat(11, 10, 200 * hz, 0, 0, 0, name="a (b) c"),
        stat(12, 11, 400 * hz, 0, 0, 0),
        stat(13, 1, 0, 0, 0, 8 * hz),
    ]
    assert others_s(stats, 10) == 1 + 2 + 4 + 8


def test_a_disturbed_run_is_measured_again() -> None:
    """A run during which something else had the processors says little: it is measured again whatever it gave, a few
    times; then the least disturbed runs count. A quick run counts as it is."""
    calm, restless, wild = (Run({}, {"others": share, "stolen": 0.01}) for share in (0, 0.1, 0.4))
    two = Options(runs=2)
    assert kept([calm, calm], two) == [calm, calm]
    assert kept([calm, wild], two) is None
    assert kept([calm, wild, calm], two) == [calm, calm]
    assert kept([wild, calm, wild, wild], two) is None
    assert kept([wild, calm, wild, wild, restless], two) == [calm, restless]
    assert kept([wild], Options(runs=1, quick=True)) == [wild]


@needs_both
def test_a_window_that_ends_before_the_first_answer_is_made_longer(tmp_path: Path) -> None:
    """A load of a quick run is one that was answered, also where the first answer takes longer than its window."""
    opened = Event()

    class Late(BaseHTTPRequestHandler):
        """Answers once ``opened`` is set."""

        def do_POST(self) -> None:
            opened.wait()
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Late)
    serving = Thread(target=server.serve_forever)
    serving.start()
    opening = Timer(0.4, opened.set)
    opening.start()
    try:
        load = wrk(f"http://127.0.0.1:{server.server_port}/", b"x", 0.15, tmp_path, connections=2)
    finally:
        opened.set()
        server.shutdown()
        server.server_close()
        serving.join()
        opening.join()
    assert load.requests
    assert load.seconds > 0.15


def test_how_far_a_log_goes_is_seen_in_its_files(tmp_path: Path) -> None:
    """The end of a log is behind its last byte that is not zero, in its newest segment, also where it grows; a follower
    is as late as its files have what the leader's had."""
    first, second = tmp_path / "00001.log", tmp_path / "00009.log"
    end = LogEnd(tmp_path)
    assert end.look() == Place()
    first.write_bytes(b"a\0b" + bytes(10_000))
    assert end.look() == Place(first.name, 3)
    first.write_bytes(b"x" * 3_000_000)
    assert (end.look(), end.bytes) == (Place(first.name, 3_000_000), 3_000_000)
    second.write_bytes(b"y" * 10 + bytes(10))
    assert (end.look(), end.bytes) == (Place(second.name, 10), 3_000_010)
    with LagWatch(end, [LogEnd(tmp_path)]) as same:
        pass
    assert set(same.lags_s()) == {0.0}
    behind = LagWatch(end, [LogEnd(tmp_path / "none")], within_s=0.0)
    with behind:
        pass
    assert set(behind.lags_s()) == {float("inf")}


class GrowingEnd(LogEnd):
    """The end of a log that has a byte more at each look; ``behind`` bytes are not there yet."""

    def __init__(self, behind: int) -> None:
        super().__init__(Path())
        self._looked = -behind

    def look(self) -> Place:
        self._looked += 1
        return Place("0.log", self._looked)


def test_a_follower_is_not_late_for_what_was_written_after_the_end() -> None:
    """A leader that writes on while its followers catch up: what it has had since then is nobody's lag."""
    with LagWatch(GrowingEnd(0), [GrowingEnd(3)]) as watch:
        pass
    assert watch.lags_s()
    assert watch.lags_s()[-1] < float("inf")


KEPT = [file for file in (RESULTS / FILE, *(RESULTS / f"{name}.json" for name in NAMES)) if file.exists()]


@needs_both
def test_the_row_of_node_runs_where_node_is(tmp_path: Path) -> None:
    """Publishing from Node has its figures as any row; without Node the benchmark leaves the row out."""
    node()
    done = measure(tmp_path, NODE)
    assert done.returncode == 0, done.stderr
    figures = orjson.loads((tmp_path / f"{NODE}.json").read_bytes())["figures"]
    assert list(figures) == ["posts", "socket", "batches"]
    assert all(figure["value"] > 0 < figure["ceiling"] for figure in figures.values())


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_results_that_are_kept_were_measured_in_full(file: Path) -> None:
    """What stands in benchmarks/results is what the documentation may cite: no quick run, machine and versions said."""
    kept = orjson.loads(file.read_bytes())
    assert kept["official"] is True
    assert kept["machine"]["kernel"]
    assert kept["versions"]["syncbrok"]


def test_the_picture_of_growth_shows_what_was_measured() -> None:
    """docs/growth.svg is drawn from benchmarks/results/growth.json: ``python -m benchmarks.growth --draw``."""
    drawn = draw(orjson.loads((RESULTS / FILE).read_bytes()))
    assert PICTURE.read_text() == drawn
    assert ET.fromstring(drawn).tag.endswith("svg")
