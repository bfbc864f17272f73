"""The jobs on a real cluster: a standalone master and two workers that have Spark and no Syncbrok."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.broker.process import ROOT
from tests.support.log.journals import open_journal
from tests.support.pipeline.broker_log import RealLog
from tests.support.pipeline.served_log import TOKEN, served_log
from tests.support.pipeline.spark_cluster import SETTINGS, WORKERS, Cluster

pytestmark = pytest.mark.slow

DRIVER = """
import json, sys
from syncbrok.cli.main import group
from syncbrok.pipeline.session import session

wanted = json.loads(sys.argv[1])
spark = session(wanted["master"], "tests", wanted["settings"])

def where(_):
    import syncbrok
    yield syncbrok.__file__

print(json.dumps(spark.sparkContext.parallelize(range(8), 8).mapPartitions(where).distinct().collect()))
for arguments in wanted["commands"]:
    print("==", arguments[0], flush=True)
    group.main(["pipeline", *arguments, "--master", wanted["master"], "--quiet"], standalone_mode=False)
"""
"""The commands one after the other in one session: starting its executors takes seconds each time."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def run_on(cluster: Cluster, commands: list[list[str]], **more: str) -> list[str]:
    """The jobs with their commands: where the workers have Syncbrok from, and what each job said."""
    wanted = {"master": cluster.url, "settings": SETTINGS, "commands": commands}
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(wanted)],
        cwd=ROOT, env=cluster.environment() | more, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}\n{cluster.output()}"
    return ran.stdout.replace("== ", "\n== ").split("\n== ")


def test_jobs_run_on_a_cluster(cluster: Cluster, real_log: RealLog, tmp_path: Path) -> None:
    """Archive, report and audit with ``--master spark://...``: the workers, which have no Syncbrok, are sent it, and
    what comes out is what the broker says of its log."""
    storage, out = real_log.copied(tmp_path), tmp_path / "out"
    log = ["--storage", str(storage)]
    commands = [
        ["archive", *log, "--out", str(out / "archive"), "--json"],
        ["report", *log, "--archive", str(out / "archive"), "--out", str(out)],
        ["audit", *log, "--archive", str(out / "archive"), "--settled", "--json"],
    ]
    shipped, archived, reported, audited = run_on(cluster, commands)
    assert all(".zip/" in place for place in json.loads(shipped)), shipped
    messages = len(real_log.answers.messages)
    rows = json.loads(archived.partition("\n")[2])["written"]["messages"]["rows"]
    files = (out / "archive" / "messages").rglob("*.parquet")
    assert sum(pq.read_metadata(file).num_rows for file in files) == rows
    assert 0.9 * messages < rows < messages
    assert f"{messages:,} messages" in reported
    assert "</html>" in (out / "report.html").read_text()
    told = json.loads(audited.partition("\n")[2])
    assert (told["violations"], told["checked"]["messages"]) == (0, messages)
    done = cluster.state()["completedapps"] or cluster.state()["activeapps"]
    assert (done[0]["name"], cluster.state()["aliveworkers"]) == ("tests", WORKERS)


def test_every_job_runs_over_the_network(cluster: Cluster, real_log: RealLog, tmp_path: Path) -> None:
    """All five with ``--log``, by workers that see nothing of the broker's directory; what comes out is what the broker
    says of its log."""
    storage, out = real_log.copied(tmp_path), tmp_path / "out"
    journal = open_journal(storage)
    cluster.unseen.write_text(str(storage))
    looks = [cluster.python, "-c", f"open({str(next(storage.glob('*.log')))!r})"]
    sees = subprocess.run(looks, capture_output=True, text=True, check=False)
    assert "PermissionError" in sees.stderr
    try:
        with served_log(storage, journal) as url:
            over = ["--log", url]
            archived_in = ["--archive", str(out / "archive")]
            said = run_on(cluster, [
                ["archive", *over, "--out", str(out / "archive"), "--json"],
                ["audit", *over, "--json"],
                ["report", *over, *archived_in, "--out", str(out)],
                ["lineage", *over, "--out", str(out)],
                ["replay", *over, "--sql", "SELECT * FROM messages"],
            ], SYNCBROK_LOG_TOKEN=TOKEN)  # fmt: skip
    finally:
        journal.close()
        cluster.unseen.write_text("")
    messages = len(real_log.answers.messages)
    _, archived, audited, reported, lineage, replay = said
    assert 0.9 * messages < json.loads(archived.partition("\n")[2])["written"]["messages"]["rows"] < messages
    told = json.loads(audited.partition("\n")[2])
    assert (told["violations"], told["checked"]["messages"]) == (0, messages)
    assert f"{messages:,} messages" in reported
    assert (out / "lineage" / "tree.svg").exists(), lineage
    assert f"{messages - 1:,}" in replay, "all but the test of a subscriber"
    assert TOKEN not in "".join(said) + cluster.output()
