"""Groups the experiments that may be compared, and aligns their scores at equal budgets. Computes no statistics.

The scores of a group mean the same: one task of one size, one level set, one metric. Runs that fit no group are left
out or compared separately, with a note. Scores are taken at points that all seeds of a group have reached. Between the
evaluations of a seed they are interpolated linearly; they are never extrapolated.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoix_like.config.sections.roles import Role
from stoix_like.config.sections.tables import LEAF_ROLES
from stoix_like.evaluation import comparison
from stoix_like.runtime.results import curves
from stoix_like.runtime.results.experiments import differing_leaves, group_experiments, split_by
from stoix_like.runtime.results.series import RunRecord, Series

Axis = Literal["steps", "seconds"]  # environment steps of one seed, wall-clock of its run
AXES: tuple[Axis, Axis] = ("steps", "seconds")
Scale = tuple[float, float]  # the scores that become 0 and 1

#: Metrics that lie in [0, 1] and mean the same on every task that has them.
UNIT_METRICS = ("solve_rate", "utilisation")
_TASK_LEAVES = [name for name, roles in LEAF_ROLES.items() if roles & Role.TASK]
_SHORT = 0.95  # if the common range is shorter than this share of the longest seed, a note names the shortest seed


class Experiment(NamedTuple):
    """The seeds of one experiment: [R] series with their sources."""

    name: str
    series: list[Series]
    sources: list[str]  # "runs/a, seed 3"


class ComparisonGroup(NamedTuple):
    """Experiments that may be compared.

    Attributes:
        title: the task, and how it differs from other groups of the same task.
        key: the metric with its prefix.
        scale: the scores that became 0 and 1; None if scores are not normalised.
        clock_notes: notes that apply to results at equal wall-clock.
    """

    title: str
    key: str
    experiments: list[Experiment]
    scale: Scale | None = None
    clock_notes: tuple[str, ...] = ()

    @property
    def is_on_unit_scale(self) -> bool:
        """Whether scores lie on a scale that groups share, on which 1 is the target."""
        return self.scale is not None or self.key.rpartition("/")[2] in UNIT_METRICS


class GroupedRuns(NamedTuple):
    """The groups of some runs, and notes on runs that were left out or compared separately."""

    groups: list[ComparisonGroup]
    notes: list[str]


def comparison_groups(runs: Sequence[RunRecord], metric: str, scales: Mapping[str, Scale] | None = None) -> GroupedRuns:
    """The groups of runs that have a metric, in the order of the runs.

    A metric without a prefix is looked up as `plot.py` does, but once per group: evaluations of one experiment are
    never compared with training episodes of another.

    Args:
        runs: of `series.read_run`.
        metric: a name such as mean_return, or a full key.
        scales: {task: (score that becomes 0, score that becomes 1)}.

    Raises:
        ConfigError: no run has the metric.
    """
    wanted = curves.metric_keys(runs, metric)
    found = GroupedRuns([], [])
    tasks = split_by(runs, lambda run: (run.task_id, *map(run.leaves.get, _TASK_LEAVES)))
    for members in tasks:
        key = next((key for key in wanted if any(key in run.series for run in members)), None)
        scale = (scales or {}).get(members[0].task_id)
        siblings = [other[0] for other in tasks if other[0].task_id == members[0].task_id]
        title = _title(members[0], siblings)
        if key is None:
            found.notes.append(f"{title}: no run has values of {metric} yet")
            continue
        groups = split_by(_with_values(members, key, found.notes), functools.partial(_levels, key))
        for group in groups:
            full_title = f"{title} · levels {_levels(key, group[0])[0] or 'fresh'}" if len(groups) > 1 else title
            found.groups.append(_comparison_group(full_title, key, group, scale))
        if len(groups) > 1:
            found.notes.append(f"{title}: runs were scored on different levels of one name: compared separately")
    titles = [group.title for group in found.groups]
    if len(tasks) > len({run.task_id for run in runs}):
        found.notes.append(f"other sizes or levels of a task are another group: {'; '.join(titles)}")
    return found


def _levels(key: str, run: RunRecord) -> tuple[str | None, ...]:
    return run.level_hashes.get(key.partition("/")[0], (None,))


def _title(run: RunRecord, siblings: Sequence[RunRecord]) -> str:
    unequal = [name for name in differing_leaves([other.leaves for other in siblings]) if name in _TASK_LEAVES]
    return " · ".join([run.task_id, *(f"{name} {run.leaves.get(name)}" for name in unequal)])


def _with_values(runs: Sequence[RunRecord], key: str, notes: list[str]) -> list[RunRecord]:
    """The runs that have values, all on one level set. A note is added for every run or seed that is left out."""
    kept = []
    for run in runs:
        missing = sorted(run.seeds - set(run.series.get(key, {})))
        if key not in run.series:
            notes.append(f"{run.path} is left out: it has no values of {key} yet")
        elif len(_levels(key, run)) > 1:
            names = ", ".join(name or "fresh" for name in _levels(key, run))
            notes.append(f"{run.path} is left out: its level set changed during training ({names})")
        else:
            kept.append(run)
            if missing:
                notes.append(f"{run.path}: seed {', '.join(map(str, missing))} has no values of {key} yet")
    return kept


def _comparison_group(title: str, key: str, runs: Sequence[RunRecord], scale: Scale | None) -> ComparisonGroup:
    entries = [Experiment(name, *_seeds(members, key, scale)) for name, members in group_experiments(runs)]
    clock_notes = []
    if len(devices := {run.device for run in runs}) > 1:
        clock_notes.append(f"the clocks ran on different devices: {', '.join(sorted(devices))}")
    if len(counts := {run.start.get("num_seeds", 1) for run in runs}) > 1:
        numbers = ", ".join(map(str, sorted(counts)))
        clock_notes.append(f"seeds side by side share a clock, and the runs have different numbers of them: {numbers}")
    return ComparisonGroup(title, key, entries, scale, clock_notes=tuple(clock_notes))


def _seeds(runs: Sequence[RunRecord], key: str, scale: Scale | None) -> tuple[list[Series], list[str]]:
    series, sources = [], []
    for run in runs:
        for seed, one in sorted(run.series[key].items()):
            series.append(one if scale is None else one._replace(values=comparison.normalised(one.values, *scale)))
            sources.append(f"{os.path.relpath(run.path) if run.path.is_absolute() else run.path}, seed {seed}")
    return series, sources


def common_budgets(group: ComparisonGroup, axis: Axis) -> NDArray[np.float64] | None:
    """[K] budgets that all seeds share, the largest last; None if they share none, or if a row has no wall-clock."""
    axes = [axis_values(one, axis) for experiment in group.experiments for one in experiment.series]
    if not all(np.isfinite(moments).all() for moments in axes):
        return None
    budgets = curves.common_grid(axes)
    return budgets if budgets.size else None


def axis_values(series: Series, axis: Axis) -> NDArray[np.float64]:
    """[K] steps or seconds at which a seed was scored, not decreasing."""
    return series.timesteps if axis == "steps" else np.maximum.accumulate(series.seconds)


def scores_at(experiment: Experiment, axis: Axis, moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """[R, K] scores of the seeds at K moments within their ranges."""
    return np.stack([np.interp(moments, axis_values(one, axis), one.values) for one in experiment.series])


def budget_notes(group: ComparisonGroup, axis: Axis, budgets: NDArray[np.float64] | None) -> list[str]:
    """A note on the seed that ends the common range much earlier than others, or on why there is no common range."""
    named = [
        (axis_values(s, axis), source) for e in group.experiments for s, source in zip(e.series, e.sources, strict=True)
    ]
    if budgets is None and not all(np.isfinite(moments).all() for moments, _ in named):
        return ["some rows have no elapsed_seconds: nothing is compared at equal wall-clock"]
    shortest, source = min(((float(moments[-1]), name) for moments, name in named), key=lambda entry: entry[0])
    longest = max(float(moments[-1]) for moments, _ in named)
    if budgets is None:
        first, late = max(((float(moments[0]), name) for moments, name in named), key=lambda entry: entry[0])
        ends = f"{source} ends at {shortest:,.0f}, before {late} is first scored at {first:,.0f}"
        return [f"no common {axis}: {ends}; leave one of the two out"]
    if shortest < _SHORT * longest:
        return [f"common {axis} end at {shortest:,.0f} with {source}; the longest go on to {longest:,.0f}"]
    return []
