"""``syncbrok pipeline``: the group, what all jobs take, how they fail."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from syncbrok.cli.exits import LOG_CORRUPT, CommandFailed
from syncbrok.cli.main import group
from syncbrok.cli.pipeline.session import SessionOptions, job_session, readable_errors, session_options
from syncbrok.cli.show import moment
from syncbrok.log.segments.segment import segment_bases
from syncbrok.model.errors import BadSetting
from syncbrok.model.units import render_time
from syncbrok.pipeline.archive.commit import AnotherLog
from syncbrok.pipeline.archive.job import archive
from syncbrok.pipeline.log_and_archive import LogAndArchive
from syncbrok.pipeline.session import active
from tests.support.broker.process import BrokerProcess
from tests.support.pipeline.archive_log import WrittenLog
from tests.support.pipeline.served_log import NARROW, TOKEN, served_log

ROOT = Path(__file__).parents[2]
JOBS = ("archive", "report", "lineage", "audit", "replay")
_SQL = {"replay": ["--sql", "SELECT * FROM messages"]}


def run(arguments: list[str], command: click.Command = group) -> Result:
    return CliRunner().invoke(command, arguments)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with one message in it, to be read only."""
    written = tmp_path_factory.mktemp("one-message") / "storage"
    with BrokerProcess(written, queues="queues: {orders: {}}\n") as broker:
        broker.request("POST", "/v1/queues/orders/messages", b"one")
        broker.terminate()
    return written


@click.command()
@click.option("--fail", default="")
@session_options
def probe(options: SessionOptions, fail: str) -> None:
    """A job that says what it was told and counts messages, or fails in the way asked for."""
    with job_session(options, "probe") as job:
        job.step("counting")
        read = job.spark.read.format("syncbrok")
        if fail == "option":
            read.option("kind", fail).load(str(options.storage)).count()
        if fail == "usage":
            raise click.UsageError("mine")
        if fail == "defect":
            raise ZeroDivisionError
        click.echo(f"{read.load(str(options.storage)).count()} {options.out} {options.out_or('here')}")


def test_every_job_says_what_it_takes() -> None:
    """The group lists the jobs; each takes the same options for its log, its output and its Spark."""
    listed = run(["pipeline", "--help"])
    assert listed.exit_code == 0
    for job in JOBS:
        assert f"  {job} " in listed.output
        told = run(["pipeline", job, "--help"])
        assert told.exit_code == 0, told.output
        for flag in ("--storage", "--log", "--log-token", "--log-ca", "--out", "--master", "--conf", "--quiet"):
            assert flag in told.output


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("hdfs://name:8020/a", "hdfs://name:8020/a"),
        ("hdfs:/a", "hdfs:/a"),
        ("a:b", str(Path("a:b").absolute())),
    ],
)
def test_out_is_a_path_or_a_url(given: str, where: str, tmp_path: Path) -> None:
    """A file URL is the path it names, with one slash or three; other URLs go to Spark as they are; all else is a path,
    absolute from here on."""

    @click.command()
    @session_options
    def told(options: SessionOptions) -> None:
        click.echo(f"{options.out} {options.little}")

    (tmp_path / f"{1:020}.log").touch()
    assert run(["--storage", str(tmp_path), "--out", given], told).output == f"{where} True\n"


def test_the_help_of_the_group_needs_no_spark() -> None:
    """``--help`` starts at once: nothing of the extra is imported for it."""
    code = (
        "import sys\nfrom syncbrok.cli.main import main\nsys.argv[1:] = ['pipeline', '--help']\n"
        "try: main()\nfinally: print(*sorted({'pyspark', 'pyarrow', 'pandas', 'matplotlib'} & sys.modules.keys()))"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == ""


def test_without_the_extra_a_job_says_what_to_install(storage: Path) -> None:
    """Syncbrok alone, without syncbrok[spark]: one sentence, what to do, exit code 1; the same for each job."""
    code = (
        "import sys\nfor name in ('pyspark', 'py4j', 'pyarrow', 'pandas'): sys.modules[name] = None\n"
        "from syncbrok.cli.main import main\nargv = sys.argv\n"
        "for job in argv[3:]:\n"
        "    sys.argv = ['syncbrok', 'pipeline', job, *argv[1:3]]\n"
        "    try: main()\n"
        "    except SystemExit as end: print(f'ended {job} {end.code}', file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "--storage", str(storage), *JOBS]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    said = ran.stderr
    for job in JOBS:
        told, ended, said = said.partition(f"ended {job} 1\n")
        assert ended, ran.stderr
        assert "which is not installed\n  pip install 'syncbrok[spark]'" in told
    assert (said, "Traceback" in ran.stderr) == ("", False)


def test_a_job_runs_in_the_session_that_is_there(spark: SparkSession, storage: Path, tmp_path: Path) -> None:
    """What was said reaches the job, paths absolute (workers have another directory); the session is left running."""
    where = os.path.relpath(tmp_path / "out")
    told = run(["--storage", os.path.relpath(storage), "--out", where], probe)
    assert (told.exit_code, told.output) == (0, f"1 {tmp_path / 'out'} {tmp_path / 'out'}\n")
    told = run(["--storage", str(storage), "--out", "s3a://bucket/x", "--quiet"], probe)
    assert told.output == "1 s3a://bucket/x s3a://bucket/x\n"
    told = run(["--storage", str(storage)], probe)
    assert told.output == f"1 None {Path('here').resolve()}\n"
    assert active() is not None
    assert spark.range(3).count() == 3


@pytest.mark.parametrize("job", [job for job in JOBS if job != "archive"])
def test_a_job_says_where_the_log_begins(job: str, spark: SparkSession, tmp_path: Path) -> None:
    """Over a log that retention has shortened each job says where the log begins and how to read the rest."""
    storage = tmp_path / "log"
    log = WrittenLog(storage)
    log.fill(2)
    log.drop(1, archived=False)
    log.close()
    first = segment_bases(storage)[0]
    wanted = f"the log begins at sequence {first}: retention dropped what came before. --archive DIR reads it"
    arguments = ["pipeline", job, "--storage", str(storage), "--out", str(tmp_path / "out"), *_SQL.get(job, [])]
    assert wanted in run(arguments).stderr


def test_what_a_job_cannot_read_is_told(spark: SparkSession, tmp_path: Path) -> None:
    """Where nothing is missing nothing is said; with an archive what even that has not."""
    storage = tmp_path / "log"
    log = WrittenLog(storage)
    log.fill(2)
    arguments = ["pipeline", "report", "--storage", str(storage), "--out", str(tmp_path / "out")]
    assert "sequence" not in run(arguments).stderr
    log.drop(1, archived=False)
    first = segment_bases(storage)[0]
    archive(spark, storage, str(tmp_path / "archive"))
    log.drop(1)
    log.close()
    told = run([*arguments, "--archive", str(tmp_path / "archive")]).stderr
    assert f"sequences 1 to {first - 1} are neither in the archive nor in the log\n" in told
    assert "the log begins" not in told


def test_the_documented_commands_work_before_anything_is_sealed(
    spark: SparkSession, storage: Path, tmp_path: Path
) -> None:
    """On a log that fills no segment the archive is empty, which is said; who reads log and archive finds everything in
    the log. It is that log's archive already: no other may use it, and alone it cannot be read. A mistyped path is
    none."""
    storage = Path(shutil.copytree(storage, tmp_path / "storage"))
    out = str(tmp_path / "archive")
    for _ in range(2):
        told = run(["pipeline", "archive", "-q", "--storage", str(storage), "--out", out])
        assert told.exit_code == 0, told.output
        assert "nothing is sealed yet, so the archive is empty" in told.output
        assert "nothing new" not in told.output
    replay = ["pipeline", "replay", "-q", "--storage", str(storage), *_SQL["replay"], "--archive"]
    told = run([*replay, out])
    assert told.exit_code == 0, told.output
    assert "messages  1\n" in told.stdout
    assert "neither" not in told.stderr
    assert "there is no archive at" in run([*replay, f"{out}x"]).stderr
    with pytest.raises(BadSetting, match="is empty: nothing of log"):
        LogAndArchive(spark, None, out)
    other = WrittenLog(tmp_path / "other")
    other.close()
    for use in (archive, LogAndArchive):
        with pytest.raises(AnotherLog, match="give each log"):
            use(spark, other.directory, out)


@pytest.mark.parametrize("job", JOBS)
def test_where_no_folder_can_be_made_is_told_at_once(job: str, storage: Path, tmp_path: Path) -> None:
    """A file where --out wants a folder: exit code 2 (1 is an audit's finding), nothing read, the file as it was."""
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    for scheme, below in product(("", "file:", "file://"), ("", "/deeper/still")):
        told = run(["pipeline", job, "--storage", str(storage), "--out", f"{scheme}{file}{below}"])
        assert (told.exit_code, told.stderr) == (
            2,
            f"syncbrok: --out {file}{below}: {file} is a file\n  give a directory; it is made where it is missing\n",
        )
    assert file.read_text() == "mine"


def test_a_mistake_on_the_command_line_is_told_before_spark_starts(tmp_path: Path) -> None:
    """No log there, a setting that is none: exit codes 3 and 2, and what was expected."""
    told = run(["--storage", str(tmp_path)], probe)
    assert (told.exit_code, told.stderr) == (
        3, f"syncbrok: there is no log in {tmp_path}\n  --storage says where it is\n",
    )  # fmt: skip
    (tmp_path / "00000000000000000001.log").write_bytes(b"")
    for setting in ("memory=1g", "spark.driver.memory"):
        told = run(["--storage", str(tmp_path), "--conf", setting], probe)
        assert told.exit_code == 2
        assert f"--conf: expected spark.NAME=VALUE, found '{setting}'" in told.stderr
    told = run(["--storage", str(tmp_path), "--master", "10.0.0.1:7077"], probe)
    assert told.exit_code == 2
    assert "--master: expected local, local[4]" in told.stderr
    assert "found '10.0.0.1:7077'" in told.stderr


def test_an_error_of_spark_is_one_message(spark: SparkSession, storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What went wrong and where to see more, not the stack of the JVM; with SYNCBROK_TRACE all of it. Other errors and
    the command's own are as they were."""
    monkeypatch.delenv("SYNCBROK_TRACE", raising=False)
    told = run(["--storage", str(storage), "--fail", "option"], probe)
    assert told.exit_code == 1
    lines = told.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("syncbrok: kind is 'option'")
    assert lines[1] == "  SYNCBROK_TRACE=1 shows everything Spark says"
    assert run(["--storage", str(storage), "--fail", "usage"], probe).exit_code == 2
    assert isinstance(run(["--storage", str(storage), "--fail", "defect"], probe).exception, ZeroDivisionError)
    monkeypatch.setenv("SYNCBROK_TRACE", "1")
    raised: Any = run(["--storage", str(storage), "--fail", "option"], probe).exception
    assert type(raised).__name__ == "AnalysisException"


def test_a_damaged_log_has_its_own_exit_code() -> None:
    """Found by a worker of Spark, it ends the command as it does everywhere else: with 65 (INTERFACES 1)."""
    raised = "Traceback (most recent call last):\n  File\nsyncbrok.model.errors.LogCorrupt: a.log is damaged at 7\n"
    with pytest.raises(CommandFailed, match=r"^a\.log is damaged at 7$") as failed, readable_errors():
        raise PySparkException(raised)
    assert failed.value.exit_code == LOG_CORRUPT


@pytest.fixture
def far_east() -> Iterator[None]:
    """A machine whose clock shows another time than UTC."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Asia/Kolkata"
    time.tzset()
    yield
    del os.environ["TZ"]
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


def test_times_are_utc_wherever_it_runs(spark: SparkSession, storage: Path, tmp_path: Path, far_east: None) -> None:
    """INTERFACES 3: times in answers are RFC 3339. What stands there with a Z is UTC, not the machine's own time, or
    whoever copies it into ``--since`` reads other hours."""
    row: Any = spark.read.format("syncbrok").load(str(storage)).selectExpr("unix_micros(time) AS us").first()
    accepted = moment(render_time(row.us))
    assert accepted is not None
    shown = run(["pipeline", "lineage", "--quiet", "--storage", str(storage), "--out", str(tmp_path / "out")])
    assert (shown.exit_code, accepted in shown.output) == (0, True), shown.output
    planned = run(["pipeline", "replay", "--quiet", "--storage", str(storage), "--sql", "SELECT * FROM messages"])
    assert (planned.exit_code, accepted in planned.output) == (0, True), planned.output


def test_a_job_reads_over_the_network(spark: SparkSession, log: WrittenLog, tmp_path: Path, monkeypatch: Any) -> None:
    """``--log URL`` in place of ``--storage``: the archive is that of the directory, nothing is noted for retention,
    which is said, and the audit proves both together. A wrong address, a token that does not do, and both places at
    once are told before Spark starts."""
    log.fill(2)
    log.publish(10)
    out = str(tmp_path / "archive")
    with served_log(log.directory, log.journal) as url:
        monkeypatch.setenv("SYNCBROK_LOG_TOKEN", TOKEN)
        done = run(["pipeline", "archive", "--quiet", "--log", url, "--out", out, "--json"])
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert (told["segments"], told["written"]["messages"]["rows"], told["noted"]) == (3, 80, 0)
        assert "nothing of it is noted for retention" in done.stderr
        beside = archive(spark, log.directory, out)
        assert (beside.segments, beside.noted) == (0, 3), "the same segments, and beside the log they are noted"
        again = run(["pipeline", "archive", "--quiet", "--log", url, "--out", out])
        assert "nothing new: all that is sealed is archived" in again.output, again.output
        proved = run(["pipeline", "audit", "--quiet", "--log", url, "--archive", out, "--json"])
        found = json.loads(proved.stdout)
        assert (found["storage"], found["checked"]["messages"]) == (url, 90), proved.output
        assert found["by_rule"].get("checksum", 0) == 0
        twice = run(["--log", url, "--storage", str(log.directory)], probe)
        assert (twice.exit_code, "--storage and --log are both given" in twice.stderr) == (2, True)
        monkeypatch.setenv("SYNCBROK_LOG_TOKEN", NARROW)
        refused = run(["--log", url], probe)
        assert (refused.exit_code, "read in all queues" in refused.stderr) == (2, True), refused.output
        assert NARROW not in refused.output
    odd = run(["--log", "ftp://broker"], probe)
    assert (odd.exit_code, "--log: url: expected the broker's" in odd.stderr) == (2, True)
