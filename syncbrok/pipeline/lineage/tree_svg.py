"""One tree as an SVG: time runs to the right, a row a message, a line down from each end to who waited for it. Pure.

    ----------- waited, accepted, for its parents
    ░░░░        could go; no attempt had begun
    ████        from its first attempt to its end

The critical path is blue, what failed is red, the rest is grey. Colours follow the reader's scheme, light or dark.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 1120
_LEFT: Final = 216
_RIGHT: Final = 884
_TOP: Final = 112
_ROW: Final = 27
_BAR: Final = 13
_TICKS: Final = 6
_LABEL_CHARS: Final = 17
_FONT: Final = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
_STYLE: Final = """
svg { --paper: #ffffff; --ink: #1f2933; --faint: #66727f; --rule: #e4e9ee; --path: #2f6f9f; --pale: #b9d3e6;
      --other: #8d99a6; --thin: #d5dbe1; --failed: #c8553d; --weak: #f0c9be; }
@media (prefers-color-scheme: dark) {
svg { --paper: #14191f; --ink: #e6ebf0; --faint: #98a5b3; --rule: #252d36; --path: #6fb1e0; --pale: #2c4f69;
      --other: #7d8996; --thin: #3a444f; --failed: #e58069; --weak: #60352b; }
}
text { fill: var(--ink); font-size: 13px; } .faint { fill: var(--faint); } .small { font-size: 12px; }
.title { font-size: 17px; font-weight: 600; } .strong { font-weight: 600; } .end { text-anchor: end; }
.middle { text-anchor: middle; } .rule { stroke: var(--rule); } .link { stroke: var(--thin); fill: none; stroke-width:
1.3; } .critical.link { stroke: var(--path); stroke-width: 2.2; } .wait { stroke: var(--other); stroke-dasharray: 2 4;
stroke-width: 1.3; } .critical.wait { stroke: var(--path); } .bar { fill: var(--other); } .queued { fill: var(--thin); }
.critical.bar { fill: var(--path); } .critical.queued { fill: var(--pale); } .failed.bar { fill: var(--failed); }
.failed.queued { fill: var(--weak); } .late { stroke-dasharray: 1 4; }
"""


class MessageBar(NamedTuple):
    """A message. Times are Unix microseconds; None where it has not come to that."""

    sequence: int
    queue: str
    accepted_us: int
    parents_us: int | None
    """when the parent that it waited for longest ended"""
    began_us: int | None
    ended_us: int | None
    failed: bool
    attempts: int
    held_by: int | None
    """sequence of that parent"""
    step: int | None
    """on the critical path; 1 is where it begins"""
    own_us: int
    """of the critical path's time"""
    below: int
    """messages below it that are not shown; known where it has no row below it"""
    elsewhere: bool
    """in another tree"""


class TreeSummary(NamedTuple):
    """Figures about the whole tree."""

    root: int
    queue: str
    messages: int
    depth: int
    took_us: int | None
    critical_us: int
    steps: int


class _Row(NamedTuple):
    """A line of the picture: a message, or what is left out between two steps of the path."""

    bar: MessageBar | None
    skipped: int = 0
    from_us: int = 0
    to_us: int = 0


def draw(tree: TreeSummary, bars: Sequence[MessageBar]) -> str:
    """The tree as an SVG. ``bars`` are the messages to show, in any order."""
    rows = list(_rows(bars))
    times = [time for bar in bars for time in (bar.accepted_us, bar.began_us, bar.ended_us) if time is not None]
    scale = _Scale(min(times), max(times))
    height = _TOP + _ROW * len(rows) + 78
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
            f'role="img" font-family="{_FONT}">'
        ),
        f"<title>{escape(_title(tree))}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect x="0" y="0" width="{WIDTH}" height="{height}" rx="6" style="fill: var(--paper)"/>',
        _text(24, 36, _title(tree), "title"),
        _text(24, 60, _subtitle(tree, bars), "faint"),
        *_axis(scale, _TOP + _ROW * len(rows)),
    ]
    middle = {row.bar.sequence: _TOP + _ROW * at + _ROW / 2 for at, row in enumerate(rows) if row.bar}
    known = {bar.sequence: bar for bar in bars}
    held = [(known[row.bar.held_by], row.bar) for row in rows if row.bar and row.bar.held_by in known]
    parts += [_link(scale, parent, child, middle) for parent, child in held]
    for at, row in enumerate(rows):
        y = _TOP + _ROW * at + _ROW / 2
        parts += _message(scale, row.bar, y, tree) if row.bar else _skipped(scale, row, y)
    parts += [*_legend(height - 30), "</svg>"]
    return "\n".join(parts) + "\n"


def _rows(bars: Sequence[MessageBar]) -> Iterator[_Row]:
    """Yield the lines of the picture: the critical path from top to bottom, and below each of its messages the others
    that hang there, as a tree does; what hangs nowhere comes last."""
    shown = {bar.sequence for bar in bars}
    path = sorted((bar for bar in bars if bar.step is not None), key=lambda bar: bar.step or 0)
    hanging: dict[int | None, list[MessageBar]] = {}
    for bar in sorted((bar for bar in bars if bar.step is None), key=lambda bar: (bar.accepted_us, bar.sequence)):
        hanging.setdefault(bar.held_by if bar.held_by in shown else None, []).append(bar)
    before: MessageBar | None = None
    for bar in path:
        skipped = (bar.step or 0) - (before.step or 0 if before else 0) - 1
        if skipped:
            ends = before.ended_us if before and before.ended_us else bar.accepted_us
            yield _Row(None, skipped, ends, bar.parents_us or bar.accepted_us)
        yield from _hanging(bar, hanging)
        before = bar
    for bar in hanging.pop(None, []):
        yield from _hanging(bar, hanging)


def _hanging(bar: MessageBar, hanging: dict[int | None, list[MessageBar]]) -> Iterator[_Row]:
    left = [bar]
    while left:  # no recursion: a chain may be as long as the picture is high
        one = left.pop()
        yield _Row(one)
        left += reversed(hanging.pop(one.sequence, []))


class _Scale:
    """Turns Unix microseconds into pixels."""

    def __init__(self, first_us: int, last_us: int) -> None:
        self.first_us = first_us
        self.span_us = max(last_us - first_us, 1)

    def x(self, time_us: int) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (time_us - self.first_us) / self.span_us


def _axis(scale: _Scale, bottom: int) -> Iterator[str]:
    step = _tick_us(scale.span_us)
    for time_us in range(0, scale.span_us + 1, step):
        x = scale.x(scale.first_us + time_us)
        yield f'<path d="M{x:.1f} {_TOP - 8} V{bottom + 4}" class="rule"/>'
        yield _text(x, _TOP - 16, duration(time_us) if time_us else "0", "faint small middle")


def _tick_us(span_us: int) -> int:
    """A round step that makes about ``_TICKS`` ticks."""
    size = 1
    while True:
        for round_ in (1, 2, 5):
            if span_us / (round_ * size) <= _TICKS:
                return round_ * size
        size *= 10


def _link(scale: _Scale, parent: MessageBar, child: MessageBar, middle: dict[int, float]) -> str:
    """A line down from the end of the parent; it goes on to the right where the child was published later."""
    x, y = scale.x(parent.ended_us or parent.accepted_us), middle[child.sequence]
    on_path = " critical" if parent.step is not None and child.step == (parent.step or 0) + 1 else ""
    start = middle[parent.sequence]
    drop = f'<path d="M{x:.1f} {start:.1f} V{y:.1f}" class="link{on_path}"/>'
    accepted = scale.x(child.accepted_us)
    if accepted <= x + 1:
        return drop
    return drop + f'<path d="M{x:.1f} {y:.1f} H{accepted:.1f}" class="link late{on_path}"/>'


def _message(scale: _Scale, bar: MessageBar, y: float, tree: TreeSummary) -> Iterator[str]:
    kind = " failed" if bar.failed else " critical" if bar.step is not None else ""
    strong = " strong" if bar.step is not None else ""
    queue = bar.queue if len(bar.queue) <= _LABEL_CHARS else bar.queue[: _LABEL_CHARS - 1] + "…"
    yield _text(24, y + 4.5, queue, f"small{strong}")
    yield _text(_LEFT - 16, y + 4.5, f"#{bar.sequence}", "small faint end")
    accepted = scale.x(bar.accepted_us)
    ready = max(bar.accepted_us, bar.parents_us or 0)
    if bar.parents_us and bar.parents_us > bar.accepted_us:
        yield f'<path d="M{accepted:.1f} {y:.1f} H{scale.x(bar.parents_us):.1f}" class="wait{kind}"/>'
    end = bar.ended_us if bar.ended_us is not None else scale.first_us + scale.span_us
    began = min(max(bar.began_us, ready), end) if bar.began_us is not None else end
    queued = "queued" + kind
    if began > ready:
        yield _box(scale.x(ready), y, scale.x(began) - scale.x(ready), queued)
    if bar.began_us is not None or end == ready:
        yield _box(scale.x(began), y, scale.x(end) - scale.x(began), "bar" + kind)
    yield _text(scale.x(end) + 8, y + 4.5, _bar_words(bar, tree), f"small{strong or ' faint'}")


def _bar_words(bar: MessageBar, tree: TreeSummary) -> str:
    said = []
    if bar.ended_us is None:
        said.append("not ended")
    elif bar.step is not None:
        said.append(duration(bar.own_us))
        if tree.critical_us:
            said.append(f"{100 * bar.own_us / tree.critical_us:.0f} %")
    else:
        said.append(duration(bar.ended_us - max(bar.accepted_us, bar.parents_us or 0)))
    if bar.failed:
        said.append("failed")
    if bar.attempts > 1:
        said.append(f"{bar.attempts} attempts")
    if bar.elsewhere:
        said.append("another tree")
    if bar.below:
        said.append(f"{bar.below:,} more below")
    return " · ".join(said)


def _skipped(scale: _Scale, row: _Row, y: float) -> Iterator[str]:
    left, right = scale.x(row.from_us), scale.x(max(row.to_us, row.from_us))
    yield f'<path d="M{left:.1f} {y:.1f} H{max(right, left + 3):.1f}" class="link critical late"/>'
    steps = "one more step" if row.skipped == 1 else f"{row.skipped:,} more steps"
    yield _text(24, y + 4.5, steps, "small faint")
    yield _text(max(right, left + 3) + 8, y + 4.5, duration(max(0, row.to_us - row.from_us)), "small faint")


def _box(x: float, y: float, width: float, kind: str) -> str:
    place = f'x="{x:.1f}" y="{y - _BAR / 2:.1f}" width="{max(width, 2.5):.1f}" height="{_BAR}"'
    return f'<rect {place} rx="2.5" class="{kind}"/>'


def _legend(y: float) -> Iterator[str]:
    x = 24.0
    for kind, words, room in (
        ("wait", "waits for its parents", 158.0),
        ("queued", "may go, not yet tried", 162.0),
        ("bar", "first attempt to end", 152.0),
        ("critical bar", "critical path, with its part of the time", 262.0),
        ("failed bar", "failed", 80.0),
    ):
        if kind == "wait":
            yield f'<path d="M{x} {y:.1f} H{x + 24}" class="wait"/>'
        else:
            yield _box(x, y, 24, kind)
        yield _text(x + 32, y + 4.5, words, "small faint")
        x += 32 + room


def _title(tree: TreeSummary) -> str:
    took = f", took {duration(tree.took_us)}" if tree.took_us is not None else ", nothing of it complete"
    return f"The tree of {tree.queue or 'message'} #{tree.root}{took}"


def _subtitle(tree: TreeSummary, bars: Sequence[MessageBar]) -> str:
    shown = sum(1 for bar in bars if not bar.elsewhere)
    said = "1 message" if tree.messages == 1 else f"{tree.messages:,} messages, depth {tree.depth:,}"
    if shown < tree.messages:
        said += f"; {shown:,} of them shown: what took longest on the critical path, and where it is widest"
    steps = f"Critical path: {tree.steps:,} steps, {duration(tree.critical_us)}" if tree.steps else ""
    return f"{said}. {steps}".rstrip(". ")


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(words)}</text>'


def duration(time_us: int) -> str:
    """Three digits and a unit, as a reader wants it: ``1.25 s``, ``340 ms``, ``2 h 5 min``."""
    if time_us < 1_000:
        return f"{time_us} µs"
    if time_us < 1_000_000:
        return f"{time_us / 1_000:.3g} ms"
    if time_us < 60_000_000:
        return f"{time_us / 1_000_000:.3g} s"
    minutes = round(time_us / 60_000_000)
    if minutes < 120:
        seconds = round(time_us / 1_000_000) - 60 * (time_us // 60_000_000)
        return f"{time_us // 60_000_000} min {seconds} s" if seconds < 60 else f"{time_us // 60_000_000 + 1} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"
