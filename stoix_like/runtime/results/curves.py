"""Learning curves from the metrics of finished or running runs: one curve per experiment. Draws nothing.

The seeds of a curve belong to one experiment. Runs are pooled only if the algorithm, the task and every leaf that can
change learning or scores are equal, and if no seed occurs twice. Other runs get a curve each, named by what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoix_like.config.checks.values import nearest
from stoix_like.errors import ConfigError
from stoix_like.evaluation import statistics
from stoix_like.runtime.results.experiments import group_experiments
from stoix_like.runtime.results.series import RunRecord, Series

_PREFIXES = ("evaluator", "actor", "trainer", "misc")  # searched in this order for a metric without a prefix
FEW_SEEDS = 5  # with fewer, single seeds are drawn too: a bootstrap over so few is not reliable
_MAX_POINTS = 400  # of a drawn curve; more are not visible


class Curve(NamedTuple):
    """One metric over the seeds of one experiment."""

    name: str  # the label in the legend, without n
    task_id: str  # figures have one panel per task
    key: str  # the metric with its prefix
    seeds: list[Series]  # in full
    timesteps: NDArray[np.float64]  # [K] common to all seeds; empty if the seeds share no range
    iqm: statistics.Interval  # [K], with the 95 % bootstrap interval over seeds


class Curves(NamedTuple):
    """The curves of a metric."""

    evaluation: list[Curve]  # one per experiment, of the first prefix that has the metric
    training: list[Curve]  # of the second prefix that has it: training episodes if the first has evaluations
    missing: list[str]  # experiments without a value of the metric


def metric_keys(runs: Sequence[RunRecord], metric: str) -> list[str]:
    """The keys to look for: a name without a prefix is tried with every prefix in order, a full key only as it is.

    Raises ConfigError, with the nearest name, if no run has the metric.
    """
    wanted = [metric] if "/" in metric else [f"{prefix}/{metric}" for prefix in _PREFIXES]
    if not any(key in run.series for run in runs for key in wanted):
        known = sorted({key for run in runs for key in run.series})
        bare = sorted({key.split("/", maxsplit=1)[1] for key in known})
        guess = nearest(metric, known if "/" in metric else bare)
        hint = f"metrics with values there: {', '.join(bare)}"
        if metric == "mean_return":
            raise ConfigError("no evaluation and no finished episode yet, so there is no mean_return to draw", hint)
        raise ConfigError(f"unknown metric '{metric}'{guess}", hint)
    return wanted


def make_curves(runs: Sequence[RunRecord], metric: str) -> Curves:
    """The curves of a metric, one per experiment: of evaluations, and of training episodes to draw with them.

    A name without a prefix is looked up under evaluator/, actor/, trainer/, misc/ in this order, per experiment. A full
    key such as `evaluator_network/mean_return` is used as it is. Seeds without a value are not counted in n.
    """
    wanted = metric_keys(runs, metric)
    curves = Curves([], [], [])
    for name, members in group_experiments(runs):
        keys = [key for key in wanted if any(key in run.series for run in members)]
        if not keys:
            curves.missing.append(f"{name} · {members[0].task_id}")
        for key, place in zip(keys, (curves.evaluation, curves.training), strict=False):
            found = [by_seed[seed] for run in members if (by_seed := run.series.get(key)) for seed in sorted(by_seed)]
            place.append(make_curve(name, members[0].task_id, key, found))
    return curves


def make_curve(name: str, task_id: str, key: str, series: Sequence[Series]) -> Curve:
    """The curve over seeds on the timesteps they share. Each seed is interpolated linearly between its own points.

    Nothing is extrapolated: the common range ends with the shortest seed.
    """
    grid = common_grid([one.timesteps for one in series])  # [K]
    if grid.size == 0:
        empty = np.empty(0)
        return Curve(name, task_id, key, list(series), empty, statistics.Interval(empty, empty, empty))
    aligned = np.stack([np.interp(grid, one.timesteps, one.values) for one in series])  # [R, K]
    return Curve(name, task_id, key, list(series), grid, statistics.bootstrap_curve(aligned))


def common_grid(axes: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """[K] sorted points of all axes, which increase, within the range that they share; empty if they share none."""
    first, last = max(axis[0] for axis in axes), min(axis[-1] for axis in axes)
    union = np.unique(np.concatenate(axes))
    grid = union[(union >= first) & (union <= last)]  # [K]
    if grid.size > _MAX_POINTS:
        grid = grid[np.linspace(0, grid.size - 1, _MAX_POINTS).round().astype(int)]
    return grid
