"""A ``SpaceReport`` as Prometheus metrics. Nothing is counted here: each scrape shows the report of the moment."""

from collections.abc import Collection, Generator, Iterator, Mapping
from operator import add
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from syncbrok.frontends.over_http.resources.shown_labels import Label, Ranked, ShownLabels
from syncbrok.model import limits
from syncbrok.model.message import BacklogBound
from syncbrok.model.names import QueueName
from syncbrok.space.reports import Histogram, QueueReport, SpaceReport, SubscriberReport


class MetricLabels:
    """The labels that are shown, from one scrape to the next."""

    __slots__ = ("queues", "subscribers")

    def __init__(self) -> None:
        kept_us = int(limits.metrics_named_s * 1e6)
        self.subscribers = ShownLabels(limits.metrics_named_max, kept_us)
        self.queues = ShownLabels(limits.metrics_named_max, kept_us)
        """of histograms; other figures each queue has"""


def exposition(
    report: SpaceReport,
    answers: Mapping[int, int],
    labels: MetricLabels,
    refused: Mapping[str, int] = {},
    oldest_us: Mapping[QueueName, int] = {},
) -> Generator[None, None, bytes]:
    """The text format, version 0.0.4, in steps of some milliseconds. ``answers``: HTTP answers given, by status;
    ``labels``: the same object at each scrape; ``refused``: requests that were refused for their token, by why;
    ``oldest_us``: see ``View``.

    What there is one of for each queue or subscriber is written here: thousands of objects for ``prometheus_client`` to
    write held the event loop up."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_MetricsSnapshot(report, answers, refused))
    parts = [generate_latest(registry)]
    yield
    ranked: list[Ranked] = []
    for at, one in enumerate(report.subscribers):
        if at % _STEP == 0:
            yield
        ranked.append(Ranked((one.queue, one.id), one.queue, one.backlog, (one.delivered, one.failed)))
    named = yield from labels.subscribers.choose(ranked, report.time_us)
    others = yield from _others(report, named)
    subscribers = _subscribers(report, named, labels.subscribers, others)
    summed = len(report.subscribers) - len(named)
    parts.append(_head(*_SUMMED).encode() + f"{_SUMMED[0]} {float(summed)!r}\n".encode())
    for families, labelled in ((_QUEUE_FAMILIES, _queues(report, oldest_us)), (_SUBSCRIBER_FAMILIES, subscribers)):
        lines: list[list[str]] = [[_head(*family)] for family in families]
        names = [_sample_name(*family[:2]) for family in families]
        for at, (who, values) in enumerate(labelled):
            if at % _STEP == 0:
                yield
            for of_family, name, value in zip(lines, names, values, strict=True):
                of_family.append(f"{name}{who} {float(value)!r}\n")
        for of_family in lines:
            yield
            parts.append("".join(of_family).encode())
    parts += yield from _latencies(report, labels.queues)
    return b"".join(parts)


_STEP: Final = 100
_HISTOGRAMS: Final = 10
"""in a step: each is a dozen lines and more"""


def _head(name: str, kind: str, doc: str) -> str:
    whole = _sample_name(name, kind)
    return f"# HELP {whole} {doc}\n# TYPE {whole} {kind}\n"


def _sample_name(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


def _labels(**labels: str) -> str:
    written = [f'{name}="{_escaped(value)}"' for name, value in labels.items()]
    return "{" + ",".join(written) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class _MetricsSnapshot(Collector):
    def __init__(self, report: SpaceReport, answers: Mapping[int, int], refused: Mapping[str, int]) -> None:
        self._report = report
        self._answers = answers
        self._refused = refused

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from _space(self._report)
        yield from _budgets(self._report)
        yield from _log(self._report)
        yield from _deliveries(self._report)
        yield from _readers(self._report)
        answered = CounterMetricFamily("syncbrok_http_answers", "HTTP answers given.", labels=["status"])
        for status, count in sorted(self._answers.items()):
            answered.add_metric([str(status)], count)
        yield answered
        refused = CounterMetricFamily(
            "syncbrok_http_tokens_refused",
            "Requests refused for their token: none, a wrong one (unknown or expired), or one without the scope.",
            labels=["why"],
        )
        for why, count in sorted(self._refused.items()):
            refused.add_metric([why], count)
        yield refused


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
    yield _counter(
        "syncbrok_untaken_dropped",
        "How often retention ended what a subscriber that does not count had not taken.",
        report.untaken_dropped,
    )
    yield _counter("syncbrok_breakers_opened", "How often a circuit breaker has opened.", report.breakers_opened)
    yield _counter("syncbrok_spans_sent", "Spans that a collector of traces has taken.", report.spans_sent)
    yield _counter("syncbrok_spans_lost", "What would have become spans and was given up.", report.spans_lost)
    yield _counter("syncbrok_clock_steps", "How often the machine's clock was set.", report.clock_steps)
    yield _gauge("syncbrok_clock_step_seconds", "By how much the last time; negative: back.", report.clock_step_s)
    yield _histogram("syncbrok_loop_lag_seconds", "How late the event loop wakes who sleeps on it.", report.loop_lag)
    yield _counter("process_cpu_seconds", "CPU time of the process.", process.cpu_s)
    yield _gauge("process_resident_memory_bytes", "Resident memory.", process.resident_bytes)
    yield _gauge("process_open_fds", "Open files.", process.open_files)


def _budgets(report: SpaceReport) -> Iterator[Metric]:
    used = GaugeMetricFamily("syncbrok_budget_used", "Taken of what is shared out.", labels=["budget"])
    total = GaugeMetricFamily("syncbrok_budget_total", "What is shared out.", labels=["budget"])
    owners = GaugeMetricFamily("syncbrok_budget_owners", "How many have taken something.", labels=["budget"])
    for one in report.budgets:
        used.add_metric([one.name], one.used)
        total.add_metric([one.name], one.total)
        owners.add_metric([one.name], one.owners)
    yield from (used, total, owners)


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
    yield _gauge("syncbrok_commit_under_way_seconds", "For how long the present commit has gone on.", log.committing_s)
    yield _histogram("syncbrok_commit_seconds", "From handing a batch to the writer to its fsync.", log.commits)


def _readers(report: SpaceReport) -> Iterator[Metric]:
    """There are at most ``limits.log_readers_max``."""
    lag = GaugeMetricFamily("syncbrok_log_reader_lag", "Durable records that it has not read.", labels=["reader"])
    hold = GaugeMetricFamily(
        "syncbrok_log_reader_hold",
        "0 where retention does not wait for it, 1 while it does, 2 once it was silent for too long for that.",
        labels=["reader"],
    )
    silent = GaugeMetricFamily(
        "syncbrok_log_reader_silent_seconds", "Since it said how far it has come.", labels=["reader"]
    )
    for one in report.log_readers:
        lag.add_metric([one.name], one.lag)
        hold.add_metric([one.name], one.hold + (one.hold and not one.holding))
        silent.add_metric([one.name], max(0, report.time_us - one.heard_us) / 1e6)
    yield from (lag, hold, silent)


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


_QUEUE_FAMILIES: Final = (
    ("syncbrok_queue_accepted", "counter", "Messages accepted."),
    ("syncbrok_queue_waiting", "gauge", "Messages accepted and not ended."),
    ("syncbrok_queue_dead_letters", "gauge", "Dead letters."),
    ("syncbrok_queue_oldest_age_seconds", "gauge", "Age of the oldest message that has not ended; 0 for none."),
    ("syncbrok_queue_backlog_bytes", "gauge", "Content of what has not ended; 0 where max_backlog does not bound it."),
    ("syncbrok_queue_backlog_share", "gauge", "Of max_backlog, the fuller of its bounds: 1 refuses; 0 without it."),
)
_SUMMED: Final = ("syncbrok_subscribers_summed", "gauge", "Subscribers without a name in the labels.")
_SUBSCRIBER_FAMILIES: Final = (
    ("syncbrok_subscriber_delivered", "counter", "Attempts acknowledged."),
    ("syncbrok_subscriber_failed", "counter", "Attempts that failed."),
    ("syncbrok_subscriber_backlog", "gauge", "Messages beyond its cursor."),
    ("syncbrok_subscriber_in_flight", "gauge", "Attempts under way."),
    ("syncbrok_subscriber_retrying", "gauge", "Deliveries between attempts."),
    ("syncbrok_subscriber_active", "gauge", "0 where paused or disabled."),
    ("syncbrok_subscriber_disabled", "gauge", "1 where a 410 or failing for too long disabled it."),
    ("syncbrok_subscriber_breaker", "gauge", "0 closed, 1 open, 2 probing."),
    ("syncbrok_subscriber_failing_seconds", "gauge", "For how long every attempt has failed."),
)

_BREAKER: Final = {"closed": 0, "open": 1, "probing": 2}

Labelled = Iterator[tuple[str, tuple[float, ...]]]
"""labels, and a value for each family"""


def _queues(report: SpaceReport, oldest_us: Mapping[QueueName, int]) -> Labelled:
    for queue in report.queues:
        age_s = max(0, report.time_us - oldest_us.get(queue.name, report.time_us)) / 1e6
        yield (
            _labels(queue=queue.name),
            (
                queue.accepted,
                queue.waiting,
                queue.dead_letters,
                age_s,
                queue.backlog_bytes or 0,
                _share(queue),
            ),
        )


def _share(queue: QueueReport) -> float:
    """How full the backlog of the queue is."""
    bound = queue.settings.max_backlog or BacklogBound()
    of_messages = queue.backlog / bound.messages if bound.messages else 0.0
    return max(of_messages, (queue.backlog_bytes or 0) / bound.bytes if bound.bytes else 0.0)


_LATENCY: Final = ("syncbrok_queue_latency_seconds", "histogram", "From a message's acceptance to its delivery.")


def _latencies(report: SpaceReport, shown: ShownLabels) -> Generator[None, None, list[bytes]]:
    """A histogram for each queue that has a name here; one, without a name, of the others."""
    ranked: list[Ranked] = []
    bounds: list[str] = []
    for at, queue in enumerate(report.queues):
        if at % _STEP == 0:
            yield
        if (one := report.latencies.get(queue.name)) is not None:
            counts = (*(float(count) for _, count in one.buckets), float(one.count), one.sum_s)
            ranked.append(Ranked((queue.name,), "", queue.waiting, counts))
            bounds = [repr(bound) for bound, _ in one.buckets]
    yield
    named = yield from shown.choose(ranked, report.time_us)
    samples = [(one.label[0], one.counts) for one in ranked if one.label in named]
    if rest := shown.rest(""):
        samples.append(("", rest))
    parts = [_head(*_LATENCY).encode()]
    for at in range(0, len(samples), _HISTOGRAMS):
        yield
        lines = [_histogram_lines(name, bounds, counts) for name, counts in samples[at : at + _HISTOGRAMS]]
        parts.append("".join(lines).encode())
    return parts


def _histogram_lines(queue: str, bounds: list[str], counts: tuple[float, ...]) -> str:
    """``counts``: up to each bound, in all, and the sum of what was observed."""
    label, name = f'queue="{_escaped(queue)}"', _LATENCY[0]
    buckets = zip((*bounds, "+Inf"), counts[:-1], strict=True)
    lines = [f'{name}_bucket{{{label},le="{bound}"}} {count!r}\n' for bound, count in buckets]
    return "".join(lines) + f"{name}_count{{{label}}} {counts[-2]!r}\n{name}_sum{{{label}}} {counts[-1]!r}\n"


def _subscribers(
    report: SpaceReport, named: Collection[Label], shown: ShownLabels, others: Mapping[QueueName, "_Together"]
) -> Labelled:
    """Series of those in ``named``; and one, without a name, of the others of each queue together. No subscriber can be
    without."""
    for one in report.subscribers:
        if (one.queue, one.id) in named:
            gauges = _gauges(one, report.time_us)
            yield _labels(queue=one.queue, subscriber=one.id), (one.delivered, one.failed, *gauges)
    for queue in report.queues:
        if counts := shown.rest(queue.name):
            yield _labels(queue=queue.name, subscriber=""), (*counts, *others.get(queue.name, _Together()).gauges)


def _others(report: SpaceReport, named: Collection[Label]) -> Generator[None, None, Mapping[QueueName, "_Together"]]:
    others: dict[QueueName, _Together] = {}
    for at, one in enumerate(report.subscribers):
        if at % _STEP == 0:
            yield
        if (one.queue, one.id) not in named:
            together = others.get(one.queue) or others.setdefault(one.queue, _Together())
            together.add(_gauges(one, report.time_us))
    return others


class _Together:
    """The gauges of some subscribers: their sums; where a sum means nothing, the worst."""

    __slots__ = ("gauges",)

    def __init__(self) -> None:
        self.gauges: tuple[float, ...] = (0.0,) * 7

    def add(self, gauges: tuple[float, ...]) -> None:
        sums = map(add, self.gauges[:5], gauges[:5])
        breaker = min(filter(None, (self.gauges[5], gauges[5])), default=0.0)  # an open one is worse than a probing one
        failing_s = max(self.gauges[6], gauges[6])
        self.gauges = (*sums, breaker, failing_s)


def _gauges(one: SubscriberReport, now_us: int) -> tuple[float, ...]:
    since_us = one.failing_since_us
    failing_s = max(0, now_us - since_us) / 1e6 if since_us else 0
    states = (one.state == "active", one.state == "disabled")
    return (one.backlog, one.in_flight, one.retrying, *states, _BREAKER[one.breaker], failing_s)
