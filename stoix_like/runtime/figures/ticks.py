"""Tick labels of counts in one form: 500, 500 k, 1.0 M, 1.25 M.

Imported where a figure is drawn, because it loads matplotlib.
"""

from __future__ import annotations

import math

from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogFormatter

_UNITS = ("", " k", " M", " G", " T")


def count_text(count: float) -> str:
    """A count in thousands of a unit, `500 k`. Below ten of a unit it has a decimal, `1.0 M`, or more."""
    value, unit = abs(count), 0
    while float(f"{value:.6g}") >= 1000.0 and unit < len(_UNITS) - 1:
        value, unit = value / 1000.0, unit + 1
    text = f"{value:.6g}"
    if unit and value < 10.0 and "." not in text:
        text += ".0"
    return f"{'−' if count < 0 else ''}{text}{_UNITS[unit]}"


def label_counts(axis: Axis) -> None:
    """Labels the ticks of an axis by `count_text`."""
    axis.set_major_formatter(FuncFormatter(lambda count, _: count_text(count)))


def label_counts_by_powers(axis: Axis) -> None:
    """The same for a logarithmic axis, also between its powers of ten where these are few."""
    axis.set_major_formatter(_PowersFormatter())
    axis.set_minor_formatter(_PowersFormatter(minor_thresholds=(1.5, 0.5)))


class _PowersFormatter(LogFormatter):
    """Chooses the ticks with a label as matplotlib does, and writes them by `count_text`."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return count_text(x) if super().__call__(x, pos) and math.isfinite(x) else ""
