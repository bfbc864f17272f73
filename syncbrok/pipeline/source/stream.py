"""The log as a stream of Spark: follows what a broker writes, trigger by trigger.

Options beside those of a batch (``source``): ``startingSequence`` (``earliest``, the default, ``latest``, or a
sequence) or ``startingTime`` (the first record since then), both for a new query only, ``endingSequence`` (the last
that is read), ``maxBytesPerTrigger`` (512 MiB), ``maxRecordsPerTrigger`` (records of the log of any kind),
``failOnDataLoss`` (true: what retention dropped unread is an error; false: the stream goes on behind it), ``reader``
(over ``url``: a name under which the broker is told how far the stream has come) and ``hold`` (retention waits for it).
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from syncbrok.pipeline import log_snapshot
from syncbrok.pipeline.broker_log import BrokerLog
from syncbrok.pipeline.decode.plan import carried, narrowed
from syncbrok.pipeline.decode.query import CarriedRule
from syncbrok.pipeline.log_snapshot import LogSnapshot
from syncbrok.pipeline.source import stream_position
from syncbrok.pipeline.source.options import StreamOptions
from syncbrok.pipeline.source.partition import LogPartition, read_partition
from syncbrok.pipeline.source.place_reporter import PlaceReporter
from syncbrok.pipeline.source.stream_position import StreamPosition


class SyncbrokStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a log. The last snapshot is kept, so that the next one opens only what is new."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._log: LogSnapshot | None = None
        self._target: int | None = None
        self._reporter: PlaceReporter | None = None
        if options.reader and isinstance(place := options.read.place, BrokerLog):
            self._reporter = PlaceReporter(place, options.reader, options.hold)

    # -- where -------------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """The position at which a new query begins."""
        log, starting = self._snapshot(), self._options.starting
        if self._options.starting_us is not None:
            return stream_position.at_time(log, self._options.starting_us).as_json()
        if starting == "earliest":
            return stream_position.earliest(log).as_json()
        if starting == "latest":
            return stream_position.latest(log).as_json()
        return stream_position.at_sequence(log, int(starting)).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        records_max = self._options.records_max
        return ReadMaxBytes(self._options.bytes_max) if records_max is None else ReadMaxRows(records_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """End the stream at what is durable now: nothing that comes later is read."""
        self._target = self._snapshot().durable

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """The end of the next trigger. Raises ``Gone``, ``BadSetting`` and ``LogCorrupt``."""
        here = StreamPosition.of_json(start)
        log = self._snapshot(here.next - 1)
        self._check(here, log)
        if self._reporter is not None:  # Spark asks for the next trigger once all up to here is in the sink
            self._reporter.report(here.next - 1)
        bytes_max, records_max = self._limits(limit)
        through = log.durable if self._target is None else self._target
        through = through if self._options.ending is None else min(through, self._options.ending)
        end = stream_position.forward(here, log, bytes_max=bytes_max, records_max=records_max, through=through)
        return end.as_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        return None if self._log is None else stream_position.latest(self._log).as_json()

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        if isinstance(limit, ReadAllAvailable):
            return None, None
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes_max
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.records_max
        return bytes_max, records_max

    # -- what --------------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The records between two positions, shared out. Raises as ``latestOffset``."""
        here, there = StreamPosition.of_json(start), StreamPosition.of_json(end)
        log = self._snapshot(there.next - 1)
        self._check(here, log)
        stream_position.check_reaches(there, log)
        if there.next <= here.next:
            return []
        read, query = self._options.read, self._options.read.query
        parts = [
            one._replace(hint=stream_position.hint(here, one.segment))
            for one in log_snapshot.slices(log, here.next, there.next - 1)
        ]
        rule, carrying = CarriedRule(), frozenset[int]()
        if query.kind == "messages" and there.carried_through >= here.next:
            rule, carrying = carried(log, there.carried_low, there.carried_below, there.carried_through)
        packed = log_snapshot.share_out(narrowed(parts, query, carrying), read.partition_bytes, read.least)
        return [LogPartition(slices, log.uuid, rule, with_log=read.with_log) for slices in packed]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options.read.query)

    def _snapshot(self, through: int = 0) -> LogSnapshot:
        self._log = log_snapshot.take_snapshot(self._options.read.place, self._log, through)
        return self._log

    def _check(self, here: StreamPosition, log: LogSnapshot) -> None:
        stream_position.check(here, log, fail_on_data_loss=self._options.fail_on_data_loss)
