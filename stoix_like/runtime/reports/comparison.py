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
)

_BUDGET_TEXTS: dict[Axis, str] = {
    "steps": "{:,.0f} environment steps of each seed",
    "seconds": "{:,.1f} s of wall-clock",
}


class ScoreTable(NamedTuple):
    """The scores of one group at one budget."""

    title: str  # the task or tasks, the metric, the budget
    head: list[str]  # the titles of the columns of `rows`
    rows: list[list[str]]  # one per experiment; none over tasks without a common scale
    pairs: list[list[str]]  # (P(X > Y), its value, its interval) of each pair of experiments


def score_tables(comparison: Comparison) -> list[ScoreTable]:
    """The comparison as tables: one per group and budget, then those over tasks."""
    tables = []
    for result in comparison.results:
        group, scale = result.group, result.group.scale
        scaled = "" if scale is None else f", {scale[0]:g} as 0 and {scale[1]:g} as 1"
        for axis, aggregate in result.aggregates.items():
            if aggregate is not None:
                budget = _BUDGET_TEXTS[axis].format(aggregate.budgets[0])
                tables.append(_score_table(f"{group.title} · {group.key}{scaled} · at {budget}", aggregate))
    tasks = f"{len(comparison.results)} tasks ({', '.join(result.group.title for result in comparison.results)})"
    for axis, aggregate in comparison.over_tasks.items():
        if aggregate is not None:
            budget = "largest common wall-clock" if axis == "seconds" else "largest common steps"
            tables.append(_score_table(f"over {tasks} · at the {budget} of each", aggregate))
    return tables


def text(comparison: Comparison) -> str:
    """The comparison as text: a table per group and budget, then the notes."""
    parts = [
        "\n".join([title, *aligned([head, *rows] if rows else []), *aligned(pairs)])
        for title, head, rows, pairs in score_tables(comparison)
    ]
    parts.append("\n".join(f"note: {note}" for note in comparison.notes))
    return "\n\n".join(filter(None, parts))


def _score_table(title: str, aggregate: AggregateScores) -> ScoreTable:
    has_gap = any(row.optimality_gap for row in aggregate.rows)
    head = ["experiment", "n", "IQM", "95 % interval", "mean", "median", *(["gap to 1"] if has_gap else []), "seeds"]
    rows = [_cells(row, has_gap) for row in aggregate.rows]
    pairs = [[f"P({pair.first} > {pair.second})", *_estimate(pair.probability)] for pair in aggregate.pairs]
    return ScoreTable(title, *without_empty_columns(head, rows), pairs)


def _cells(row: ExperimentScores, has_gap: bool) -> list[str]:
    few = [" ".join(number_text(value, 4) for value in values) for values in row.scores if values.size < FEW_SEEDS]
    gap = [DASH] * has_gap if row.optimality_gap is None else _point(row.optimality_gap)
    num_runs = "+".join(map(str, row.num_runs))
    return [row.name, num_runs, *_estimate(row.iqm), *_point(row.mean), *_point(row.median), *gap, "; ".join(few)]


def _point(interval: Interval) -> list[str]:
    return [number_text(interval.point, 4)]


def _estimate(interval: Interval) -> list[str]:
    """[point, bounds]."""
    return [*_point(interval), interval_text(interval.low, interval.high, digits=4)]


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
    group, aggregates, efficiency = result.group, result.aggregates, result.efficiency
    by_axis: dict[str, Any] = {
        axis: {"standing": _aggregate_values(aggregates[axis]), "efficiency": _efficiency_values(efficiency[axis])}
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
            {"first": pair.first, "second": pair.second, **_plain(pair.probability)} for pair in aggregate.pairs
        ],
        "profiles": {"thresholds": _plain(aggregate.thresholds), "experiments": _plain(aggregate.profiles)},
    }


def _row_values(row: ExperimentScores) -> dict[str, Any]:
    statistics = {name: getattr(row, name) for name in ("iqm", "mean", "median", "optimality_gap")}
    return {
        "name": row.name,
        "n": list(row.num_runs),
        "scores": _plain(row.scores),
        **_plain(statistics),
    }


def _efficiency_values(efficiency: Efficiency | None) -> dict[str, Any] | None:
    if efficiency is None:
        return None
    return {"moments": _plain(efficiency.moments), "experiments": _plain(efficiency.curves)}


def _plain(value: Any) -> Any:
    """Numbers, arrays and intervals, in lists and dictionaries, as JSON values: what is not finite becomes null."""
    if isinstance(value, Interval):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, Sequence) or np.ndim(value):
        return [_plain(one) for one in value]
    return float(value) if value is not None and math.isfinite(value) else None
