"""Learning curves from the metrics of finished or running runs: read, grouped, aligned and summarised. Draws nothing.

A curve stands for seeds of one experiment: runs are pooled only if algorithm, task and every leaf that can change
learning or its score are equal and no seed comes twice. Otherwise each gets a curve of its own, named by what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoix_like.config.values import nearest
from stoix_like.errors import ConfigError
from stoix_like.evaluation import statistics
from stoix_like.runtime.results.experiments import group_experiments
from stoix_like.runtime.results.series import RunRecord, Series

_PREFIXES = ("evaluator", "actor", "trainer", "misc")  # where a bare name is looked for; the first found is quoted
FEW_SEEDS = 5  # with fewer, single seeds are shown: a bootstrap of so few says too little
_MOST_POINTS = 400  # of a drawn curve; more cannot be seen


class Curve(NamedTuple):
    """One metric over the seeds of one experiment.

    Attributes:
        name: what the legend says, without n.
        task_id: the task, one panel each.
        key: the metric with its prefix.
        seeds: every seed's own series, in full.
        timesteps: [K] common to all seeds; empty if they share no range.
        iqm: point, low, high [K]; low and high are the 95 % bootstrap interval over seeds.
    """

    name: str
    task_id: str
    key: str
    seeds: list[Series]
    timesteps: NDArray[np.float64]
    iqm: statistics.Interval


class Curves(NamedTuple):
    """Curves to quote, curves to show beside them, and the experiments that have no value of the metric."""

    evaluation: list[Curve]
    training: list[Curve]
    missing: list[str]


def metric_keys(runs: Sequence[RunRecord], metric: str) -> list[str]:
    """Where a metric is looked for, the first first: a bare name with every prefix, a full key only as itself.

    Raises:
        ConfigError: no run has the metric; the message names the nearest one.
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
    """The curves of a metric, one experiment each: evaluations are evaluation, training episodes shown beside them.

    A bare name is looked for under evaluator/, actor/, trainer/ in this order, per experiment; a full key such as
    `evaluator_network/mean_return` means only itself. Seeds without a value yet are left out of n.

    Raises:
        ConfigError: no run has the metric; the message names the nearest one.
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
    """The curve of some seeds on the timesteps they share, by linear interpolation between a seed's own points.

    Nothing is extrapolated: the common range ends with the shortest seed.
    """
    grid = common_grid([one.timesteps for one in series])  # [K]
    if grid.size == 0:
        nothing = np.empty(0)
        return Curve(name, task_id, key, list(series), nothing, statistics.Interval(nothing, nothing, nothing))
    aligned = np.stack([np.interp(grid, one.timesteps, one.values) for one in series])  # [R, K]
    return Curve(name, task_id, key, list(series), grid, statistics.bootstrap_curve(aligned))


def common_grid(axes: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """[K] points of the range that all axes share, from its first to its last; empty if they share none.

    Args:
        axes: rising numbers, [K] each.
    """
    first, last = max(axis[0] for axis in axes), min(axis[-1] for axis in axes)
    union = np.unique(np.concatenate(axes))
    grid = union[(union >= first) & (union <= last)]  # [K]
    if grid.size > _MOST_POINTS:
        grid = grid[np.linspace(0, grid.size - 1, _MOST_POINTS).round().astype(int)]
    return grid
