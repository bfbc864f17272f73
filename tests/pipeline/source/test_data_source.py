"""The log through Spark: what the source gives is what stands in the log, with types, filters and clear errors."""

import re
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import _parse_datatype_string

from syncbrok.log.segments import segment
from syncbrok.model.errors import BadSetting
from syncbrok.pipeline import log_snapshot, schema
from syncbrok.pipeline.log_place import LogDirectory
from syncbrok.pipeline.source.options import batch_options, read_options
from syncbrok.pipeline.spark_errors import explained
from tests.support.log.journals import open_journal, publish, roll
from tests.support.log.segment_files import flip, offsets
from tests.support.pipeline import expected_rows
from tests.support.pipeline.broker_log import RealLog


def load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("syncbrok").options(**options).load(str(path))


@pytest.mark.parametrize("kind", schema.KINDS)
def test_a_real_brokers_log_is_read_whole(spark: SparkSession, real_log: RealLog, kind: str) -> None:
    """Every row of every kind, with every column and its type, of a log that a broker wrote under load, failures and
    kill -9, is what decoding each record by itself says."""
    log = log_snapshot.take_snapshot(real_log.storage)
    found = list(expected_rows.records(real_log.storage, log.durable))
    wanted = {
        "messages": expected_rows.messages,
        "deliveries": expected_rows.deliveries,
        "facts": expected_rows.facts,
    }[kind](found)
    frame = load(spark, real_log.storage, kind=kind, columns="all", minPartitions="3", partitionBytes="200KiB")
    rows = [row for batch in frame.toArrow().to_batches() for row in expected_rows.plain(batch)]
    order = ("sequence", "position") if kind == "deliveries" else ("sequence",)
    expected_rows.assert_same(sorted(rows, key=lambda row: tuple(row[name] for name in order)), wanted)
    assert len(rows) > 1_000


def test_what_is_loaded_where_nothing_is_said(spark: SparkSession, real_log: RealLog) -> None:
    """A message has the eight columns that most want, with what all columns have in them; the other kinds have all."""
    eight = load(spark, real_log.storage)
    assert eight.columns == ["sequence", "queue", "id", "parents", "key", "headers", "time", "content"]
    everything = load(spark, real_log.storage, columns="all")
    assert everything.columns == [one.name for one in schema.MESSAGES]
    # Maps cannot be compared; as JSON they can.
    columns = [f"to_json({name})" if name == "headers" else name for name in eight.columns]
    rows = (sorted(map(repr, frame.selectExpr(*columns).collect())) for frame in (eight, everything))
    assert next(rows) == next(rows) != []
    for kind in ("deliveries", "facts"):
        assert load(spark, real_log.storage, kind=kind).columns == [one.name for one in schema.columns_of(kind)]


def test_columns_and_filters_give_the_same_rows(spark: SparkSession, real_log: RealLog) -> None:
    """Columns chosen, a queue, a time range: by options or by Spark. The first and the last sequence
    bound every kind whose rows stand in records."""
    whole = load(spark, real_log.storage)
    middle, last = whole.select(sf.median("sequence").cast("long"), sf.max("time").cast("string")).first()
    where = f"queue IN ('customers', 'cards') AND sequence >= {middle} AND time < timestamp '{last}' AND key IS NULL"
    wanted = sorted(whole.where(where).select("sequence", "queue", "key").collect())
    assert wanted
    for kind in schema.KINDS:
        cut = {"kind": kind, "startingSequence": str(middle), "endingSequence": str(middle + 5_000)}
        every = load(spark, real_log.storage, kind=kind).where(f"sequence BETWEEN {middle} AND {middle + 5_000}")
        assert load(spark, real_log.storage, **cut).count() == every.count() > 0
    until = whole.where(f"time = timestamp '{last}'").select(sf.unix_micros("time")).first()[0]
    chosen = load(
        spark, real_log.storage, columns="sequence,queue,key", queue="customers, cards", until=str(until / 1e6)
    )
    assert chosen.columns == ["sequence", "queue", "key"]
    assert sorted(chosen.where(f"sequence >= {middle} AND key IS NULL").collect()) == wanted
    given = spark.read.format("syncbrok").schema("queue string, sequence bigint").load(str(real_log.storage))
    assert given.count() == load(spark, real_log.storage, columns="sequence").count() == whole.count()


def test_damage_and_mistakes_are_named(spark: SparkSession, tmp_path: Path) -> None:
    """What is wrong, where, and what to do stands in the error that Spark shows. A message that is damaged is no error
    (RULES 28): it is missing."""
    journal = open_journal(tmp_path)
    publish(journal, 20)
    roll(journal)
    journal.close()
    path = segment.segment_path(tmp_path, 1)
    flip(path, offsets(path)[9] + 100)
    assert load(spark, tmp_path).count() == 19
    assert load(spark, tmp_path, verify="false").count() == 20
    flip(path, segment.SEGMENT_HEADER_BYTES + 20)
    with pytest.raises(PythonException, match=rf"{path.name}, offset 128, sequences 1 to 1: the segment's snapshot"):
        load(spark, tmp_path).collect()
    flip(path, segment.SEGMENT_HEADER_BYTES + 20)
    with pytest.raises(AnalysisException, match="is no directory; give the broker's storage directory"):
        load(spark, tmp_path / "nowhere").count()
    with pytest.raises(AnalysisException, match="there are sequence, time, queue"):
        load(spark, tmp_path, columns="content,size")
    for options, told in (
        ({"untill": "2026-01-01T00:00:00Z"}, "unknown options untill; the source has path, kind, columns"),
        ({"queue": "nope,q"}, rf"queue names nope, q, which {tmp_path} has not; it has none"),
        ({"startingSequence": "latest"}, "which is for a stream"),
    ):
        with pytest.raises(AnalysisException, match=told) as refused:
            load(spark, tmp_path, **options).count()
        assert "Traceback" not in str(refused.value)
        assert explained(refused.value).kind == "BadSetting"
        assert re.search(told, explained(refused.value).message)


def test_a_queue_that_is_not_there_is_refused(spark: SparkSession, real_log: RealLog) -> None:
    """A name that is mistyped would read nothing: the error has the queues there are. A deleted one was there."""
    for queue in real_log.answers.queues:
        load(spark, real_log.storage, queue=f'["{queue}"]', columns="sequence").count()
    with pytest.raises(AnalysisException, match=r"queue names custom, which .* has not; there are .*customers"):
        load(spark, real_log.storage, queue="custom,customers").count()


def test_a_table_says_which_view_works(spark: SparkSession, tmp_path: Path) -> None:
    """PIPELINE, SQL: Spark makes a table and hands its options to nobody; reading it says what to write instead, and
    that works."""
    journal = open_journal(tmp_path)
    publish(journal, 20)
    journal.close()
    spark.sql(f"CREATE TABLE letters USING syncbrok OPTIONS (path '{tmp_path}')")
    with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW name USING syncbrok OPTIONS"):
        spark.sql("SELECT * FROM letters").collect()
    spark.sql("DROP TABLE letters")
    spark.sql(f"CREATE TEMPORARY VIEW letters USING syncbrok OPTIONS (path '{tmp_path}', columns 'sequence')")
    assert spark.sql("SELECT count(*) FROM letters").first()[0] == 20
    spark.catalog.dropTempView("letters")


def test_options_of_a_reader_are_checked() -> None:
    """A name that no option has, or a value that it cannot have, is named with what there is; those that Spark adds to
    a table's are none of ours, and case does not matter."""
    with pytest.raises(BadSetting, match="factKinds has queue_sets; there are message, outcomes"):
        read_options({"path": "x", "kind": "facts", "factKinds": "gap,queue_sets"})
    with pytest.raises(BadSetting, match="factKinds is for kind facts, and the kind is messages"):
        read_options({"path": "x", "factKinds": "gap"})
    with pytest.raises(BadSetting, match="minPartitions is '64MiB'; it must be a whole number from 1 on"):
        read_options({"path": "x", "minPartitions": "64MiB"})
    with pytest.raises(BadSetting, match="pushdown is not there any more: Spark keeps filters"):
        read_options({"path": "x", "pushdown": "true"})
    read_options({"path": "x", "pushdown": "false"})
    told = "unknown options kafka.bootstrap.servers .here url., startingOffsets .here startingSequence., x; the source"
    with pytest.raises(BadSetting, match=told):
        read_options({"path": "x", "kafka.bootstrap.servers": "b:9092", "startingOffsets": "earliest", "x": "1"})
    for more, said in (
        ({"startingSequence": "latest"}, "is for a stream: a batch behind the log's end is empty"),
        ({"startingTime": "2026-01-01T00:00:00Z"}, "startingTime is for a stream; since bounds"),
        ({"kind": "states", "endingSequence": "4"}, "kind states follows from all of the log"),
        ({"endingSequence": "0"}, "endingSequence is '0'; it must be a whole number from 1 on"),
    ):
        with pytest.raises(BadSetting, match=said):
            batch_options({"path": "x", **more})
    with pytest.raises(BadSetting, match="queue is empty; leave it out for all"):
        read_options({"path": "x", "queue": " , "})
    for text in ("[x]", "[", "[]", '["a", 1]'):
        with pytest.raises(BadSetting, match="JSON list"):
            read_options({"path": "x", "queue": text})
    names = {" topic a , b": {"topic a", "b"}, '["a,b", "[c]", "d"]': {"a,b", "[c]", "d"}, '"q"': {'"q"'}}
    for text, queues in names.items():
        assert read_options({"path": "x", "queue": text}).query.queues == queues
    assert read_options(
        {"path": "x", "PATH": "x", "owner": "me", "option.kind": "facts", "Verify": "true"}
    ).place == LogDirectory("x")


def test_a_wrong_option_of_a_stream_is_told_when_it_is_loaded(spark: SparkSession, tmp_path: Path) -> None:
    """CONTRIBUTING, errors: what is wrong and what it must be; asked for later Spark buries it under an
    ``UnboundLocalError`` of its own."""
    open_journal(tmp_path).close()
    for name, value, said in (
        ("startingSequence", "0", "it must be earliest, latest or a sequence"),
        ("maxRecordsPerTrigger", "0", "it must be a whole number from 1 on"),
        ("failOnDataLoss", "yes", "it must be true or false"),
    ):
        with pytest.raises(AnalysisException, match=f"{name} is '{value}'; {said}"):
            spark.readStream.format("syncbrok").option(name, value).load(str(tmp_path))


def test_an_empty_log_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A log without a message is no error."""
    open_journal(tmp_path).close()
    assert load(spark, tmp_path).collect() == []


def test_types_are_the_same_for_arrow_and_spark() -> None:
    """Spark refuses batches whose types differ from those it was told."""
    for kind in (*schema.KINDS, *schema.DERIVED):
        columns = schema.columns_of(kind)
        told = _parse_datatype_string(schema.ddl(columns))
        assert to_arrow_schema(told, timezone="UTC").equals(schema.arrow_schema(columns))
