"""Figures of panels side by side: lines with intervals, the x axis logarithmic unless it is asked for otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stoix_like.runtime.figures.style import check_format, colours_of, make_panels, save_figure, style_axes


class Line(NamedTuple):
    """Points joined by a line, each with an interval, whose bounds are NaN if it has none."""

    name: str
    x: Sequence[float]  # above 0 if the axis is logarithmic
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


class Panel(NamedTuple):
    """One pair of axes: lines, and values that do not depend on x, drawn as horizontal lines."""

    title: str
    lines: Sequence[Line]
    horizontal_lines: Mapping[str, float]


def plot_panels(panels: Sequence[Panel], out: Path, x_label: str, y_label: str, *, log_x: bool = True) -> Path:
    """The path of the figure: panels that share the y axis. A name has the same colour in all panels.

    Raises ConfigError if `out` has an unknown format, and RunError if it cannot be written.
    """
    from matplotlib.ticker import LogFormatter

    check_format(out)
    colours = colours_of(line.name for panel in panels for line in panel.lines)
    figure, drawn = make_panels(len(panels), sharey=True)
    for axes, panel in zip(drawn, panels, strict=True):
        style_axes(axes, panel.title, x_label, y_label)
        if log_x:
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))  # 20, not 2 x 10^1
        for (name, value), dashes in zip(panel.horizontal_lines.items(), itertools.cycle(((4, 2), (1, 2)))):
            axes.axhline(value, color="0.4", linestyle=(0, dashes), linewidth=1.1, label=name)
        for line in panel.lines:
            y = np.asarray(line.y)
            errors = np.stack([y - line.low, line.high - y])
            style: dict[str, Any] = {"color": colours[line.name], "marker": "o", "markersize": 4, "capsize": 3}
            axes.errorbar(line.x, y, yerr=errors, label=line.name, linewidth=1.6, **style)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.legend(fontsize=9, edgecolor="none")
    return save_figure(figure, out)
