"""The text of ``/metrics`` (syncbrok/frontends/over_http/resources/metrics.py): whoever scrapes reads what there is."""

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from syncbrok.frontends.over_http.requests.time_slices import at_once
from syncbrok.frontends.over_http.resources.metrics import MetricLabels, exposition
from syncbrok.model import limits
from syncbrok.model.message import QueueSettings, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.space.reports import Histogram, QueueReport, SubscriberReport
from tests.support.space.fake_space import FakeSpace

NAMES = ("plain", 'quoted "q"', "back\\slash", "two\\nslashes", "é", "a{b=c},d")


def queue(name: str, number: int) -> QueueReport:
    return QueueReport(QueueName(name), QueueSettings(), 1, 9, number, 0, number + 1, number + 2, 0, 0, 0)


def subscriber(name: str, number: int) -> SubscriberReport:
    return SubscriberReport(
        queue=QueueName(name),
        id=SubscriberId(f"s{number}"),
        settings=SubscriberSettings("http://h/"),
        since=1,
        state="active" if number % 2 else "paused",
        cursor=0,
        backlog=number,
        in_flight=10 + number,
        retrying=20 + number,
        dead_letters=0,
        delivered=30 + number,
        failed=40 + number,
        last_status=0,
        last_reason="",
        last_attempt_us=0,
        failing_since_us=500_000 if number % 2 else 0,
        blocked=0,
    )


def test_every_queue_and_subscriber_is_told_as_it_is() -> None:
    """INTERFACES 3, ``/metrics``: names with whatever characters they may have, and the figures of each."""
    report = replace(
        FakeSpace().statistics(),
        queues=tuple(queue(name, number) for number, name in enumerate(NAMES)),
        subscribers=tuple(subscriber(name, number) for number, name in enumerate(NAMES)),
    )
    found: dict[str, dict[tuple[str, ...], float]] = {}
    kinds: dict[str, str] = {}
    for family in text_string_to_metric_families(at_once(exposition(report, {200: 3}, MetricLabels())).decode()):
        kinds[family.name] = family.type
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    numbers = list(enumerate(NAMES))
    assert found["syncbrok_queue_accepted_total"] == {(name,): number + 2 for number, name in numbers}
    assert found["syncbrok_queue_waiting"] == {(name,): number for number, name in numbers}
    assert found["syncbrok_queue_dead_letters"] == {(name,): number + 1 for number, name in numbers}
    for name, base in (
        ("delivered_total", 30),
        ("failed_total", 40),
        ("backlog", 0),
        ("in_flight", 10),
        ("retrying", 20),
    ):
        told = found[f"syncbrok_subscriber_{name}"]
        assert told == {(queue, f"s{number}"): base + number for number, queue in numbers}
    assert list(found["syncbrok_subscriber_active"].values()) == [number % 2 for number, _ in numbers]
    assert list(found["syncbrok_subscriber_failing_seconds"].values()) == [1.5 * (number % 2) for number, _ in numbers]
    assert kinds["syncbrok_subscriber_delivered"] == "counter"
    assert kinds["syncbrok_queue_waiting"] == "gauge"
    assert found["syncbrok_subscribers_summed"] == {(): 0}
    assert found["syncbrok_http_answers_total"] == {("200",): 3}


def test_those_without_a_name_are_told_together() -> None:
    """INTERFACES 3, ``/metrics``: beyond 200 subscribers the others of a queue are one series without a name: their
    sums, and the worst of what cannot be summed. A sum by queue is that of all."""
    count = limits.metrics_named_max + 50
    report = replace(
        FakeSpace().statistics(),
        queues=(queue("q", 1), queue("few", 2)),
        subscribers=(
            replace(subscriber("few", 0), backlog=count),
            *(replace(subscriber("q", number), queue=QueueName("q")) for number in range(1, count)),
        ),
    )
    report = replace(
        report,
        subscribers=(
            *report.subscribers[:10],
            *(replace(one, breaker="probing", state="disabled") for one in report.subscribers[10:13]),
            replace(report.subscribers[13], breaker="open"),
            *report.subscribers[14:],
        ),
    )
    labels = MetricLabels()
    at_once(exposition(report, {}, labels))
    grown = tuple(replace(one, delivered=one.delivered + 2, failed=one.failed + 3) for one in report.subscribers)
    text = at_once(exposition(replace(report, subscribers=grown), {}, labels)).decode()
    told: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("syncbrok_subscriber_") and sample.labels["queue"] == "q":
                told.setdefault(sample.name, {})[sample.labels["subscriber"]] = sample.value
    others = [one for one in report.subscribers[1:] if one.id not in told["syncbrok_subscriber_backlog"]]
    assert len(others) == 50
    assert {one.backlog for one in others} == {*range(1, 51)}
    together = {name: values[""] for name, values in told.items()}
    assert together == {
        "syncbrok_subscriber_delivered_total": 100,
        "syncbrok_subscriber_failed_total": 150,
        "syncbrok_subscriber_backlog": sum(range(51)),
        "syncbrok_subscriber_in_flight": 500 + sum(range(51)),
        "syncbrok_subscriber_retrying": 1_000 + sum(range(51)),
        "syncbrok_subscriber_active": sum(one.state == "active" for one in others),
        "syncbrok_subscriber_disabled": 3,
        "syncbrok_subscriber_breaker": 1,
        "syncbrok_subscriber_failing_seconds": 1.5,
    }
    assert sum(told["syncbrok_subscriber_backlog"].values()) == sum(range(count))
    assert 'queue="few",subscriber=""' not in text
    assert "\nsyncbrok_subscribers_summed 50.0\n" in text


def test_a_queue_tells_age_and_latencies() -> None:
    """INTERFACES 3, ``/metrics``: the age of what waits longest, 0 where nothing does; a histogram of how long
    deliveries took; how late the loop is. Beyond 200 queues the histograms of the others are one, which never falls."""
    count = limits.metrics_named_max + 30
    queues = tuple(queue(f"q{number:03}", number) for number in range(count))

    def latency(number: int, more: int = 0) -> Histogram:
        return Histogram(((0.5, number + more), (1.0, 2 * number + more)), 3 * number + more, number / 2, 9.0)

    lag = Histogram(((0.001, 7), (0.01, 9)), 10, 0.5, 0.3)
    report = replace(FakeSpace().statistics(), queues=queues, loop_lag=lag)
    first = {one.name: latency(number) for number, one in enumerate(queues)}
    then = {one.name: latency(number, 2) for number, one in enumerate(queues)}
    labels, oldest_us = MetricLabels(), {queues[3].name: report.time_us - 1_500_000}
    at_once(exposition(replace(report, latencies=first), {}, labels, {}, oldest_us))
    text = at_once(exposition(replace(report, latencies=then), {}, labels, {}, oldest_us)).decode()
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    ages = {key[1]: value for key, value in found.items() if key[0] == "syncbrok_queue_oldest_age_seconds"}
    assert ages == {one.name: 1.5 * (one is queues[3]) for one in queues}
    name = "syncbrok_queue_latency_seconds"
    named = {key[1] for key in found if key[0] == f"{name}_count"}
    assert named == {"", *(one.name for one in queues[30:])}
    last = f"q{count - 1}"
    told = [found[f"{name}_bucket", last, bound] for bound in ("0.5", "1.0", "+Inf")]
    assert told == [count - 1 + 2, 2 * (count - 1) + 2, 3 * (count - 1) + 2]
    assert found[f"{name}_sum", last] == (count - 1) / 2
    assert [found[f"{name}_bucket", "", bound] for bound in ("0.5", "1.0", "+Inf")] == [60, 60, 60]
    assert (found[f"{name}_count", ""], found[f"{name}_sum", ""]) == (60, 0)
    assert [found["syncbrok_loop_lag_seconds_bucket", bound] for bound in ("0.001", "0.01", "+Inf")] == [7, 9, 10]
