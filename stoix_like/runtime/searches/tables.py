"""The results of `compare_search.py`: rows with intervals, means over runs, table lines and the panels of its figure.

Gains are paired: a method's return minus the greedy policy's on the same level, or minus that of the best of whole
episodes at the same budget. Over runs, the gain of each run is one value. Lines have fixed widths, because each is
printed before the next row is known.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from stoix_like.evaluation import statistics
from stoix_like.runtime.console.text import DASH, interval_text
from stoix_like.runtime.figures.panels import Line, Panel
from stoix_like.runtime.searches.methods import MethodResult

Row = dict[str, Any]  # plain JSON values
HEAD = (
    f"{'method':<10}{'budget':>8}{'particles':>11}{'mean return':>13}  {'95 % interval':<20}{'solved':>8}  "
    f"{'gain over greedy':<22}{'steps/decision':>15}{'seconds':>10}"
)


def method_row(result: MethodResult, greedy: MethodResult, best_of: MethodResult | None = None) -> Row:
    """The scores of one method at one budget, with 95 % intervals over levels; their bounds are null for one level.

    Args:
        result: of the method.
        greedy: what its gain is measured against.
        best_of: at the same budget, if the method is to be compared with it.
    """
    returns, solved = result.episodes.returns, result.episodes.solved
    return {
        "method": result.method,
        "budget": result.budget,
        "particles": result.particles,
        **_plain(statistics.score_interval(returns)),
        "solve_rate": None if solved is None else float(np.mean(solved)),
        "gain": None if result.method == "greedy" else _paired(result, greedy),
        "gain_over_best_of": None if best_of is None else _paired(result, best_of),
        "model_steps_per_decision": result.model_steps_per_decision,
        "seconds": result.seconds,
        "num_envs": result.num_envs,
    }


def mean_row(rows: Sequence[Row]) -> Row:
    """The mean of equal rows of several runs, with 95 % intervals over runs: Student's t, wide for few runs."""
    first = rows[0]
    return {
        **{name: first[name] for name in ("method", "budget", "particles")},
        **_plain(statistics.mean_interval([row["mean"] for row in rows])),
        "solve_rate": None if first["solve_rate"] is None else float(np.mean([row["solve_rate"] for row in rows])),
        "gain": _mean_gain(rows, "gain"),
        "gain_over_best_of": _mean_gain(rows, "gain_over_best_of"),
        "model_steps_per_decision": float(np.mean([row["model_steps_per_decision"] for row in rows])),
        "seconds": float(np.mean([row["seconds"] for row in rows])),
    }


def _paired(result: MethodResult, baseline: MethodResult) -> dict[str, float | None]:
    return _plain(statistics.paired_difference_interval(result.episodes.returns, baseline.episodes.returns))


def _mean_gain(rows: Sequence[Row], name: str) -> dict[str, float | None] | None:
    gains = [row[name]["mean"] for row in rows if row[name]]
    return _plain(statistics.mean_interval(gains)) if gains else None


def _plain(interval: statistics.Interval) -> dict[str, float | None]:
    values = zip(("mean", "low", "high"), map(float, interval), strict=True)
    return {name: value if math.isfinite(value) else None for name, value in values}


def row_text(row: Row) -> str:
    """The row as a line under `HEAD`."""
    interval = interval_text(row["low"], row["high"], ".4f")
    solved = DASH if row["solve_rate"] is None else f"{row['solve_rate']:.4f}"
    budget, particles = (f"{row[name]:,}" if row[name] else DASH for name in ("budget", "particles"))
    return (
        f"{row['method']:<10}{budget:>8}{particles:>11}{row['mean']:>13.4f}  {interval:<20}{solved:>8}  "
        f"{_gain_text(row['gain']):<22}{row['model_steps_per_decision']:>15.1f}{row['seconds']:>10.1f}"
    )


def _gain_text(gain: dict[str, Any] | None) -> str:
    if gain is None:
        return DASH
    half = "" if gain["high"] is None else f" ± {gain['high'] - gain['mean']:.4f}"
    return f"{gain['mean']:+.4f}{half}"


def notes(rows: Sequence[Row], num_envs: int | None) -> list[str]:
    """Notes on searches of one size, on methods that played fewer levels at a time than requested, and on those whose
    single particle or episode takes more than the budget.
    """
    found = []
    budgets: dict[tuple[str, int], list[str]] = defaultdict(list)
    for row in rows:
        budgets[row["method"], row["particles"]].append(f"{row['budget']:,}")
    for (method, particles), same in sorted(budgets.items()):
        if len(same) > 1:
            found.append(f"{method} at {', '.join(same)} is the same search, of {particles:,} particle(s)")
    possible = 0 if num_envs is None else min(num_envs, max(row["num_envs"] for row in rows))
    found += [
        f"{row['method']} at {row['budget']:,}: {row['num_envs']} levels at a time, to limit the number of particles"
        for row in rows
        if row["num_envs"] < possible
    ]
    return found + [
        f"{row['method']} at {row['budget']:,} took {row['model_steps_per_decision']:.1f} model steps per decision"
        for row in rows
        if row["model_steps_per_decision"] > row["budget"] * (1 + 1e-6) > 0
    ]


def gains_over_best_of(rows: Sequence[Row]) -> list[str]:
    """Notes on searches that were played beside the best of whole episodes at the same budget."""
    return [
        f"{row['method']} at {row['budget']:,}: {_gain_text(row['gain_over_best_of'])} over best_of, paired"
        for row in rows
        if row["gain_over_best_of"]
    ]


def unsolved_notes(played: Sequence[MethodResult]) -> list[str]:
    """A note on the levels that no method has solved, if the task says what that means."""
    solved = [result.episodes.solved for result in played if result.episodes.solved is not None]
    if not solved:
        return []
    unsolved = int(np.sum(np.max(solved, axis=0) < 1.0))
    return [f"{unsolved:,} of {solved[0].size:,} levels were solved by no method"]


def make_panel(title: str, rows: Sequence[Row]) -> Panel:
    """Mean returns with their intervals over measured model steps. Policies without search are horizontal lines.

    Returns are drawn, not gains: a paired gain contains the spread of the greedy policy, which is the wider one if
    little can be gained.
    """
    searches = [row for row in rows if row["budget"]]
    without_search = {f"{row['method']} policy": row["mean"] for row in rows if not row["budget"]}
    names = dict.fromkeys(row["method"] for row in searches)
    lines = [_make_line(name, [row for row in searches if row["method"] == name]) for name in names]
    return Panel(title, lines, without_search)


def _make_line(name: str, rows: Sequence[Row]) -> Line:
    low, high = ([math.nan if row[bound] is None else row[bound] for row in rows] for bound in ("low", "high"))
    return Line(name, [row["model_steps_per_decision"] for row in rows], [row["mean"] for row in rows], low, high)
