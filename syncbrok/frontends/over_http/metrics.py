"""A ``SpaceReport`` as Prometheus metrics. Nothing is counted here: each scrape shows the report of the moment."""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from syncbrok.space.reports import Histogram, SpaceReport


def exposition(report: SpaceReport, answers: Mapping[int, int]) -> bytes:
    """The text format, version 0.0.4. ``answers``: HTTP answers given, by status."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(report, answers))
    return generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, report: SpaceReport, answers: Mapping[int, int]) -> None:
        self._report = report
        self._answers = answers

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from _space(self._report)
        yield from _log(self._report)
        yield from _deliveries(self._report)
        yield from _queues(self._report)
        yield from _subscribers(self._report)
        answered = CounterMetricFamily("syncbrok_http_answers", "HTTP answers given.", labels=["status"])
        for status, count in sorted(self._answers.items()):
            answered.add_metric([str(status)], count)
        yield answered


def _gauge(name: str, doc: str, value: float) -> Metric:
    return GaugeMetricFamily(name, doc, value=value)


def _counter(name: str, doc: str, value: float) -> Metric:
    return CounterMetricFamily(name, doc, value=value)


def _space(report: SpaceReport) -> Iterator[Metric]:
    process, start = report.process, report.start
    yield InfoMetricFamily("syncbrok_build", "This broker.", {"version": process.version, "python": process.python})
    yield _gauge("syncbrok_ready", "1 while it serves.", report.state == "serving")
    yield _gauge("syncbrok_start_time_seconds", "When it started, Unix time.", start.started_us / 1e6)
    yield _gauge("syncbrok_recovery_seconds", "How long recovery took.", start.recovery_s)
    yield _gauge("syncbrok_recovery_records", "Facts replayed at the start.", start.records)
    yield _gauge("syncbrok_recovery_torn_bytes", "Cut off the end of the log at the start.", start.torn_bytes)
    yield _gauge("syncbrok_recovery_clean", "1 where the broker before closed its log.", start.clean)
    yield _gauge("syncbrok_waiters", "Publishers that wait for their message to end.", report.waiters)
    yield _gauge("syncbrok_listeners", "Open event streams.", report.listeners)
    yield _counter("syncbrok_clock_steps", "How often the machine's clock was set.", report.clock_steps)
    yield _gauge("syncbrok_clock_step_seconds", "By how much the last time; negative: back.", report.clock_step_s)
    yield _counter("process_cpu_seconds", "CPU time of the process.", process.cpu_s)
    yield _gauge("process_resident_memory_bytes", "Resident memory.", process.resident_bytes)
    yield _gauge("process_open_fds", "Open files.", process.open_files)


def _log(report: SpaceReport) -> Iterator[Metric]:
    log = report.log
    yield _gauge("syncbrok_log_sequence", "Of the last fact given out.", log.sequence)
    yield _gauge("syncbrok_log_durable_sequence", "Of the last fact fsynced.", log.durable_sequence)
    yield _gauge("syncbrok_log_segments", "Segments on disk.", log.segments)
    yield _gauge("syncbrok_log_bytes", "Bytes on disk.", log.bytes)
    yield _gauge("syncbrok_log_oldest_time_seconds", "Time of the first record kept, Unix time.", log.oldest_us / 1e6)
    yield _counter("syncbrok_log_records_written", "Records written.", log.records_written)
    yield _counter("syncbrok_log_bytes_written", "Bytes written.", log.bytes_written)
    yield _gauge("syncbrok_log_full", "1 while publishes are refused for want of room.", log.full)
    yield _gauge("syncbrok_log_failed", "1 once the log must not be used any more.", log.failed)
    yield _gauge("syncbrok_log_damaged_segments", "Sealed segments in which a checksum does not fit.", log.damaged)
    yield _gauge("syncbrok_log_damaged_records", "Records in them that cannot be read.", log.damaged_records)
    yield _histogram("syncbrok_commit_seconds", "From handing a batch to the writer to its fsync.", log.commits)


def _histogram(name: str, doc: str, histogram: Histogram) -> Metric:
    buckets = [(repr(bound), count) for bound, count in histogram.buckets]
    return HistogramMetricFamily(name, doc, buckets=[*buckets, ("+Inf", histogram.count)], sum_value=histogram.sum_s)


def _deliveries(report: SpaceReport) -> Iterator[Metric]:
    totals = report.deliveries
    yield _counter("syncbrok_delivered", "Attempts acknowledged.", totals.delivered)
    yield _counter("syncbrok_failed", "Attempts that failed.", totals.failed)
    yield _counter("syncbrok_dead", "Deliveries that ended dead.", totals.dead)
    yield _gauge("syncbrok_in_flight", "Attempts under way.", totals.in_flight)
    yield _gauge("syncbrok_retrying", "Deliveries between attempts.", totals.retrying)
    yield _gauge("syncbrok_waiting_messages", "Messages accepted and not ended.", totals.waiting)
    yield _gauge("syncbrok_dead_letters", "Dead letters.", totals.dead_letters)


def _queues(report: SpaceReport) -> Iterator[Metric]:
    accepted = CounterMetricFamily("syncbrok_queue_accepted", "Messages accepted.", labels=["queue"])
    waiting = GaugeMetricFamily("syncbrok_queue_waiting", "Messages accepted and not ended.", labels=["queue"])
    dead = GaugeMetricFamily("syncbrok_queue_dead_letters", "Dead letters.", labels=["queue"])
    for queue in report.queues:
        labels = [queue.name]
        accepted.add_metric(labels, queue.accepted)
        waiting.add_metric(labels, queue.waiting)
        dead.add_metric(labels, queue.dead_letters)
    yield from (accepted, waiting, dead)


def _subscribers(report: SpaceReport) -> Iterator[Metric]:
    names = ["queue", "subscriber"]
    delivered = CounterMetricFamily("syncbrok_subscriber_delivered", "Attempts acknowledged.", labels=names)
    failed = CounterMetricFamily("syncbrok_subscriber_failed", "Attempts that failed.", labels=names)
    backlog = GaugeMetricFamily("syncbrok_subscriber_backlog", "Messages beyond its cursor.", labels=names)
    in_flight = GaugeMetricFamily("syncbrok_subscriber_in_flight", "Attempts under way.", labels=names)
    retrying = GaugeMetricFamily("syncbrok_subscriber_retrying", "Deliveries between attempts.", labels=names)
    active = GaugeMetricFamily("syncbrok_subscriber_active", "0 where paused or disabled.", labels=names)
    failing = GaugeMetricFamily(
        "syncbrok_subscriber_failing_seconds", "For how long every attempt has failed.", labels=names
    )
    for one in report.subscribers:
        labels = [one.queue, one.id]
        delivered.add_metric(labels, one.delivered)
        failed.add_metric(labels, one.failed)
        backlog.add_metric(labels, one.backlog)
        in_flight.add_metric(labels, one.in_flight)
        retrying.add_metric(labels, one.retrying)
        active.add_metric(labels, one.state == "active")
        since_us = one.failing_since_us
        failing.add_metric(labels, max(0, report.time_us - since_us) / 1e6 if since_us else 0)
    yield from (delivered, failed, backlog, in_flight, retrying, active, failing)
