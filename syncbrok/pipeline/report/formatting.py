"""Makes text for people of figures. Pure."""

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlsplit, urlunsplit

_DURATIONS = (
    (1_000, 1, "µs"), (1_000_000, 1_000, "ms"), (120_000_000, 1_000_000, "s"), (7_200_000_000, 60_000_000, "min"),
    (172_800_000_000, 3_600_000_000, "h"),
)  # fmt: skip
_DAY_US = 86_400_000_000
_COUNTS = ((1e9, "G"), (1e6, "M"), (1e4, "k"))

NONE = "-"


def duration(us: float | None) -> str:
    """A duration for people, three digits and a unit: ``850 µs``, ``1.25 ms``, ``42.0 s``, ``3.5 h``."""
    if us is None:
        return NONE
    for below, unit_us, unit in _DURATIONS:
        if us < below:
            return f"{_digits(us / unit_us)} {unit}"
    return f"{_digits(us / _DAY_US)} d"


def count(number: float | None) -> str:
    """A number for people: ``9,999``, then ``12.3 k``, ``4.56 M``."""
    if number is None:
        return NONE
    for least, unit in _COUNTS:
        if number >= least:
            return f"{_digits(number / (1e3 if unit == 'k' else least))} {unit}"
    return f"{round(number):,}"


def share(part: float | None, whole: float | None) -> str:
    if not whole or part is None:
        return NONE
    percent = 100 * part / whole
    return "0 %" if not part else "< 0.01 %" if percent < 0.01 else f"{_digits(percent)} %"


def utc_time(time: datetime) -> str:
    """The time to the second, in UTC."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def words(slug: str | None) -> str:
    """A slug as words: ``parent failed`` for ``parent_failed``."""
    return (slug or "").replace("_", " ")


def endpoint(url: str | None) -> str:
    """The endpoint without parts that may be secret: user, password and query."""
    parts = urlsplit(url or "")
    if not parts.netloc:
        return url or NONE
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", "")) + ("?…" if parts.query else "")


def hour_labels(hours: Sequence[datetime], most: int = 6) -> list[tuple[float, str]]:
    """Labels for some of the hours, each with its position from 0 to 1."""
    if not hours:
        return []
    days = (hours[-1] - hours[0]).days
    form = "%d %b" if days > most else "%d %b %H:%M" if days else "%H:%M"
    step = max(1, -(-len(hours) // (4 if 0 < days <= most else most)))
    return [((at + 0.5) / len(hours), hour.strftime(form)) for at, hour in enumerate(hours) if at % step == 0]


def _digits(number: float) -> str:
    if number >= 99.95 or number == int(number):
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"
