"""Errors of Spark in words that help. The texts are those Spark made, shortened."""

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession

from syncbrok.pipeline.spark_errors import ErrorSummary, explained, is_from_spark

IN_A_WORKER = """An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/venv/syncbrok/pipeline/decode.py", line 40, in read
    1 / 0
    ~~^~~
ZeroDivisionError: division by zero

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/venv/syncbrok/pipeline/source.py", line 29, in read
    raise LogCorrupt("damaged")
syncbrok.model.errors.LogCorrupt: 00000001.log is damaged at byte 7:
  a checksum differs
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1097)
\tat org.apache.spark.InterruptibleIterator.hasNext(InterruptibleIterator.scala:37)
"""
IN_THE_JVM = """An error occurred while calling o128.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times:
\tat org.apache.hadoop.fs.FileSystem.create(FileSystem.java:1234)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:4560)
Caused by: java.io.IOException: Mkdirs failed to create file:/proc/x (exists=false)
\tat org.apache.hadoop.fs.ChecksumFileSystem.create(ChecksumFileSystem.java:774)
\t... 1 more
"""
OF_A_STREAM = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Traceback (most recent call last):
  File "/venv/jobs.py", line 3, in copy
    raise ValueError("no")
ValueError: no
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 1, runId = 2]
"""
OF_SQL = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `foo` cannot be resolved. Did you mean one of \
the following? [`id`]. SQLSTATE: 42703; line 1 pos 7;
'Project ['foo]
+- Range (0, 3, step=1)
"""
SYNTAX = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. SQLSTATE: 42601 (line 1, pos 0)

== SQL ==
selec foo
^^^
"""


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (IN_A_WORKER, ErrorSummary("LogCorrupt", "00000001.log is damaged at byte 7:\n  a checksum differs")),
        (IN_THE_JVM, ErrorSummary("IOException", "IOException: Mkdirs failed to create file:/proc/x (exists=false)")),
        (OF_A_STREAM, ErrorSummary("ValueError", "ValueError: no")),
        ("java.lang.OutOfMemoryError", ErrorSummary("OutOfMemoryError", "OutOfMemoryError")),
    ],
)
def test_the_error_that_matters_is_found_in_a_hundred_lines(text: str, failure: ErrorSummary) -> None:
    """What was raised first, without stacks, states and plans; what Syncbrok itself raised stands without its class."""
    assert explained(Exception(text)) == failure


def test_sql_that_is_wrong_is_shown_where_it_is_wrong() -> None:
    """Spark's word and its mark under the query; not the plan."""
    unresolved = explained(Exception(OF_SQL)).message
    assert unresolved.startswith("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `foo`")
    assert unresolved.endswith("line 1 pos 7")
    assert explained(Exception(SYNTAX)).message.endswith("== SQL ==\nselec foo\n^^^")


def test_a_java_that_has_gone_is_said_to_have_gone() -> None:
    """A JVM that the system ended says nothing itself."""
    assert "spark.driver.memory" in explained(Py4JNetworkError("Answer from Java side is empty")).message
    assert is_from_spark(ConnectionRefusedError())
    assert not is_from_spark(ValueError())


def test_what_spark_raises_today_is_understood(spark: SparkSession) -> None:
    """A mistake in an option and one in SQL, as this version of Spark words them."""
    with pytest.raises(AnalysisException) as refused:
        spark.read.format("syncbrok").option("kind", "letters").load("/nowhere").count()
    found = explained(refused.value)
    assert found.kind == "BadSetting"
    assert "letters" in found.message
    assert "\n" not in found.message
    with pytest.raises(AnalysisException) as refused:
        spark.sql("select foo from range(3)")
    assert explained(refused.value).message.endswith("line 1 pos 7")
    with pytest.raises(PythonException) as failed:
        spark.range(1).mapInArrow(lambda batches: [1 // 0 for _ in batches], "id long").collect()  # type: ignore[arg-type, return-value]
    assert explained(failed.value).message.startswith("ZeroDivisionError: integer division")
