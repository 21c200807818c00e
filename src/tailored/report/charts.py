"""Charts of the page as SVG: marks say their numbers when hovered, and are told apart by shape and dash, not by colour alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Width and height of a chart, and the room for its axes: left, right, top, bottom.
WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 48
#: Okabe and Ito's colours, dark ones first, with a dash and a mark each.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("", "6 3", "2 3", "8 3 2 3", "4 2", "1 2")
MARKS = ("circle", "square", "triangle", "diamond", "circle", "square")


class Line(NamedTuple):
    """One line of a chart, with a label, values and a deviation of each, NaN where there is none."""

    label: str
    values: Array
    deviations: Array


@dataclass(frozen=True)
class Axis:
    """Numbers to places: evenly, or by the square root where small numbers matter most."""

    low: float
    high: float
    start: float
    stop: float
    root: bool = False

    @classmethod
    def over(cls, values: Array, start: float, stop: float, *, margin: float = 0.05) -> Axis:
        """All finite values, with some room at both ends."""
        known = np.asarray(values, dtype=float)
        known = known[np.isfinite(known)]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        room = margin * (high - low) or 0.5 * abs(high) or 0.5
        return cls(low - room, high + room, start, stop)

    def __call__(self, value: float) -> float:
        bend = np.sqrt if self.root else float
        low, high = bend(self.low), bend(self.high)
        part = (bend(value) - low) / (high - low) if high > low else 0.5
        return round(self.start + part * (self.stop - self.start), 2)

    @property
    def ticks(self) -> list[float]:
        """About five round numbers."""
        span = self.high - self.low
        raw = span / 5
        power = 10.0 ** np.floor(np.log10(raw))
        step = power * min((1.0, 2.0, 5.0, 10.0), key=lambda s: abs(s * power - raw))
        first = np.ceil(self.low / step) * step
        return [float(round(t / step) * step) for t in np.arange(first, self.high + 1e-9 * span, step)]


def number(value: float) -> str:
    """Four significant digits."""
    return f"{value:.4g}".replace("-", "−")


def errors_by_rows(supports: Sequence[int], lines: Sequence[Line], unit: str, label: str) -> str:
    """Errors (or shares) against the number of rows that were given."""
    every = np.concatenate([line.values for line in lines])
    x = Axis(0.0, float(max(supports) or 1), LEFT, WIDTH - RIGHT, root=True)
    y = Axis.over(every, HEIGHT - BOTTOM, TOP)
    parts = _frame(y, unit, "rows of the new task that were given")
    parts += [_tick_below(x(rows), str(rows)) for rows in supports]
    for i, line in enumerate(lines):
        style = _style(i)
        points = " ".join(
            f"{x(r)},{y(v)}" for r, v in zip(supports, line.values, strict=True) if np.isfinite(v)
        )
        parts.append(f'<polyline points="{points}" fill="none" {style}/>')
        for rows, value, deviation in zip(supports, line.values, line.deviations, strict=True):
            if np.isfinite(value):
                spread = f" ± {number(deviation)}" if np.isfinite(deviation) else ""
                tip = f"{line.label}, {rows} rows: {number(value)}{spread}"
                parts.append(_mark(i, x(rows), y(value), tip, focus=True))
    return _svg(parts, label) + _legend([line.label for line in lines])


def caterpillar(
    names: Sequence[str], effect: Array, low: Array, high: Array, common: float, label: str
) -> str:
    """Effects of tasks in their order of size, with intervals; the line is the common effect."""
    order = np.argsort(effect, kind="stable")
    ends = np.concatenate([effect, low[np.isfinite(low)], high[np.isfinite(high)], [common]])
    x = Axis(-0.5, len(names) - 0.5, LEFT, WIDTH - RIGHT)
    y = Axis.over(ends, HEIGHT - BOTTOM, TOP)
    parts = _frame(y, label, "tasks, by the size of the effect")
    if np.isfinite(common):
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(common)}" y2="{y(common)}" class="common" stroke-dasharray="5 4"/>'
        )
    size = 3.5 if len(names) <= 80 else 2.2
    for place, t in enumerate(order):
        known = bool(np.isfinite(low[t]) and np.isfinite(high[t]))
        interval = f", from {number(low[t])} to {number(high[t])}" if known else ""
        tip = escape(f"{names[t]}: {number(effect[t])}{interval}", quote=True)
        where = x(place)
        bar = f'<line x1="{where}" x2="{where}" y1="{y(low[t])}" y2="{y(high[t])}"/>' if known else ""
        parts.append(
            f'<g class="task" data-task="{t}" data-tip="{tip}"><title>{tip}</title>{bar}'
            f'<circle cx="{where}" cy="{y(effect[t])}" r="{size}"/></g>'
        )
    return _svg(parts, f"{label}: effect of each task with its interval")


class Curve(NamedTuple):
    """What is predicted along one column of one task."""

    x: Array
    tailored: Array
    lower: Array
    upper: Array
    common: Array


def one_task(x_rows: Array, y_rows: Array, curve: Curve, x_label: str, y_label: str, name: str) -> str:
    """Rows of a task, the model that was tailored to it with its interval, and what was expected without rows."""
    x = Axis.over(np.concatenate([x_rows, curve.x]), LEFT, WIDTH - RIGHT)
    band = np.concatenate([curve.lower, curve.upper])
    y = Axis.over(np.concatenate([y_rows, curve.tailored, curve.common, band]), HEIGHT - BOTTOM, TOP)
    parts = _frame(y, y_label, x_label)
    parts += [_tick_below(x(tick), number(tick)) for tick in x.ticks]
    if np.isfinite(band).all():
        there = [f"{x(a)},{y(b)}" for a, b in zip(curve.x, curve.upper, strict=True)]
        back = [f"{x(a)},{y(b)}" for a, b in zip(curve.x[::-1], curve.lower[::-1], strict=True)]
        parts.append(f'<polygon points="{" ".join(there + back)}" class="band"/>')
    for i, values in enumerate((curve.tailored, curve.common)):
        points = " ".join(f"{x(a)},{y(b)}" for a, b in zip(curve.x, values, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" {_style(i)}/>')
    for a, b in zip(x_rows, y_rows, strict=True):
        tip = escape(f"{x_label} {number(a)}, {y_label} {number(b)}", quote=True)
        parts.append(
            f'<circle class="row" cx="{x(a)}" cy="{y(b)}" r="3" data-tip="{tip}"><title>{tip}</title></circle>'
        )
    said = f"{name}: {len(y_rows)} rows, its tailored model and the interval"
    return _svg(parts, said) + _legend(
        ["tailored to this task, with its interval", "expected before any row"], marks=False
    )


def _frame(y: Axis, y_label: str, x_label: str) -> list[str]:
    parts = []
    for tick in y.ticks:
        place = y(tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place}" y2="{place}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{place + 4}" text-anchor="end">{number(tick)}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text x="14" y="{middle}" transform="rotate(-90 14 {middle})" text-anchor="middle">{escape(y_label)}</text>'
    )
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>'
    )
    return parts


def _tick_below(place: float, text: str) -> str:
    return f'<text x="{place}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{text}</text>'


def _style(i: int) -> str:
    dash = DASHES[i % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{COLOURS[i % len(COLOURS)]}" stroke-width="{2.5 if i == 0 else 1.8}"{dashed}'


def _mark(i: int, x: float, y: float, tip: str, *, focus: bool = False) -> str:
    said = escape(tip, quote=True)
    reach = ' tabindex="0" role="img"' if focus else ""
    return (
        f'<path d="{_shape(MARKS[i % len(MARKS)], x, y)}" fill="{COLOURS[i % len(COLOURS)]}" data-tip="{said}"'
        f'{reach} aria-label="{said}"><title>{said}</title></path>'
    )


def _shape(kind: str, x: float, y: float, r: float = 4.5) -> str:
    if kind == "circle":
        return f"M{x - r},{y}a{r},{r} 0 1,0 {2 * r},0a{r},{r} 0 1,0 {-2 * r},0"
    if kind == "square":
        return f"M{x - r},{y - r}h{2 * r}v{2 * r}h{-2 * r}z"
    if kind == "triangle":
        return f"M{x},{y - r}L{x + r},{y + r}L{x - r},{y + r}z"
    return f"M{x},{y - r}L{x + r},{y}L{x},{y + r}L{x - r},{y}z"


def _svg(parts: Sequence[str], label: str) -> str:
    inside = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label, quote=True)}">{inside}</svg>'


def _legend(labels: Sequence[str], *, marks: bool = True) -> str:
    items = []
    for i, label in enumerate(labels):
        mark = f'<path d="{_shape(MARKS[i], 16, 7)}" fill="{COLOURS[i]}"/>' if marks else ""
        line = f'<line x1="1" x2="31" y1="7" y2="7" {_style(i)}/>'
        items.append(
            f'<li><svg viewBox="0 0 32 14" aria-hidden="true">{line}{mark}</svg>{escape(label)}</li>'
        )
    return f'<ul class="legend">{"".join(items)}</ul>'
