"""Figures of panels side by side: lines with intervals, the x axis logarithmic unless it is asked for otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stoix_like.runtime.figures.style import DASHES, check_format, colours_of, make_panels, save_figure, style_axes

_NAME_SIZE = 9.0  # points, of the font of names beside horizontal lines
_NAME_GAP = 1.25  # least distance of two such names over the size of their font


class Line(NamedTuple):
    """Points joined by a line, each with an interval, whose bounds are NaN if it has none."""

    name: str
    x: Sequence[float]  # above 0 if the axis is logarithmic
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


class Panel(NamedTuple):
    """One pair of axes: lines, and values that do not depend on x, drawn as horizontal lines with their names."""

    title: str
    lines: Sequence[Line]
    horizontal_lines: Mapping[str, float]


def plot_panels(
    panels: Sequence[Panel],
    out: Path,
    x_label: str,
    y_label: str,
    *,
    log_x: bool = True,
    y_limits: tuple[float, float] | None = None,
) -> Path:
    """The path of the figure: panels that share the y axis. A name has the same colour in all panels.

    Raises ConfigError if `out` has an unknown format, and RunError if it cannot be written.
    """
    check_format(out)
    return save_figure(panels_figure(panels, x_label, y_label, log_x=log_x, y_limits=y_limits), out)


def panels_figure(
    panels: Sequence[Panel],
    x_label: str,
    y_label: str,
    *,
    log_x: bool = True,
    y_limits: tuple[float, float] | None = None,
) -> Any:
    """The same as a matplotlib figure; None without panels."""
    from stoix_like.runtime.figures.ticks import label_counts, label_counts_by_powers

    colours = colours_of(line.name for panel in panels for line in panel.lines)
    figure, drawn = make_panels(len(panels), sharey=True)
    for axes, panel in zip(drawn, panels, strict=True):
        style_axes(axes, panel.title, x_label, y_label)
        if log_x:
            axes.set_xscale("log")
        (label_counts_by_powers if log_x else label_counts)(axes.xaxis)
        for line in panel.lines:
            y = np.asarray(line.y)
            errors = np.stack([y - line.low, line.high - y])
            style: dict[str, Any] = {"color": colours[line.name], "marker": "o", "markersize": 4, "capsize": 3}
            axes.errorbar(line.x, y, yerr=errors, label=line.name, linewidth=1.6, **style)
        if panel.lines:
            axes.legend(fontsize=9, edgecolor="none")
        for index, value in enumerate(panel.horizontal_lines.values()):
            axes.axhline(value, color="0.4", linestyle=DASHES[1 + index % (len(DASHES) - 1)], linewidth=1.1)
        if y_limits is not None:
            axes.set_ylim(*y_limits)
    for axes, panel in zip(drawn, panels, strict=True):
        _name_lines(axes, panel.horizontal_lines)
    return figure


def _name_lines(axes: Any, values: Mapping[str, float]) -> None:
    """Writes each name right of the axes, at the end of its line: nothing is drawn there that it could hide.

    Names whose lines are closer than a row of text are moved apart, with a stroke from each to its line.
    """
    if not values:
        return
    wide = max(values, key=len)
    room = axes.annotate(wide, (1.0, 0.5), (18, 0), "axes fraction", "offset points", fontsize=_NAME_SIZE)
    axes.figure.draw_without_rendering()  # sets limits and the place of the axes, beside the widest name
    room.remove()
    to_points = 72.0 / axes.figure.dpi
    ends = [axes.transData.transform((0.0, value))[1] * to_points for value in values.values()]
    area = axes.get_window_extent()
    heights = spread(ends, _NAME_GAP * _NAME_SIZE, area.y0 * to_points, area.y1 * to_points)
    for (name, value), end, height in zip(values.items(), ends, heights, strict=True):
        stroke = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.8, "shrinkA": 1, "shrinkB": 0}
        axes.annotate(
            name,
            xy=(1.0, value),
            xycoords=axes.get_yaxis_transform(),
            xytext=(18, height - end),
            textcoords="offset points",
            va="center",
            fontsize=_NAME_SIZE,
            color="0.25",
            arrowprops=stroke,
            annotation_clip=False,
        )


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places in [low, high] at least `gap` apart, in the order of those wanted, the squares of their moves least.

    Without room for all, they are as far apart as there is room. Places that are too close become groups, each around
    its mean, which is least squares under an order (pool adjacent violators).
    """
    count = len(wanted)
    gap = min(gap, (high - low) / max(1, count - 1))
    order = sorted(range(count), key=lambda index: wanted[index])
    groups: list[list[float]] = []
    for rank, index in enumerate(order):
        groups.append([wanted[index] - rank * gap])
        while len(groups) > 1 and np.mean(groups[-2]) > np.mean(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    levels = [float(np.mean(group)) for group in groups for _ in group]
    places = [0.0] * count
    for rank, (index, level) in enumerate(zip(order, levels, strict=True)):
        places[index] = min(max(level, low), high - (count - 1) * gap) + rank * gap
    return places
