"""Brokers that are brought into bad states, one after the other, beside one that is well, under one Prometheus."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.alerts.bad_states import BAD_STATES, OF_THE_MACHINE, Stage, healthy
from tests.support.alerts.prometheus import ALERTS, Prometheus, shortened
from tests.support.polling import eventually_blocking

_HEALTHY = "healthy"
_EVERY_S = 0.05
"""between two messages to the broker that is well"""
_LASTS_S = 90.0


class Seen(NamedTuple):
    """By state how long its alert took, and what the machine lacks for it; what is wrong, in words."""

    after_s: dict[str, float]
    left_out: dict[str, str]
    wrong: list[str]


def watch(directory: Path, names: Sequence[str]) -> Seen:
    """Bring a broker into each of these states, with the alerts of ``config/``."""
    seen = Seen({}, {}, [])
    with Prometheus(directory / "prometheus", shortened(ALERTS.read_text())) as prometheus:
        with _under_traffic(Stage(directory / _HEALTHY, prometheus, _HEALTHY)):
            for name in names:
                if lacking := BAD_STATES[name].needs():
                    seen.left_out[name] = lacking
                    continue
                began_s = time.monotonic()
                wrong = _watched(prometheus, directory, name)
                seen.wrong.extend(wrong)
                if not wrong:
                    seen.after_s[name] = time.monotonic() - began_s
            wrongly = prometheus.fired(_HEALTHY) - OF_THE_MACHINE
            seen.wrong.extend(f"at a broker that is well: {one} has fired" for one in sorted(wrongly))
        seen.wrong.extend(f"{one} has fired and does not say where" for one in prometheus.fired(""))
    return seen


@contextmanager
def _under_traffic(stage: Stage) -> Iterator[None]:
    """A broker that is well, to which somebody publishes."""
    stage.directory.mkdir()
    over = threading.Event()
    with healthy(stage) as stir:

        def publish() -> None:
            while not over.wait(_EVERY_S):
                stir()

        publisher = threading.Thread(target=publish, daemon=True)
        publisher.start()
        try:
            yield
        finally:
            over.set()
            publisher.join()


def _watched(prometheus: Prometheus, directory: Path, name: str) -> list[str]:
    """Bring one broker into a bad state and wait until its alert fires: what is wrong, in words."""
    state = BAD_STATES[name]
    place = directory / name.replace(" ", "-")
    place.mkdir()
    with state.make(Stage(place, prometheus, name)) as stir:

        def fires() -> dict[str, dict[str, str]]:
            found = prometheus.firing(name)
            if state.alert in found:
                return found
            stir()
            return {}

        try:
            firing = eventually_blocking(fires, f"{state.alert} fires", _LASTS_S)
        except AssertionError as missing:
            return [f"{name}: {missing}; there fire {sorted(prometheus.firing(name))}"]
        fired = prometheus.fired(name)  # before the broker is ended, which is a state of its own
    wrong = [f"{name}: {alert} has fired" for alert in sorted(fired - {state.alert, *state.also} - OF_THE_MACHINE)]
    texts = [(alert, text) for alert, of_alert in firing.items() for text in of_alert.values()]
    return wrong + [f"{name}: {alert} says {text!r}" for alert, text in texts if "<" in text or "rror" in text]
