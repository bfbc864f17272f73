"""Charts as inline SVG that stretches with the page; what is written beside them is HTML, so it stays readable at any
width. Colours are names of the page's style, so that one picture serves light and dark. Pure."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

Labels = Sequence[tuple[float, str]]
Says = Callable[[float], str]
_WIDE, _HIGH = 1000, 200
_BAR_WIDE = 120


class Series(NamedTuple):
    """A series of values with its name. ``tone`` is a colour of the style: ``c1`` to ``c8``."""

    name: str
    tone: str
    values: Sequence[float | None]


def bars(series: Sequence[Series], labels: Labels, says: Says, columns: Sequence[str]) -> str:
    """Stacked bars; ``columns`` names each of them, ``labels`` stand below (position from 0 to 1, text)."""
    totals = [sum(one.values[at] or 0 for one in series) for at in range(len(columns))]
    top = _top(max(totals, default=0))
    width = _WIDE / max(len(columns), 1)
    wide = min(width * 0.86, _BAR_WIDE)
    parts = []
    for at, column in enumerate(columns):
        below = 0.0
        told = " · ".join(f"{one.name} {says(one.values[at] or 0)}" for one in series if one.values[at])
        rects = []
        for one in series:
            high = (one.values[at] or 0) / top * _HIGH
            if high > 0:
                y = _HIGH - below - high
                rects.append(
                    f'<rect class="{one.tone}" x="{(at + 0.5) * width - wide / 2:.1f}" y="{y:.2f}" width="{wide:.2f}" '
                    f'height="{high:.2f}"/>'
                )
                below += high
        if rects:
            parts.append(f"<g><title>{escape(column)}: {escape(told)}</title>{''.join(rects)}</g>")
    return _plot("".join(parts), _ticks(top, says), labels) + _legend(series)


def lines(series: Sequence[Series], labels: Labels, says: Says) -> str:
    """Lines on a logarithmic axis; a gap where there is no value, a dot where one stands alone."""
    known = [value for one in series for value in one.values if value]
    if not known:
        return _nothing()
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    high = max(high, low + 1)

    def y(value: float) -> float:
        return _HIGH - (math.log10(value) - low) / (high - low) * _HIGH

    parts = []
    for one in series:
        width = _WIDE / max(len(one.values), 1)
        for run in _runs(one.values):
            points = " ".join(f"{(at + 0.5) * width:.1f},{y(value):.1f}" for at, value in run)
            if len(run) == 1:  # a level of one hour's width
                at, value = run[0]
                points = f"{at * width:.1f},{y(value):.1f} {(at + 1) * width:.1f},{y(value):.1f}"
            parts.append(f'<polyline class="{one.tone}" points="{points}"><title>{escape(one.name)}</title></polyline>')
    ticks = [((power - low) / (high - low), says(10.0**power)) for power in range(low, high + 1)]
    return _plot("".join(parts), ticks, labels) + _legend(series)


def shapes(curves: Sequence[tuple[str, str, Sequence[tuple[float, float]]]], says: Says) -> str:
    """Distributions side by side on a logarithmic axis: (name, tone, points of (value, share))."""
    known = [value for _, _, points in curves for value, share in points if share > 0]
    if not known:
        return _nothing()
    low, high = math.floor(math.log10(max(min(known), 1))), math.ceil(math.log10(max(*known, 10)))
    high = max(high, low + 1)
    most = max(share for _, _, points in curves for _, share in points)

    def x(value: float) -> float:
        return min(max((math.log10(max(value, 1)) - low) / (high - low), 0), 1) * _WIDE

    parts = []
    for name, tone, points in curves:
        if points:
            line = " ".join(f"{x(value):.1f},{_HIGH - share / most * _HIGH * 0.96:.1f}" for value, share in points)
            first, last = x(points[0][0]), x(points[-1][0])
            parts.append(
                f'<polygon class="{tone}" points="{first:.1f},{_HIGH} {line} {last:.1f},{_HIGH}"/>'
                f'<polyline class="{tone}" points="{line}"><title>{escape(name)}</title></polyline>'
            )
    step = 1 if high - low <= 6 else 2
    labels = [((power - low) / (high - low), says(10.0**power)) for power in range(low, high + 1, step)]
    series = [Series(name, tone, ()) for name, tone, points in curves if points]
    return _plot("".join(parts), [], labels) + _legend(series)


def bar(share: float, tone: str = "c1") -> str:
    """A bar in a table, from 0 to 1 of the width."""
    return f'<span class="bar"><span class="{tone}" style="width:{100 * min(max(share, 0), 1):.1f}%"></span></span>'


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    runs: list[list[tuple[int, float]]] = [[]]
    for at, value in enumerate(values):
        if value:
            runs[-1].append((at, value))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _top(most: float) -> float:
    """A round number at or above."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= most * 0.999)


def _ticks(top: float, says: Says) -> list[tuple[float, str]]:
    if top < 2:
        return [(0.0, says(0)), (1 / top, says(1))]
    return [(0.0, says(0)), (0.5, says(top / 2)), (1.0, says(top))]


def _plot(inside: str, ticks: Labels, labels: Labels) -> str:
    rules = "".join(
        f'<line class="rule" x1="0" x2="{_WIDE}" y1="{_HIGH - at * _HIGH:.1f}" y2="{_HIGH - at * _HIGH:.1f}"/>'
        for at, _ in ticks
    )
    left = "".join(f'<span style="bottom:{100 * at:.1f}%">{escape(text)}</span>' for at, text in ticks)
    below = "".join(f'<span style="left:{100 * at:.1f}%">{escape(text)}</span>' for at, text in labels)
    return (
        f'<div class="plot{"" if ticks else " bare"}"><div class="y">{left}</div>'
        f'<svg viewBox="0 0 {_WIDE} {_HIGH}" preserveAspectRatio="none" role="img">{rules}{inside}</svg>'
        f'<div class="x">{below}</div></div>'
    )


def _legend(series: Sequence[Series]) -> str:
    items = "".join(f'<span><i class="{one.tone}"></i>{escape(one.name)}</span>' for one in series)
    return f'<div class="legend">{items}</div>'


def _nothing() -> str:
    return '<p class="none">Nothing in this time.</p>'
