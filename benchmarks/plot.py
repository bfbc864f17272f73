"""Plots as SVG: lines on logarithmic axes, several panels in one picture, readable on light and dark pages.

Every line is named at its end, in its colour, so that no legend is needed and a reader who sees no colours can follow.
"""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from typing import Final, NamedTuple

_FONT: Final = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
_STYLE: Final = """
svg { --paper: #ffffff; --ink: #1f2933; --faint: #66727f; --rule: #dde3e9;
      --c0: #2f6f9f; --c1: #c8553d; --c2: #4c956c; --ceiling: #8d99a6; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #0f151b; --ink: #e6edf3; --faint: #9aa7b4; --rule: #2a343e;
        --c0: #6cb2e6; --c1: #f0876f; --c2: #7cc79b; --ceiling: #8d99a6; } }
.paper { fill: var(--paper); stroke: var(--rule); } .rule { stroke: var(--rule); fill: none; }
text { fill: var(--ink); } .faint { fill: var(--faint); font-size: 12px; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; } .ceiling { stroke-dasharray: 5 4; stroke-width: 1.5; }
""".strip()
_WIDTH: Final = 440
_HEIGHT: Final = 308
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 128, 58, 50
_LABEL_GAP: Final = 15
_TICK_GAP: Final = 34


class Line(NamedTuple):
    """``points`` in rising order of x, all above 0. ``colour``: 0 to 2; None for a ceiling, dashed and grey."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int | None


class Panel(NamedTuple):
    """``ticks``: the marks of the x axis, (value, words)."""

    title: str
    x_words: str
    y_words: str
    ticks: Sequence[tuple[float, str]]
    lines: Sequence[Line]


class Scale(NamedTuple):
    """A logarithmic axis: values from ``low`` to ``high`` on pixels from ``first`` to ``last``."""

    low: float
    high: float
    first: float
    last: float

    def __call__(self, value: float) -> float:
        share = (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return round(self.first + share * (self.last - self.first), 1)


def picture(title: str, panels: Sequence[Panel], note: str, columns: int = 2) -> str:
    """The SVG. ``note`` stands below all panels."""
    rows = ceil(len(panels) / columns)
    width, height = columns * _WIDTH + 20, rows * _HEIGHT + 44
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" font-family="{_FONT}" font-size="14">'
        ),
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="5"/>',
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        parts.append(f'<g transform="translate({10 + column * _WIDTH} {6 + row * _HEIGHT})">')
        parts += [*_axes(panel), *_lines(panel), "</g>"]
    parts.append(_text(20, height - 18, note, "faint"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: float, y: float, words: str, css: str = "", more: str = "") -> str:
    class_ = f' class="{css}"' if css else ""
    return f'<text x="{x:g}" y="{y:g}"{class_}{" " + more if more else ""}>{escape(words)}</text>'


def _scales(panel: Panel) -> tuple[Scale, Scale]:
    """The y axis begins and ends at 1, 2 or 5 times a power of ten."""
    xs = [x for line in panel.lines for x, _ in line.points]
    ys = [y for line in panel.lines for _, y in line.points]
    marks = [digit * 10.0**power for power in range(-2, 9) for digit in (1, 2, 5)]
    low = max((mark for mark in marks if mark <= min(ys)), default=marks[0])
    high = min((mark for mark in marks if mark >= max(ys) and mark > low), default=marks[-1])
    across = Scale(min(xs), max(*xs, 1.01 * min(xs)), _LEFT, _WIDTH - _RIGHT)
    return across, Scale(low, high, _HEIGHT - _BOTTOM, _TOP)


def _axes(panel: Panel) -> list[str]:
    x, y = _scales(panel)
    parts = [_text(_LEFT - 46, 24, panel.title, more='font-weight="600"')]
    parts.append(_text(_LEFT - 46, 42, panel.y_words, "faint"))
    decades = range(floor(log10(y.low)), ceil(log10(y.high)) + 1)
    digits = (1, 2, 5) if y.high / y.low <= 1_000 else (1,)
    for value in (digit * 10.0**power for power in decades for digit in digits):
        if y.low * 0.999 <= value <= y.high * 1.001:
            parts.append(f'<path class="rule" d="M{x.first:g} {y(value):g} H{x.last:g}"/>')
            parts.append(_text(x.first - 6, y(value) + 4, short(value), "faint", 'text-anchor="end"'))
    taken = -float(_TICK_GAP)
    for value, words in panel.ticks:
        at = x(value)
        parts.append(f'<path class="rule" d="M{at:g} {y.first:g} v5"/>')
        if at - taken >= _TICK_GAP:
            parts.append(_text(at, y.first + 19, words, "faint", 'text-anchor="middle"'))
            taken = at
    parts.append(_text((x.first + x.last) / 2, y.first + 38, panel.x_words, "faint", 'text-anchor="middle"'))
    return parts


def _lines(panel: Panel) -> list[str]:
    x, y = _scales(panel)
    parts: list[str] = []
    ends: list[tuple[float, str, str]] = []
    for line in panel.lines:
        dots = [(x(at), y(value)) for at, value in line.points]
        colour = f"var(--c{'eiling' if line.colour is None else line.colour})"
        css = "line ceiling" if line.colour is None else "line"
        path = " L".join(f"{across:g} {up:g}" for across, up in dots)
        parts.append(f'<path class="{css}" style="stroke: {colour}" d="M{path}"/>')
        if line.colour is not None:
            parts += [f'<circle cx="{across:g}" cy="{up:g}" r="3" style="fill: {colour}"/>' for across, up in dots]
        ends.append((dots[-1][1] + 4, line.name, colour))
    for at, name, colour in _apart(ends):
        parts.append(_text(x.last + 8, at, name, more=f'font-size="12" style="fill: {colour}"'))
    return parts


def _apart(ends: list[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """Names that would stand on each other are moved down."""
    placed = sorted(ends)
    for number, (above, below) in enumerate(pairwise(placed)):
        gap = max(below[0], placed[number][0] + _LABEL_GAP)
        assert above[0] <= below[0]
        placed[number + 1] = (gap, *below[1:])
    return placed


def short(value: float) -> str:
    """12,000 as 12k."""
    for bound, unit in ((1e6, "M"), (1e3, "k")):
        if value >= bound:
            return f"{value / bound:g}{unit}"
    return f"{value:g}"
