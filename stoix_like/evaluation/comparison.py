"""Algorithms compared by few runs of each, on one task or several, after Agarwal et al. 2021, "Deep Reinforcement
Learning at the Edge of the Statistical Precipice" (arXiv 2108.13264, sections 4.1 to 4.3). NumPy in, NumPy out.

Scores come as strata: one array of runs per task. Tasks may have different numbers of runs, but one scale: normalise
first (`normalised`). Every interval is a percentile bootstrap in which each task's runs are drawn on their own, as in
rliable. It says how the result would vary with other seeds on the same tasks, and nothing about other tasks. Of few
runs it is too narrow, as `statistics.bootstrap_interval` explains. No test of significance stands here either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stoix_like.evaluation import statistics
from stoix_like.evaluation.statistics import Interval

Strata = Sequence[ArrayLike]  # one [R] per task
Statistic = Callable[[Strata], Any]  # strata of [..., R] -> [...]

_REPETITIONS = 2000  # resamples; they leave an error of about 1 % of the width


def iqm(strata: Strata) -> Any:
    """The interquartile mean of all runs of all tasks together, [...]; a task with more runs weighs more in it."""
    return statistics.iqm(np.concatenate(_arrays(strata), axis=-1))


def mean(strata: Strata) -> Any:
    """The mean over tasks of their means over runs, [...]."""
    return np.mean([values.mean(axis=-1) for values in _arrays(strata)], axis=0)


def median(strata: Strata) -> Any:
    """The median over tasks of their means over runs, as in rliable; of one task the median of its runs. [...]"""
    arrays = _arrays(strata)
    if len(arrays) == 1:
        return np.median(arrays[0], axis=-1)
    return np.median([values.mean(axis=-1) for values in arrays], axis=0)


def optimality_gap(strata: Strata, target: float = 1.0) -> Any:
    """By how much runs fall short of the target on average, each task weighing the same, [...]; above it is no gain."""
    return np.mean([np.maximum(target - values, 0.0).mean(axis=-1) for values in _arrays(strata)], axis=0)


def normalised(scores: ArrayLike, low: float, high: float) -> NDArray[np.float64]:
    """Scores on the scale where `low` is 0 and `high` is 1, such as a random policy's and the best one known.

    Raises:
        ValueError: high is not above low.
    """
    if not high > low:
        raise ValueError(f"the score that becomes 1 must lie above the one that becomes 0, got {high} and {low}")
    return (np.asarray(scores, dtype=np.float64) - low) / (high - low)


def stratified_interval(
    strata: Strata,
    statistic: Statistic = iqm,
    confidence: float = 0.95,
    repetitions: int = _REPETITIONS,
    seed: int = 0,
) -> Interval:
    """(point, low, high) of a statistic of runs on tasks. Low and high are NaN if a task has a single run.

    Args:
        strata: [R] per task.
        statistic: `iqm`, `mean`, `median`, `optimality_gap`, or another function of strata; it may give [..., K].
        confidence: share of the bootstrap distribution between low and high, in (0, 1).
        repetitions: resamples.
        seed: of the resampling, so that a number can be made again.

    Raises:
        ValueError: no task, no run, scores that are not [R] or not finite, a confidence outside (0, 1).
    """
    arrays = _runs(strata)
    point = np.asarray(statistic(arrays))
    tails = statistics.tails(confidence)
    if min(values.size for values in arrays) == 1:
        return _interval(point, np.full((2, *point.shape), np.nan))
    generator = np.random.default_rng(seed)
    drawn = [values[generator.integers(0, values.size, (repetitions, values.size))] for values in arrays]  # [B, R]
    return _interval(point, np.quantile(statistic(drawn), tails, axis=0))


def performance_profile(
    strata: Strata,
    thresholds: ArrayLike,
    confidence: float = 0.95,
    repetitions: int = _REPETITIONS,
    seed: int = 0,
) -> Interval:
    """(share [K], low [K], high [K]) of runs whose score is above each threshold, each task weighing the same.

    The score distribution of section 4.3. Where one profile lies above another everywhere, it is the better algorithm;
    where they cross, it depends on what is asked for. The interval is pointwise.

    Args:
        strata: [R] per task.
        thresholds: [K], in the unit of the scores.
        confidence: as in `stratified_interval`.
        repetitions: likewise.
        seed: likewise.

    Raises:
        ValueError: no thresholds, and as `stratified_interval`.
    """
    levels = np.asarray(thresholds, dtype=np.float64)
    if levels.ndim != 1 or levels.size == 0:
        raise ValueError(f"at least one threshold is needed, [K], got shape {levels.shape}")

    def shares(strata: Strata) -> NDArray[np.float64]:
        arrays = _arrays(strata)  # one threshold at a time: [B, R, K] would be large
        above = [np.mean([(values > level).mean(axis=-1) for values in arrays], axis=0) for level in levels]
        return np.stack(above, axis=-1)  # [..., K]

    return stratified_interval(strata, shares, confidence, repetitions, seed)


def probability_of_improvement(first: Strata, second: Strata) -> float:
    """P(X > Y) of a random run X of the first and Y of the second on a random task; a tie is one half (section 4.3).

    Per task that is the statistic U of Mann and Whitney over the number of pairs. It says how often, not how much.

    Raises:
        ValueError: other tasks on one side, and as `stratified_interval`.
    """
    return float(np.mean([wins.mean() for wins in _wins(first, second)]))


def improvement_interval(
    first: Strata,
    second: Strata,
    confidence: float = 0.95,
    repetitions: int = _REPETITIONS,
    seed: int = 0,
) -> Interval:
    """(point, low, high) of `probability_of_improvement`: the runs of both sides are drawn anew, independently.

    Low and high are NaN if a task has a single run on one side.

    Raises:
        ValueError: as `probability_of_improvement`.
    """
    wins = _wins(first, second)
    point = np.asarray(np.mean([table.mean() for table in wins]))
    tails = statistics.tails(confidence)
    if min(min(table.shape) for table in wins) == 1:
        return _interval(point, np.full(2, np.nan))
    generator = np.random.default_rng(seed)
    drawn = []
    for table in wins:  # [R, Q]; a resample is how often each run comes up
        counts = [generator.multinomial(size, np.full(size, 1.0 / size), repetitions) for size in table.shape]
        drawn.append(np.einsum("br,rq,bq->b", counts[0], table, counts[1], optimize=True) / table.size)
    return _interval(point, np.quantile(np.mean(drawn, axis=0), tails))


def _wins(first: Strata, second: Strata) -> list[NDArray[np.float64]]:
    """[R, Q] per task: 1 where a run of the first is above one of the second, one half where they are equal."""
    ours, theirs = _runs(first), _runs(second)
    if len(ours) != len(theirs):
        raise ValueError(f"both sides must have the same tasks, got {len(ours)} and {len(theirs)}")
    return [
        (left[:, None] > right[None, :]) + 0.5 * (left[:, None] == right[None, :])
        for left, right in zip(ours, theirs, strict=True)
    ]


def _interval(point: NDArray[Any], bounds: NDArray[Any]) -> Interval:
    """Numbers as floats, curves as arrays."""
    parts = (point, *bounds)
    return Interval(*(float(part) if np.ndim(part) == 0 else part for part in parts))


def _runs(strata: Strata) -> list[NDArray[np.float64]]:
    arrays = _arrays(strata)
    if odd := [array.shape for array in arrays if array.ndim != 1]:
        raise ValueError(f"the runs of a task must have shape [R], got {odd[0]}")
    return arrays


def _arrays(strata: Strata) -> list[NDArray[np.float64]]:
    if len(strata) == 0:
        raise ValueError("scores of at least one task are needed")
    return [statistics.finite(values) for values in strata]
