"""Pictures of runs: learning curves (PNG, PDF, SVG) and animated episodes (GIF). The door to matplotlib and pillow;
comparisons are drawn in `comparison_figures.py`.

Files are written whole or not at all: into a temporary file beside the target, then renamed. Figures are made without
pyplot, so that nothing global changes in a notebook.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stoix_like.errors import ConfigError, RunError, UnsupportedEnvironmentError
from stoix_like.runtime.console.text import number_text
from stoix_like.runtime.curves import Curve, Curves, load_run, make_curves
from stoix_like.runtime.storage.atomic import written_picture
from stoix_like.types import Environment, EnvState

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito: safe for colour-blind
_FORMATS = (".png", ".pdf", ".svg")
FEW_SEEDS = 5  # below it single seeds are drawn: a bootstrap of so few says too little


class Line(NamedTuple):
    """Points joined by a line, each with an interval around it; NaN where there is none."""

    name: str
    x: Sequence[float]  # above 0: the axis is logarithmic
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


class Panel(NamedTuple):
    """One pair of axes: lines, and levels that hold for every x."""

    title: str
    lines: Sequence[Line]
    levels: Mapping[str, float]


class PlotSummary(NamedTuple):
    """Where the figure is, and the same content as text. `str(summary)` is the table."""

    path: Path
    table: str

    def __str__(self) -> str:
        return self.table


def plot_runs(run_dirs: Sequence[Path], out: Path, metric: str = "mean_return") -> PlotSummary:
    """The learning curves of one or many runs: a figure at `out` and a table to print.

    One panel per task and one colour per experiment (see `curves`): the interquartile mean over seeds against
    environment steps of one seed, with its 95 % bootstrap interval, and n in the legend. Evaluations are solid,
    training episodes dashed; with fewer than five seeds each is drawn as a thin line.

    Args:
        run_dirs: run folders; running ones too.
        out: the figure; .png, .pdf or .svg.
        metric: a name such as mean_return, solve_rate or entropy, or a full key such as evaluator_sampled/mean_return.

    Raises:
        ConfigError: no runs, no such run, an unknown metric or format.
        RunError: a run without metrics yet, or a figure that cannot be written.
    """
    if not run_dirs:
        raise ConfigError("no run to plot", "give one or more run folders, for example runs/<name>")
    check_format(out)
    curves = make_curves([load_run(Path(path)) for path in run_dirs], metric)
    figure = curves_figure(curves, metric)
    with written_picture(out) as temporary:
        figure.savefig(temporary, dpi=150)
    return PlotSummary(out, _table(curves, metric))


def check_format(out: Path) -> None:
    """Nothing, if a figure can be written in the format of that name.

    Raises:
        ConfigError: it cannot.
    """
    if out.suffix.lower() not in _FORMATS:
        raise ConfigError(f"{out}: unknown figure format '{out.suffix}'", f"use one of {', '.join(_FORMATS)}")


def plot_panels(panels: Sequence[Panel], out: Path, x_label: str, y_label: str) -> Path:
    """The figure at `out`: panels side by side that share the y axis, their lines over a logarithmic x axis. A name has
    the same colour in all of them.

    Raises:
        ConfigError: an unknown format.
        RunError: the figure cannot be written.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    check_format(out)
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    figure = Figure(figsize=(6.4 * len(panels), 4.2), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels, strict=True):
        prepare(axes, panel.title, x_label, y_label)
        axes.set_xscale("log")
        for (name, level), dashes in zip(panel.levels.items(), itertools.cycle(((4, 2), (1, 2)))):
            axes.axhline(level, color="0.4", linestyle=(0, dashes), linewidth=1.1, label=name)
        for line in panel.lines:
            y = np.asarray(line.y)
            reach = np.stack([y - line.low, line.high - y])
            style: dict[str, Any] = {"color": colours[line.name], "marker": "o", "markersize": 4, "capsize": 3}
            axes.errorbar(line.x, y, yerr=reach, label=line.name, linewidth=1.6, **style)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))  # 20, not 2 x 10^1
        axes.legend(fontsize=9, edgecolor="none")
    with written_picture(out) as temporary:
        figure.savefig(temporary, dpi=150)
    return out


def page_png(figure: Any) -> bytes:
    """A figure of matplotlib as the content of a PNG file for a page: small panels with sharp lines, so that their
    text can be read where a panel is as wide as a phone."""
    buffer = io.BytesIO()
    figure.set_size_inches(4.6 * len(figure.axes), 3.0)
    figure.savefig(buffer, format="png", dpi=180)
    return buffer.getvalue()


def save_gif(env: Environment, states: list[EnvState], path: Path) -> Path:
    """The GIF at `path` of an episode, one frame per state, in the environment's own drawing.

    Raises:
        UnsupportedEnvironmentError: the environment cannot be drawn.
        RunError: there are no states, or the file cannot be written.
    """
    if env.animate is None:
        raise UnsupportedEnvironmentError(
            f"{env.task_id} cannot be drawn: it has no `animate`", "give Environment.animate, or choose another task"
        )
    if not states:
        raise RunError("an animation needs at least one state", "record an episode first")
    with written_picture(path.with_suffix(".gif")) as temporary, _headless():
        env.animate(states, str(temporary))
    return path.with_suffix(".gif")


def curves_figure(curves: Curves, metric: str, captioned: bool = False) -> Any:
    """The curves as a figure of matplotlib: what `plot_runs` draws; without task and metric where a caption
    beside it names them."""
    from matplotlib.figure import Figure  # here: half a second that only plotting needs
    from matplotlib.lines import Line2D
    from matplotlib.ticker import EngFormatter

    tasks = list(dict.fromkeys(curve.task_id for curve in curves.quoted))
    names = list(dict.fromkeys(curve.name for curve in curves.quoted))
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    figure = Figure(figsize=(6.4 * len(tasks), 4.2), layout="constrained")
    panels = figure.subplots(1, len(tasks), squeeze=False)[0]
    for panel, task_id in zip(panels, tasks, strict=True):
        named = ("", "") if captioned else (task_id, metric.replace("_", " "))
        prepare(panel, named[0], "environment steps per seed", named[1])
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        beside = [curve for curve in curves.beside if curve.task_id == task_id]
        for curve in beside:
            panel.plot(
                curve.timesteps, curve.iqm.point, color=colours[curve.name], linestyle=(0, (4, 2)), linewidth=1.1
            )
        for curve in (curve for curve in curves.quoted if curve.task_id == task_id):
            _draw(panel, curve, colours[curve.name])
        handles = panel.get_legend_handles_labels()[0]
        if beside:  # dashed lines exist only beside solid ones: one grey entry explains them all
            handles.append(Line2D([], [], color="0.4", linestyle=(0, (4, 2)), linewidth=1.1, label="training episodes"))
        panel.legend(handles=handles, frameon=False, fontsize=9)
    return figure


def prepare(panel: Any, title: str, x_label: str, y_label: str) -> None:
    """Gives axes of matplotlib the look of all our figures."""
    panel.set_title(title, fontsize=11, loc="left")
    panel.set_xlabel(x_label)
    panel.set_ylabel(y_label)
    panel.grid(True, color="0.9", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _draw(panel: Any, curve: Curve, colour: str) -> None:
    """The quoted curve: interval, single seeds if there are few, and the line that carries the legend."""
    num_seeds = len(curve.seeds)
    marker = "o" if curve.timesteps.size < 3 else None  # a line of one point would not be seen
    if num_seeds < FEW_SEEDS and (num_seeds > 1 or not curve.timesteps.size):
        for one in curve.seeds:
            panel.plot(one.timesteps, one.values, color=colour, linewidth=0.8, alpha=0.45)
    if num_seeds > 1:
        panel.fill_between(curve.timesteps, curve.iqm.low, curve.iqm.high, color=colour, alpha=0.16, linewidth=0)
    label = f"{curve.name} (n={num_seeds})"
    panel.plot(curve.timesteps, curve.iqm.point, color=colour, linewidth=1.9, marker=marker, label=label)


def _table(curves: Curves, metric: str) -> str:
    """One line per quoted curve: name, task, n, the final IQM with its interval, the best IQM on the way."""
    head = ("experiment", "task", "metric", "n", "final IQM", "95 % interval", "best IQM", "at step")
    lines = [head, *(_table_line(curve) for curve in curves.quoted)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text += [f"{name}: no values of {metric} yet" for name in curves.missing]
    if any(len(curve.seeds) < 4 for curve in curves.quoted):
        text.append("with n < 4 the interquartile mean trims nothing: it is the plain mean")
    return "\n".join(text)


def _table_line(curve: Curve) -> tuple[str, ...]:
    identity = curve.name, curve.task_id, curve.key, str(len(curve.seeds))
    if not curve.timesteps.size:
        return (*identity, "no common steps yet", "–", "–", "–")
    point, low, high = (float(part[-1]) for part in curve.iqm)
    best = int(curve.iqm.point.argmax())
    interval = "–" if math.isnan(low) else f"[{number_text(low)}, {number_text(high)}]"
    at_best = number_text(float(curve.iqm.point[best])), f"{curve.timesteps[best]:,.0f}"
    return (*identity, number_text(point), interval, *at_best)


@contextlib.contextmanager
def _headless() -> Iterator[None]:
    """matplotlib without windows, and without its remark that pillow writes instead of ffmpeg; restored after."""
    import matplotlib

    before = matplotlib.get_backend(auto_select=False)
    logger = logging.getLogger("matplotlib.animation")
    level = logger.level
    matplotlib.use("Agg")
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        if before is not None:
            matplotlib.use(before, force=False)
