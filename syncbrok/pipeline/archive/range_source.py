"""The log from one sequence to another, as a data source of its own or in tasks that Spark meets no row of: what
archiving and the union with an archive read.

Fixed ends make a frame say the same whenever it is computed, however far the broker has come meanwhile; and where
retention has dropped a part that was there when the ends were chosen, that is an error and not fewer rows.
"""

from typing import Final
from weakref import WeakSet

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from syncbrok.model.errors import Gone
from syncbrok.pipeline import log_snapshot
from syncbrok.pipeline.decode import plan as decode_plan
from syncbrok.pipeline.decode.query import CarriedRule
from syncbrok.pipeline.log_place import LogPlace
from syncbrok.pipeline.log_snapshot import LogSnapshot
from syncbrok.pipeline.map_in_arrow import ArrowFunction, map_parts
from syncbrok.pipeline.source.data_source import SyncbrokDataSource, SyncbrokReader
from syncbrok.pipeline.source.options import ReadOptions, read_options
from syncbrok.pipeline.source.partition import LogPartition, freeze_what_is_imported

NAME: Final = "syncbrok_range"
_BOUNDS: Final = ("first", "last", "carriedBelow")
_registered: "WeakSet[SparkSession]" = WeakSet()


class RangeReader(SyncbrokReader):
    """Reads what stands from sequence ``first`` to ``last``. Carried messages are rows where their own sequence is
    below ``carried_below``, each by the last record of the range that carries it."""

    def __init__(self, options: ReadOptions, first: int, last: int, carried_below: int) -> None:
        super().__init__(options)
        self._first = first
        self._last = last
        self._carried_below = carried_below

    def partitions(self) -> list[InputPartition]:
        """Plan the tasks. Raises ``Gone`` where the log no longer has all of it, ``LogCorrupt`` and ``BadSetting``."""
        if self._last < self._first:
            return []
        log = self._range(log_snapshot.take_snapshot(self._options.place, through=self._last))
        rule, carrying = CarriedRule(), frozenset[int]()
        if self._carried_below:
            rule, carrying = decode_plan.carried(log, 0, self._carried_below, self._last)
        wanted = decode_plan.narrowed(log_snapshot.slices(log, self._first, self._last), self._options.query, carrying)
        parts = log_snapshot.share_out(wanted, self._options.partition_bytes, self._options.least)
        return [LogPartition(slices, log.uuid, rule) for slices in parts]

    def _range(self, log: LogSnapshot) -> LogSnapshot:
        if log.oldest > self._first or log.durable < self._last:
            raise Gone(
                f"{log.place} has sequences {log.oldest} to {log.durable}, and no longer all of {self._first} to "
                f"{self._last}: retention has dropped some since this reading was begun. Read again; what was archived "
                "meanwhile is in the archive",
                first=self._first,
                last=self._last,
            )
        within = [one for one in log.segments if one.last >= self._first and one.base <= self._last]
        return log._replace(segments=tuple(within))


class RangeDataSource(SyncbrokDataSource):
    """The format of log ranges, with the options of ``syncbrok`` and ``first``, ``last`` and ``carriedBelow``."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._first, self._last, self._carried_below = (int(self.options.pop(name)) for name in _BOUNDS)

    def reader(self, schema: StructType) -> DataSourceReader:
        freeze_what_is_imported()
        options = read_options(self.options, schema.fields)
        return RangeReader(options, self._first, self._last, self._carried_below)


class LogRange:
    """Rows of ``kind`` whose records have sequences from ``first`` to ``last``. ``options`` are the source's, except
    that no named columns means all of them. Messages with an own sequence below ``carried_below`` are taken from their
    carried record in this range."""

    def __init__(
        self,
        spark: SparkSession,
        storage: str | LogPlace,
        kind: str,
        first: int,
        last: int,
        carried_below: int = 0,
        **options: str,
    ) -> None:
        self._spark = spark
        place = log_snapshot.place_at(storage) if isinstance(storage, str) else storage
        self._bounds = (first, last, carried_below)
        self._options = {"columns": "all", "kind": kind} | options | place.options()

    def frame(self) -> DataFrame:
        """The rows as a data frame.

        Filters are not handed down: Spark 4.3 keeps one reader for a frame that stands twice in a query, and a filter
        over the one half would be handed to it for both."""
        if self._spark not in _registered:
            self._spark.dataSource.register(RangeDataSource)
            _registered.add(self._spark)
        bounds = dict(zip(_BOUNDS, map(str, self._bounds), strict=True))
        return self._spark.read.format(NAME).options(**self._options | bounds).load()

    def mapInArrow(self, func: ArrowFunction, schema: str) -> DataFrame:  # noqa: N802  # as data frames have it
        """The result of ``func`` on these rows, in ``schema``. ``func`` runs in the tasks that read the rows and only
        its result becomes rows of Spark, where a value costs more than its decoding. The work of each task is planned
        now. Raises ``Gone``, ``LogCorrupt`` and ``BadSetting``."""
        reader = RangeReader(read_options(self._options), *self._bounds)
        return map_parts(self._spark, reader.partitions(), reader.read, func, schema)
