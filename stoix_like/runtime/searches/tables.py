"""What `compare_search.py` tells: rows with intervals, the mean over runs, aligned text and the panels of its figure.

Gains are paired: a method's return less the greedy policy's on the same level; over runs, the gain of each run is one
value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stoix_like.evaluation import statistics
from stoix_like.runtime.figures.panels import Line, Panel
from stoix_like.runtime.searches.methods import MethodResult

Row = dict[str, Any]  # plain JSON values
HEAD = (
    f"{'method':<10}{'budget':>8}{'particles':>11}{'mean return':>13}  {'95 % interval':<20}"
    f"{'gain over greedy':<22}{'steps/decision':>15}{'seconds':>10}"
)


def row_of(played: MethodResult, greedy: MethodResult) -> Row:
    """The scores of one method at one budget, with 95 % intervals over levels; null where one level has none."""
    gain = statistics.paired_difference_interval(played.returns, greedy.returns)
    return {
        "method": played.method,
        "budget": played.budget,
        "particles": played.particles,
        **_plain(statistics.score_interval(played.returns)),
        "gain": None if played.method == "greedy" else _plain(gain),
        "model_steps_per_decision": played.model_steps_per_decision,
        "seconds": played.seconds,
        "num_envs": played.num_envs,
    }


def rows_over_runs(runs: Sequence[Sequence[Row]]) -> list[Row]:
    """The means over runs of equal rows, with 95 % intervals over runs: Student's t, wide where they are few."""
    return [_over_runs(same) for same in zip(*runs, strict=True)]


def _over_runs(same: Sequence[Row]) -> Row:
    first, gains = same[0], [row["gain"]["mean"] for row in same if row["gain"]]
    return {
        **{name: first[name] for name in ("method", "budget", "particles")},
        **_plain(statistics.mean_interval([row["mean"] for row in same])),
        "gain": _plain(statistics.mean_interval(gains)) if gains else None,
        "model_steps_per_decision": float(np.mean([row["model_steps_per_decision"] for row in same])),
        "seconds": float(np.mean([row["seconds"] for row in same])),
    }


def _plain(interval: statistics.Interval) -> dict[str, float | None]:
    values = zip(("mean", "low", "high"), map(float, interval), strict=True)
    return {name: value if math.isfinite(value) else None for name, value in values}


def line(row: Row) -> str:
    """The row as text under `HEAD`."""
    interval = "–" if row["low"] is None else f"[{row['low']:.4f}, {row['high']:.4f}]"
    budget, particles = (f"{row[name]:,}" if row[name] else "–" for name in ("budget", "particles"))
    return (
        f"{row['method']:<10}{budget:>8}{particles:>11}{row['mean']:>13.4f}  {interval:<20}{_gain(row['gain']):<22}"
        f"{row['model_steps_per_decision']:>15.1f}{row['seconds']:>10.1f}"
    )


def _gain(gain: dict[str, Any] | None) -> str:
    if gain is None:
        return "–"
    half = "" if gain["high"] is None else f" ± {gain['high'] - gain['mean']:.4f}"
    return f"{gain['mean']:+.4f}{half}"


def panel(title: str, rows: Sequence[Row]) -> Panel:
    """Mean returns with their own intervals over measured model steps; what thinks nothing holds for every x.

    A paired gain has the greedy policy's spread in it, which is the wider one where a search leaves little to gain.
    """
    thinking = [row for row in rows if row["budget"]]
    levels = {f"{row['method']} policy": row["mean"] for row in rows if not row["budget"]}
    names = dict.fromkeys(row["method"] for row in thinking)
    return Panel(title, [_line_of(name, [r for r in thinking if r["method"] == name]) for name in names], levels)


def _line_of(name: str, rows: Sequence[Row]) -> Line:
    low, high = ([math.nan if row[bound] is None else row[bound] for row in rows] for bound in ("low", "high"))
    return Line(name, [row["model_steps_per_decision"] for row in rows], [row["mean"] for row in rows], low, high)
