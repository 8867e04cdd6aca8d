"""Comparisons as figures: performance profiles, probabilities of improvement, efficiency by steps and by seconds.

Experiments differ in colour, dashes and marker, so that figures can be read in greyscale and by colour-blind readers.
Every legend shows n.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from stoix_like.runtime.figures.style import (
    DASHED,
    DASHES,
    add_legend,
    colours_of,
    make_panels,
    save_figure,
    style_axes,
)
from stoix_like.runtime.results.curves import FEW_SEEDS
from stoix_like.runtime.results.groups import AXES, Axis
from stoix_like.runtime.results.statistics import AggregateScores, Comparison, Efficiency

_MARKERS = "os^Dv"
_LABELS: dict[Axis, str] = {"steps": "environment steps per seed", "seconds": "wall-clock of the run in seconds"}
_BAND = {"alpha": 0.14, "linewidth": 0}
_MARKS = 6  # markers along a curve


def save_figures(comparison: Comparison, folder: Path) -> list[Path]:
    """The paths of the figures of a comparison, written as PNG into a folder. Figures without content are skipped."""
    kinds = {"profiles": profiles_figure, "improvement": improvement_figure, "efficiency": efficiency_figure}
    figures = {f"{kind}_{axis}": draw(comparison, axis) for kind, draw in kinds.items() for axis in AXES}
    return [save_figure(figure, folder / f"{name}.png") for name, figure in figures.items() if figure is not None]


def profiles_figure(comparison: Comparison, axis: Axis) -> Any:
    """Performance profiles at equal budgets: the share of runs above every score; None if there are none."""
    panels = [(title, found) for title, found in _aggregates(comparison, axis) if found.profiles]
    figure, axes = make_panels(len(panels))
    for place, (title, aggregate) in zip(axes, panels, strict=True):
        style_axes(place, title, _score(comparison), "share of runs above")
        for row in aggregate.rows:
            style, share = _style(comparison, row.name), aggregate.profiles[row.name]
            label = f"{row.name} (n={'+'.join(map(str, row.num_runs))})"
            marks = {"markevery": max(1, len(aggregate.thresholds) // _MARKS), "label": label}
            place.plot(aggregate.thresholds, share.point, drawstyle="steps-post", **marks, **style)
            if not np.isnan(share.low).any():
                band = {"step": "post", "color": style["color"], **_BAND}
                place.fill_between(aggregate.thresholds, share.low, share.high, **band)
        place.set_ylim(-0.03, 1.03)
        add_legend(place)
    return figure


def improvement_figure(comparison: Comparison, axis: Axis) -> Any:
    """P(X > Y) of every pair with its interval, at equal budgets; None if there is no pair."""
    panels = [(title, found) for title, found in _aggregates(comparison, axis) if found.pairs]
    figure, axes = make_panels(len(panels))
    for place, (title, aggregate) in zip(axes, panels, strict=True):
        own = {row.name: "+".join(map(str, row.num_runs)) for row in aggregate.rows}
        sizes = own or _sizes(comparison)  # over tasks without a common scale there are no rows
        names = [f"{p.first} (n={sizes[p.first]})\n> {p.second} (n={sizes[p.second]})" for p in aggregate.pairs]
        style_axes(place, title, "P(X > Y)", "")
        place.axvline(0.5, color="0.4", linestyle=DASHED, linewidth=1.1)
        for height, pair in enumerate(aggregate.pairs):
            point, low, high = pair.probability
            if not math.isnan(low):
                place.plot([low, high], [height, height], color="0.25", linewidth=5, solid_capstyle="butt", alpha=0.4)
            place.plot([point], [height], color="0.1", marker="o", markersize=6)
        place.set_yticks(range(len(names)), names, fontsize=9)
        place.set_ylim(len(names) - 0.5, -0.5)
        place.set_xlim(-0.02, 1.02)
    return figure


def efficiency_figure(comparison: Comparison, axis: Axis) -> Any:
    """IQM curves over the budgets that all seeds share, with single seeds if there are few; None without a budget."""
    from stoix_like.runtime.figures.ticks import label_counts

    found = [(result.group.title, result.efficiency[axis]) for result in comparison.results]
    panels = [(title, efficiency) for title, efficiency in found if efficiency is not None]
    figure, axes = make_panels(len(panels))
    for place, (title, efficiency) in zip(axes, panels, strict=True):
        style_axes(place, title, _LABELS[axis], _score(comparison))
        label_counts(place.xaxis)
        for name in efficiency.curves:
            _draw_curve(place, efficiency, name, _style(comparison, name))
        add_legend(place)
    return figure


def _draw_curve(place: Any, efficiency: Efficiency, name: str, style: dict[str, Any]) -> None:
    curve, seeds, moments = efficiency.curves[name], efficiency.seeds[name], efficiency.moments
    num_seeds = seeds.shape[0]
    if 1 < num_seeds < FEW_SEEDS:
        for values in seeds:
            place.plot(moments, values, color=style["color"], linewidth=0.7, alpha=0.45)
    if num_seeds > 1:
        place.fill_between(moments, curve.low, curve.high, color=style["color"], **_BAND)
    marks = {"markevery": max(1, moments.size // _MARKS), "label": f"{name} (n={num_seeds})"}
    place.plot(moments, curve.point, **marks, **style)


def _aggregates(comparison: Comparison, axis: Axis) -> list[tuple[str, AggregateScores]]:
    """(title, aggregate) of every group on one axis, then the one over tasks."""
    found = [(result.group.title, result.aggregates[axis]) for result in comparison.results]
    found.append((f"over {len(comparison.results)} tasks", comparison.over_tasks[axis]))
    at = "steps" if axis == "steps" else "wall-clock"
    return [(f"{title}, at equal {at}", aggregate) for title, aggregate in found if aggregate is not None]


def _names(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(e.name for result in comparison.results for e in result.group.experiments))


def _sizes(comparison: Comparison) -> dict[str, str]:
    """{experiment: number of its seeds}, `3+5` over two tasks."""
    tasks = [{e.name: len(e.series) for e in result.group.experiments} for result in comparison.results]
    return {name: "+".join(str(task[name]) for task in tasks if name in task) for name in _names(comparison)}


def _style(comparison: Comparison, name: str) -> dict[str, Any]:
    """The line style of an experiment, the same in every panel and figure."""
    index = _names(comparison).index(name)
    return {
        "color": colours_of(_names(comparison))[name],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "markersize": 4.5,
        "linewidth": 1.7,
    }


def _score(comparison: Comparison) -> str:
    scaled = any(result.group.scale for result in comparison.results)
    return comparison.metric.replace("_", " ") + (" (normalised)" if scaled else "")
