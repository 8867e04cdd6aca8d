"""Learning curves of runs, as a figure and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stoix_like.errors import ConfigError
from stoix_like.runtime.console.text import DASH, aligned, interval_text, number_text
from stoix_like.runtime.figures.style import (
    DASHED,
    add_legend,
    check_format,
    colours_of,
    make_panels,
    save_figure,
    style_axes,
)
from stoix_like.runtime.results.curves import FEW_SEEDS, Curve, Curves, make_curves
from stoix_like.runtime.results.series import read_run


class PlotSummary(NamedTuple):
    """The path of the figure, and a table of the same curves. `str(summary)` is the table."""

    path: Path
    table: str

    def __str__(self) -> str:
        return self.table


def plot_runs(run_dirs: Sequence[Path], out: Path, metric: str = "mean_return") -> PlotSummary:
    """Plots the learning curves of runs into `out`; returns the path and a table to print.

    The figure has one panel per task and one colour per experiment (see `curves`). It shows the interquartile mean over
    seeds against the environment steps of one seed, with its 95 % bootstrap interval, and n in the legend. Evaluations
    are solid, training episodes dashed. With fewer than five seeds each seed is drawn as a thin line.

    Args:
        run_dirs: run folders; they may still be running.
        out: the figure; .png, .pdf or .svg.
        metric: a name such as mean_return, solve_rate or entropy, or a full key such as evaluator_sampled/mean_return.

    Raises ConfigError if there are no runs, or the metric or format is unknown, and RunError if a run has no metrics
    yet, or the figure cannot be written.
    """
    if not run_dirs:
        raise ConfigError("no run to plot", "give one or more run folders, for example runs/<name>")
    check_format(out)  # before runs are read
    curves = make_curves([read_run(Path(path)) for path in run_dirs], metric)
    figure = curves_figure(curves, metric)
    return PlotSummary(save_figure(figure, out), _table(curves, metric))


def curves_figure(curves: Curves, metric: str, captioned: bool = False) -> Any:
    """The curves as a matplotlib figure with one panel per task. A `captioned` one leaves out task and metric."""
    from matplotlib.lines import Line2D

    from stoix_like.runtime.figures.ticks import label_counts

    tasks = list(dict.fromkeys(curve.task_id for curve in curves.evaluation))
    colours = colours_of(curve.name for curve in curves.evaluation)
    figure, panels = make_panels(len(tasks))
    for panel, task_id in zip(panels, tasks, strict=True):
        named = ("", "") if captioned else (task_id, metric.replace("_", " "))
        style_axes(panel, named[0], "environment steps per seed", named[1])
        label_counts(panel.xaxis)
        training = [curve for curve in curves.training if curve.task_id == task_id]
        for curve in training:
            panel.plot(curve.timesteps, curve.iqm.point, color=colours[curve.name], linestyle=DASHED, linewidth=1.1)
        for curve in (curve for curve in curves.evaluation if curve.task_id == task_id):
            _draw(panel, curve, colours[curve.name])
        handles = panel.get_legend_handles_labels()[0]
        if training:  # one grey entry in the legend explains all dashed lines
            handles.append(Line2D([], [], color="0.4", linestyle=DASHED, linewidth=1.1, label="training episodes"))
        add_legend(panel, handles)
    return figure


def _draw(panel: Any, curve: Curve, colour: str) -> None:
    """Draws a curve: its interval, single seeds if there are few, and the line with the label.

    The line is dashed where there are only training episodes, such as before the first evaluation.
    """
    num_seeds = len(curve.seeds)
    marker = "o" if curve.timesteps.size < 3 else None  # a line of one point is not visible
    if num_seeds < FEW_SEEDS and (num_seeds > 1 or not curve.timesteps.size):
        for one in curve.seeds:
            panel.plot(one.timesteps, one.values, color=colour, linewidth=0.8, alpha=0.45)
    if num_seeds > 1:
        panel.fill_between(curve.timesteps, curve.iqm.low, curve.iqm.high, color=colour, alpha=0.16, linewidth=0)
    kind = ", training episodes" if _is_training(curve) else ""
    style = {"color": colour, "linewidth": 1.9, "linestyle": DASHED if kind else "solid", "marker": marker}
    panel.plot(curve.timesteps, curve.iqm.point, label=f"{curve.name} (n={num_seeds}){kind}", **style)


def _is_training(curve: Curve) -> bool:
    return curve.key.startswith("actor/")


def _table(curves: Curves, metric: str) -> str:
    """One line per curve of evaluations: name, task, n, the final IQM with its interval, and the best IQM."""
    head = ("experiment", "task", "metric", "n", "final IQM", "95 % interval", "best IQM", "at step")
    text = aligned([head, *(_table_line(curve) for curve in curves.evaluation)])
    text += [f"{name}: no values of {metric} yet" for name in curves.missing]
    if not all(map(_is_training, curves.evaluation)):
        early = [curve for curve in curves.evaluation if _is_training(curve)]
        text += [f"{curve.name}: not evaluated yet; {curve.key} is of training episodes" for curve in early]
    if any(len(curve.seeds) < 4 for curve in curves.evaluation):
        text.append("with n < 4 the interquartile mean trims nothing: it is the plain mean")
    return "\n".join(text)


def _table_line(curve: Curve) -> tuple[str, ...]:
    identity = curve.name, curve.task_id, curve.key, str(len(curve.seeds))
    if not curve.timesteps.size:
        return (*identity, "no common steps yet", DASH, DASH, DASH)
    point, low, high = (float(part[-1]) for part in curve.iqm)
    best = int(curve.iqm.point.argmin() if curve.key.endswith("_loss") else curve.iqm.point.argmax())
    at_best = number_text(float(curve.iqm.point[best])), f"{curve.timesteps[best]:,.0f}"
    return (*identity, number_text(point), interval_text(low, high), *at_best)
