"""How experiments stand against each other: the statistics of groups, at equal budgets and on the way there.

On one task every row is about its seeds. Over several tasks scores are aggregated only if they have one scale; how
often one experiment beats another needs none.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoix_like.evaluation import comparison, statistics
from stoix_like.evaluation.statistics import Interval
from stoix_like.runtime.results.groups import AXES, Axis, Budget, ComparisonGroup, budget_notes, budget_of, scores_at

_NUM_THRESHOLDS = 101
_FEW_RUNS = 3  # up to which an interval is told to say little

Strata = Mapping[str, Sequence[NDArray[np.float64]]]  # {experiment: [R] per task}


class ExperimentScores(NamedTuple):
    """One experiment: its scores, [R] per task, and what they come to, with 95 % intervals over seeds."""

    name: str
    scores: Sequence[NDArray[np.float64]]
    iqm: Interval
    mean: Interval
    median: Interval
    optimality_gap: Interval | None  # to 1; None where 1 is no aim

    @property
    def num_runs(self) -> tuple[int, ...]:
        """R of each task."""
        return tuple(values.size for values in self.scores)


class PairwiseProbability(NamedTuple):
    """How often a run of the first is above one of the second."""

    first: str
    second: str
    probability: Interval


class AggregateScores(NamedTuple):
    """Experiments at one budget.

    Attributes:
        axis: what the budgets are of.
        budgets: environment steps or seconds, one per task.
        rows: empty over tasks whose scores have no common scale, and so are the profiles.
        pairs: every two experiments once, in the order of the rows.
        thresholds: [K], of the profiles.
        profiles: {experiment: share of runs above each threshold, [K]}.
    """

    axis: Axis
    budgets: Sequence[float]
    rows: Sequence[ExperimentScores]
    pairs: Sequence[PairwiseProbability]
    thresholds: NDArray[np.float64]
    profiles: Mapping[str, Interval]


class Efficiency(NamedTuple):
    """IQM curves of experiments over the budgets that all their seeds share."""

    axis: Axis
    moments: NDArray[np.float64]  # [K]
    curves: Mapping[str, Interval]  # of [K]
    seeds: Mapping[str, NDArray[np.float64]]  # [R, K]


class GroupResult(NamedTuple):
    """A group, and by axis how its experiments stand; None where there is no common budget."""

    group: ComparisonGroup
    aggregates: Mapping[Axis, AggregateScores | None]
    efficiency: Mapping[Axis, Efficiency | None]


class Comparison(NamedTuple):
    """All that is known of some runs.

    Attributes:
        metric: as it was asked for.
        results: one per group.
        over_tasks: by axis, of the experiments that are in every group; None with a single one.
        notes: what a reader must know: what was left out, what is uncertain, what differs.
    """

    metric: str
    results: Sequence[GroupResult]
    over_tasks: Mapping[Axis, AggregateScores | None]
    notes: Sequence[str]


def compare(metric: str, groups: Sequence[ComparisonGroup], notes: Sequence[str] = ()) -> Comparison:
    """The comparison of experiments in groups.

    Args:
        metric: as it was asked for.
        groups: one or more.
        notes: told before our own.
    """
    told = list(notes)
    results = [_result(group, told) for group in groups]
    over_tasks: dict[Axis, AggregateScores | None] = dict.fromkeys(AXES)
    if len(groups) > 1:
        over_tasks = {axis: _over_tasks(results, axis, told) for axis in AXES}
    told += _few_seeds(groups)
    return Comparison(metric, results, over_tasks, list(dict.fromkeys(told)))


def _result(group: ComparisonGroup, notes: list[str]) -> GroupResult:
    budgets = {axis: budget_of(group, axis) for axis in AXES}
    for axis, budget in budgets.items():
        notes += [f"{group.title}: {note}" for note in budget_notes(group, axis, budget)]
    if budgets["seconds"] is not None:
        notes += [f"{group.title}: {note}" for note in group.clock_notes]
    aggregates = {axis: None if found is None else _aggregates(group, axis, found) for axis, found in budgets.items()}
    efficiency = {axis: None if found is None else _efficiency(group, axis, found) for axis, found in budgets.items()}
    return GroupResult(group, aggregates, efficiency)


def _aggregates(group: ComparisonGroup, axis: Axis, budget: Budget) -> AggregateScores:
    moment = np.array([budget.last])
    strata = {entry.name: [scores_at(entry, axis, moment)[:, 0]] for entry in group.experiments}
    return aggregate(strata, axis, [budget.last], is_on_unit_scale=group.is_on_unit_scale)


def _efficiency(group: ComparisonGroup, axis: Axis, budget: Budget) -> Efficiency:
    seeds = {entry.name: scores_at(entry, axis, budget.grid) for entry in group.experiments}
    curves = {name: statistics.bootstrap_curve(table) for name, table in seeds.items()}
    return Efficiency(axis, budget.grid, curves, seeds)


def aggregate(strata: Strata, axis: Axis, budgets: Sequence[float], *, is_on_unit_scale: bool) -> AggregateScores:
    """The aggregate of experiments by their scores: on one task in any unit, on several on one scale."""
    rows = [_row(name, scores, is_on_unit_scale) for name, scores in strata.items()]
    thresholds = _thresholds([values for scores in strata.values() for values in scores], is_on_unit_scale)
    profiles = {name: comparison.performance_profile(scores, thresholds) for name, scores in strata.items()}
    return AggregateScores(axis, list(budgets), rows, _pairs(strata), thresholds, profiles)


def _row(name: str, scores: Sequence[NDArray[np.float64]], has_gap: bool) -> ExperimentScores:
    interval = comparison.stratified_interval
    return ExperimentScores(
        name,
        scores,
        interval(scores, comparison.iqm),
        interval(scores, comparison.mean),
        interval(scores, comparison.median),
        interval(scores, comparison.optimality_gap) if has_gap else None,
    )


def _pairs(strata: Strata) -> list[PairwiseProbability]:
    return [
        PairwiseProbability(first, second, comparison.improvement_interval(strata[first], strata[second]))
        for first, second in itertools.combinations(strata, 2)
    ]


def _thresholds(scores: Sequence[NDArray[np.float64]], is_on_unit_scale: bool) -> NDArray[np.float64]:
    """From where all runs are above to where none is; the whole scale where there is one."""
    every = np.concatenate(scores)
    low, high = float(every.min()), float(every.max())
    margin = 0.05 * ((high - low) or abs(high) or 1.0)
    if is_on_unit_scale:
        return np.linspace(min(0.0, low), max(1.0, high), _NUM_THRESHOLDS)
    return np.linspace(low - margin, high + margin, _NUM_THRESHOLDS)


def _over_tasks(results: Sequence[GroupResult], axis: Axis, notes: list[str]) -> AggregateScores | None:
    """The aggregate over all tasks of the experiments that are on each."""
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
    apart = [result.group.title for result in results if not result.group.is_on_unit_scale]
    if apart:
        notes.append(
            f"scores are not aggregated over tasks: {', '.join(apart)} has no scale in common with others; "
            "--normalise TASK MIN MAX gives one"
        )
        return AggregateScores(axis, budgets, [], _pairs(strata), np.empty(0), {})
    notes += [f"{name}: a task with more runs weighs more in the IQM over tasks" for name in uneven]
    return aggregate(strata, axis, budgets, is_on_unit_scale=True)


def _few_seeds(groups: Sequence[ComparisonGroup]) -> list[str]:
    notes = []
    for group in groups:
        sizes = {entry.name: len(entry.series) for entry in group.experiments}
        single = [name for name, size in sizes.items() if size == 1]
        few = [f"{name} ({size})" for name, size in sizes.items() if 1 < size <= _FEW_RUNS]
        if single:
            notes.append(f"{group.title}: {', '.join(single)} has one seed, so no interval: nothing can be concluded")
        if few:
            notes.append(
                f"{group.title}: {', '.join(few)}: an interval over 2 or 3 seeds says little; it is too narrow, and "
                "the interquartile mean of so few trims nothing"
            )
    return notes
