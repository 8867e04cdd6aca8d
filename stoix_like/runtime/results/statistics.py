"""Statistics of the experiments in groups, at equal budgets and over the course of training.

On one task an experiment is aggregated over its seeds. Over several tasks scores are aggregated only if they share a
scale. The probability of improvement needs no common scale.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoix_like.evaluation import comparison, statistics
from stoix_like.evaluation.statistics import Interval
from stoix_like.runtime.results.groups import AXES, Axis, ComparisonGroup, budget_notes, common_budgets, scores_at

_NUM_THRESHOLDS = 101
_FEW_RUNS = 3  # up to this number, a note says that intervals are unreliable

Strata = Mapping[str, Sequence[NDArray[np.float64]]]  # {experiment: [R] per task}


class ExperimentScores(NamedTuple):
    """One experiment: its scores, [R] per task, and their aggregates with 95 % intervals over seeds."""

    name: str
    scores: Sequence[NDArray[np.float64]]
    iqm: Interval
    mean: Interval
    median: Interval
    optimality_gap: Interval | None  # to 1; None if 1 is not the target

    @property
    def num_runs(self) -> tuple[int, ...]:
        """R of each task."""
        return tuple(values.size for values in self.scores)


class PairwiseProbability(NamedTuple):
    """The probability that a run of the first experiment scores above a run of the second."""

    first: str
    second: str
    probability: Interval


class AggregateScores(NamedTuple):
    """The aggregated scores of experiments at one budget.

    Attributes:
        budgets: environment steps or seconds, one per task.
        rows: one per experiment. Over tasks without a common scale rows and profiles are empty.
        pairs: every pair of experiments once, in the order of the rows.
        thresholds: [K], of the profiles.
        profiles: {experiment: share of runs above each threshold, [K]}.
    """

    budgets: Sequence[float]
    rows: Sequence[ExperimentScores]
    pairs: Sequence[PairwiseProbability]
    thresholds: NDArray[np.float64]
    profiles: Mapping[str, Interval]


class Efficiency(NamedTuple):
    """IQM curves of experiments over the budgets that all their seeds share."""

    moments: NDArray[np.float64]  # [K]
    curves: Mapping[str, Interval]  # of [K]
    seeds: Mapping[str, NDArray[np.float64]]  # [R, K]


class GroupResult(NamedTuple):
    """A group with its results by axis; None where the seeds share no budget."""

    group: ComparisonGroup
    aggregates: Mapping[Axis, AggregateScores | None]
    efficiency: Mapping[Axis, Efficiency | None]


class Comparison(NamedTuple):
    """The comparison of some runs.

    Attributes:
        metric: as it was requested.
        results: one per group.
        over_tasks: by axis, over the experiments that are in every group; None if there is one group.
        notes: what was left out, what is uncertain, and what differs between runs.
    """

    metric: str
    results: Sequence[GroupResult]
    over_tasks: Mapping[Axis, AggregateScores | None]
    notes: Sequence[str]


def compare(metric: str, groups: Sequence[ComparisonGroup], notes: Sequence[str] = ()) -> Comparison:
    """The comparison of experiments in groups.

    Args:
        metric: as it was requested.
        groups: one or more.
        notes: put before those of the comparison.
    """
    all_notes = list(notes)
    results = [_result(group, all_notes) for group in groups]
    over_tasks: dict[Axis, AggregateScores | None] = dict.fromkeys(AXES)
    if len(groups) > 1:
        over_tasks = {axis: _over_tasks(results, axis, all_notes) for axis in AXES}
    all_notes += _few_seeds(groups)
    return Comparison(metric, results, over_tasks, list(dict.fromkeys(all_notes)))


def _result(group: ComparisonGroup, notes: list[str]) -> GroupResult:
    aggregates: dict[Axis, AggregateScores | None] = dict.fromkeys(AXES)
    efficiency: dict[Axis, Efficiency | None] = dict.fromkeys(AXES)
    for axis in AXES:
        budgets = common_budgets(group, axis)
        found = budget_notes(group, axis, budgets)
        if budgets is not None:
            found += group.clock_notes if axis == "seconds" else ()
            strata = {entry.name: [scores_at(entry, axis, budgets[-1:])[:, 0]] for entry in group.experiments}
            aggregates[axis] = aggregate(strata, budgets[-1:].tolist(), group.is_on_unit_scale)
            seeds = {entry.name: scores_at(entry, axis, budgets) for entry in group.experiments}
            curves = {name: statistics.bootstrap_curve(table) for name, table in seeds.items()}
            efficiency[axis] = Efficiency(budgets, curves, seeds)
        notes += [f"{group.title}: {note}" for note in found]
    return GroupResult(group, aggregates, efficiency)


def aggregate(strata: Strata, budgets: Sequence[float], is_on_unit_scale: bool) -> AggregateScores:
    """The aggregated scores of experiments: on one task in any unit, over several tasks on a common scale."""
    rows = [_row(name, scores, is_on_unit_scale) for name, scores in strata.items()]
    thresholds = _thresholds([values for scores in strata.values() for values in scores], is_on_unit_scale)
    profiles = {name: comparison.performance_profile(scores, thresholds) for name, scores in strata.items()}
    return AggregateScores(list(budgets), rows, _pairs(strata), thresholds, profiles)


def _row(name: str, scores: Sequence[NDArray[np.float64]], has_gap: bool) -> ExperimentScores:
    interval = functools.partial(comparison.stratified_interval, scores)
    gap = interval(comparison.optimality_gap) if has_gap else None
    iqm, mean, median = map(interval, (comparison.iqm, comparison.mean, comparison.median))
    return ExperimentScores(name, scores, iqm, mean, median, gap)


def _pairs(strata: Strata) -> list[PairwiseProbability]:
    return [
        PairwiseProbability(first, second, comparison.improvement_interval(strata[first], strata[second]))
        for first, second in itertools.combinations(strata, 2)
    ]


def _thresholds(scores: Sequence[NDArray[np.float64]], is_on_unit_scale: bool) -> NDArray[np.float64]:
    """[K] thresholds from below the lowest score to above the highest, or over [0, 1] on the unit scale."""
    every = np.concatenate(scores)
    low, high = float(every.min()), float(every.max())
    margin = 0.05 * ((high - low) or abs(high) or 1.0)
    if is_on_unit_scale:
        return np.linspace(min(0.0, low), max(1.0, high), _NUM_THRESHOLDS)
    return np.linspace(low - margin, high + margin, _NUM_THRESHOLDS)


def _over_tasks(results: Sequence[GroupResult], axis: Axis, notes: list[str]) -> AggregateScores | None:
    """The aggregate over all tasks, of the experiments that have runs on every task."""
    aggregates = [found for result in results if (found := result.aggregates[axis]) is not None]
    if len(aggregates) < len(results):
        notes.append(f"nothing is compared over tasks at equal {axis}: a task has no common {axis}")
        return None
    scores = [{row.name: row.scores[0] for row in aggregate.rows} for aggregate in aggregates]
    everywhere = [name for name in scores[0] if all(name in task for task in scores)]
    missing = sorted({name for task in scores for name in task} - set(everywhere))
    notes += [f"{name} is left out over tasks: not every task has runs of that name" for name in missing]
    if not everywhere:
        return None
    strata = {name: [task[name] for task in scores] for name in everywhere}
    budgets = [aggregate.budgets[0] for aggregate in aggregates]
    uneven = [name for name, values in strata.items() if len({value.size for value in values}) > 1]
    without_scale = [result.group.title for result in results if not result.group.is_on_unit_scale]
    if without_scale:
        notes.append(
            f"scores are not aggregated over tasks: {', '.join(without_scale)} has no scale in common with others; "
            "--normalise TASK MIN MAX gives one"
        )
        return AggregateScores(budgets, [], _pairs(strata), np.empty(0), {})
    notes += [f"{name}: a task with more runs weighs more in the IQM over tasks" for name in uneven]
    return aggregate(strata, budgets, is_on_unit_scale=True)


def _few_seeds(groups: Sequence[ComparisonGroup]) -> list[str]:
    notes = []
    for group in groups:
        sizes = {entry.name: len(entry.series) for entry in group.experiments}
        single = [name for name, size in sizes.items() if size == 1]
        few = [f"{name} ({size})" for name, size in sizes.items() if 1 < size <= _FEW_RUNS]
        if single:
            notes.append(f"{group.title}: {', '.join(single)}: one seed, so no interval: nothing can be concluded")
        if few:
            notes.append(
                f"{group.title}: {', '.join(few)}: an interval over 2 or 3 seeds says little; it is too narrow, and "
                "the interquartile mean of so few trims nothing"
            )
    return notes
