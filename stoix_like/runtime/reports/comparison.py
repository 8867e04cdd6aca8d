"""A comparison as aligned text and as plain JSON values, for `compare.py`. Every number has its n."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stoix_like.evaluation.statistics import Interval
from stoix_like.runtime.console.text import DASH, aligned, interval_text, number_text, without_empty_columns
from stoix_like.runtime.results.curves import FEW_SEEDS
from stoix_like.runtime.results.groups import AXES, Axis
from stoix_like.runtime.results.statistics import (
    AggregateScores,
    Comparison,
    Efficiency,
    ExperimentScores,
    GroupResult,
    PairwiseProbability,
)

_BUDGET_TEXTS: dict[Axis, str] = {
    "steps": "{:,.0f} environment steps of each seed",
    "seconds": "{:,.1f} s of wall-clock",
}


class ScoreTable(NamedTuple):
    """The scores of one group at one budget.

    Attributes:
        title: the task or tasks, the metric, the budget.
        head: the titles of the columns of `rows`.
        rows: one per experiment; none over tasks without a common scale.
        pairs: (P(X > Y), its value, its interval) of each pair of experiments.
    """

    title: str
    head: list[str]
    rows: list[list[str]]
    pairs: list[list[str]]


def score_tables(comparison: Comparison) -> list[ScoreTable]:
    """The comparison as tables: one per group and budget, then those over tasks."""
    tables = [_group_table(result, axis) for result in comparison.results for axis in AXES]
    titles = [result.group.title for result in comparison.results]
    tables += [_over_tasks_table(aggregate, titles) for aggregate in comparison.over_tasks.values()]
    return [table for table in tables if table is not None]


def text(comparison: Comparison) -> str:
    """The comparison as text: a table per group and budget, then the notes."""
    parts = [
        "\n".join([title, *aligned([head, *rows] if rows else []), *aligned(pairs)])
        for title, head, rows, pairs in score_tables(comparison)
    ]
    parts.append("\n".join(f"note: {note}" for note in comparison.notes))
    return "\n\n".join(filter(None, parts))


def _group_table(result: GroupResult, axis: Axis) -> ScoreTable | None:
    aggregate, group = result.aggregates[axis], result.group
    if aggregate is None:
        return None
    scale = "" if group.scale is None else f", {group.scale[0]:g} as 0 and {group.scale[1]:g} as 1"
    budget = _BUDGET_TEXTS[axis].format(aggregate.budgets[0])
    return _score_table(f"{group.title} · {group.key}{scale} · at {budget}", aggregate)


def _over_tasks_table(aggregate: AggregateScores | None, titles: Sequence[str]) -> ScoreTable | None:
    if aggregate is None:
        return None
    budget = "largest common wall-clock" if aggregate.axis == "seconds" else "largest common steps"
    return _score_table(f"over {len(titles)} tasks ({', '.join(titles)}) · at the {budget} of each", aggregate)


def _score_table(title: str, aggregate: AggregateScores) -> ScoreTable:
    has_gap = any(row.optimality_gap for row in aggregate.rows)
    head = ["experiment", "n", "IQM", "95 % interval", "mean", "median", *(["gap to 1"] if has_gap else []), "seeds"]
    rows = [_cells(row, has_gap) for row in aggregate.rows]
    return ScoreTable(title, *without_empty_columns(head, rows), [_pair_cells(pair) for pair in aggregate.pairs])


def _cells(row: ExperimentScores, has_gap: bool) -> list[str]:
    few = [" ".join(number_text(value, 4) for value in values) for values in row.scores if values.size < FEW_SEEDS]
    gap = [DASH] * has_gap if row.optimality_gap is None else _point(row.optimality_gap)
    num_runs = "+".join(map(str, row.num_runs))
    return [row.name, num_runs, *_estimate(row.iqm), *_point(row.mean), *_point(row.median), *gap, "; ".join(few)]


def _pair_cells(pair: PairwiseProbability) -> list[str]:
    return [f"P({pair.first} > {pair.second})", *_estimate(pair.probability)]


def _point(interval: Interval) -> list[str]:
    return [number_text(interval.point, 4)]


def _estimate(interval: Interval) -> list[str]:
    """[point, bounds]."""
    return [*_point(interval), interval_text(interval.low, interval.high, 4)]


def json_values(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain JSON values; missing values are null.

    The keys `contests` (groups) and `standing` (aggregate) are older than the names in the code. They stay, because
    programs of users read them.
    """
    return {
        "metric": comparison.metric,
        "contests": [_group_values(result) for result in comparison.results],
        "over_tasks": {axis: _aggregate_values(found) for axis, found in comparison.over_tasks.items()},
        "notes": list(comparison.notes),
    }


def _group_values(result: GroupResult) -> dict[str, Any]:
    group = result.group
    by_axis: dict[str, Any] = {
        axis: {
            "standing": _aggregate_values(result.aggregates[axis]),
            "efficiency": _efficiency_values(result.efficiency[axis]),
        }
        for axis in AXES
    }
    return {
        "title": group.title,
        "metric": group.key,
        "scale": None if group.scale is None else list(group.scale),
        "experiments": [{"name": e.name, "n": len(e.series), "seeds": e.sources} for e in group.experiments],
        **by_axis,
    }


def _aggregate_values(aggregate: AggregateScores | None) -> dict[str, Any] | None:
    if aggregate is None:
        return None
    return {
        "budgets": _plain(aggregate.budgets),
        "rows": [_row_values(row) for row in aggregate.rows],
        "improvement": [
            {"first": pair.first, "second": pair.second, **_interval(pair.probability)} for pair in aggregate.pairs
        ],
        "profiles": {"thresholds": _plain(aggregate.thresholds), **_intervals(aggregate.profiles)},
    }


def _row_values(row: ExperimentScores) -> dict[str, Any]:
    statistics = {name: getattr(row, name) for name in ("iqm", "mean", "median", "optimality_gap")}
    return {
        "name": row.name,
        "n": list(row.num_runs),
        "scores": [_plain(values) for values in row.scores],
        **{name: None if found is None else _interval(found) for name, found in statistics.items()},
    }


def _efficiency_values(efficiency: Efficiency | None) -> dict[str, Any] | None:
    if efficiency is None:
        return None
    return {"moments": _plain(efficiency.moments), **_intervals(efficiency.curves)}


def _intervals(named: Mapping[str, Interval]) -> dict[str, Any]:
    return {"experiments": {name: _interval(interval) for name, interval in named.items()}}


def _interval(interval: Interval) -> dict[str, Any]:
    return {name: _plain(value) for name, value in interval._asdict().items()}


def _plain(value: Any) -> Any:
    """A number or an array as plain JSON values: numbers that are not finite become null."""
    if np.ndim(value):
        return [_plain(one) for one in value]
    number = float(value)
    return number if math.isfinite(number) else None
