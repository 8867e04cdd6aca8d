"""How sure a number is: interquartile means, bootstrap and t intervals, paired differences. NumPy in, NumPy out.

The door to scipy. Learning curves compare few runs of heavy-tailed returns, so the interquartile mean with a bootstrap
interval is the figure to quote (Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical
Precipice", section 4); over hundreds of episodes or levels of one policy the plain mean with a t interval is. No test
of significance stands here: an interval of the paired difference says more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Statistic = Callable[[NDArray[Any]], Any]  # values [..., M] -> [...], over the last axis

_BLOCK_ELEMENTS = 4_000_000  # resampled numbers held at once by `bootstrap_curve`, 32 MB


class Interval(NamedTuple):
    """An estimate and the interval around it, in the unit of the values. Floats, or arrays [K] for a curve."""

    point: Any
    low: Any
    high: Any


def iqm(values: ArrayLike) -> Any:
    """The mean of the middle half of values [..., M] over the last axis, shape [...].

    floor(M / 4) values are cut at each end. Fewer than four values are not trimmed at all: the result is then their
    plain mean and no more robust than it.

    Raises:
        ValueError: no values, or values that are not finite.
    """
    return stats.trim_mean(finite(values), 0.25, axis=-1)


def bootstrap_interval(
    values: ArrayLike,
    statistic: Statistic = iqm,
    confidence: float = 0.95,
    repetitions: int = 2000,
    seed: int = 0,
) -> Interval:
    """(point, low, high) of a statistic over runs: one number from R runs, or from R runs on each of K tasks.

    The percentile bootstrap, stratified by task as in rliable: each task's runs are drawn with replacement on their
    own, then all R * K numbers go to the statistic together. Tasks must be normalised to one scale first.

    With few runs the interval is too narrow: two runs allow three distinct resamples, four allow 35. Show n and the
    single runs below five. One run has no interval: low and high are NaN.

    Args:
        values: [R] or [R, K].
        statistic: values [..., M] -> [...]; `iqm` or `mean`.
        confidence: share of the bootstrap distribution between low and high, in (0, 1).
        repetitions: resamples; 2000 leave an error of about 1 % of the width.
        seed: of the resampling, so that a figure can be drawn again.

    Raises:
        ValueError: a wrong rank, no values, values that are not finite, or a confidence outside (0, 1).
    """
    table = finite(values)
    if table.ndim not in (1, 2):
        raise ValueError(f"values must have shape [R] or [R, K], got {table.shape}")
    table = table.reshape(table.shape[0], -1)  # [R, K]
    num_runs, num_tasks = table.shape
    point = float(statistic(table.reshape(-1)))
    if num_runs == 1:
        return Interval(point, float("nan"), float("nan"))
    chosen = np.random.default_rng(seed).integers(0, num_runs, (repetitions, num_runs, num_tasks))
    resampled = table[chosen, np.arange(num_tasks)].reshape(repetitions, -1)  # [repetitions, R * K]
    low, high = np.quantile(statistic(resampled), tails(confidence))
    return Interval(point, float(low), float(high))


def bootstrap_curve(
    values: ArrayLike,
    statistic: Statistic = iqm,
    confidence: float = 0.95,
    repetitions: int = 2000,
    seed: int = 0,
) -> Interval:
    """(point [K], low [K], high [K]) for R runs seen at K moments: values [R, K], a pointwise interval per moment.

    Whole runs are resampled, the same ones for every moment, so each column equals `bootstrap_interval` of it up to
    the drawing. What is said there of few runs holds here; one run gives NaN for low and high.

    Raises:
        ValueError: as `bootstrap_interval`, and for values that are not [R, K].
    """
    table = finite(values)
    if table.ndim != 2:
        raise ValueError(f"values must have shape [R, K], got {table.shape}")
    num_runs, num_moments = table.shape
    point = np.asarray(statistic(table.T))  # [K]
    if num_runs == 1:
        return Interval(point, np.full(num_moments, np.nan), np.full(num_moments, np.nan))
    chosen = np.random.default_rng(seed).integers(0, num_runs, (repetitions, num_runs))
    width = max(1, _BLOCK_ELEMENTS // chosen.size)
    blocks = [table[:, start : start + width].T for start in range(0, num_moments, width)]  # each [width, R]
    bounds = [np.quantile(statistic(block[:, chosen]), tails(confidence), axis=-1) for block in blocks]
    low, high = np.concatenate(bounds, axis=-1)  # [2, K]
    return Interval(point, low, high)


def mean(values: ArrayLike) -> Any:
    """The mean of values [..., M] over the last axis: the other statistic to hand to a bootstrap."""
    return np.mean(finite(values), axis=-1)


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """(mean, low, high) over independent episodes or levels [E], by Student's t with E - 1 degrees of freedom.

    One value has no interval: low and high are NaN. Equal values give an interval of width 0. For what is 0 or 1 in
    every episode, such as whether it was solved, `score_interval` is the better one.

    Raises:
        ValueError: values that are not [E], none, or not finite; a confidence outside (0, 1).
    """
    sample = finite(values)
    if sample.ndim != 1:
        raise ValueError(f"values must have shape [E], got {sample.shape}")
    point, size = float(sample.mean()), sample.size
    quantile = float(stats.t.ppf(tails(confidence)[1], max(size - 1, 1)))
    if size == 1:
        return Interval(point, float("nan"), float("nan"))
    half = quantile * float(sample.std(ddof=1)) / size**0.5
    return Interval(point, point - half, point + half)


def score_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """(mean, low, high) of scores of independent episodes or levels [E]: of zeros and ones by Wilson's score interval
    (Wilson 1927, "Probable Inference, the Law of Succession, and Statistical Inference"), else as `mean_interval`.

    Wilson's stays between 0 and 1, and has a width where all episodes were solved, or none.

    Raises:
        ValueError: as `mean_interval`.
    """
    found = mean_interval(values, confidence)
    sample = finite(values)
    if not np.isin(sample, (0.0, 1.0)).all():
        return found
    share = stats.binomtest(int(sample.sum()), sample.size).proportion_ci(confidence, "wilson")
    return Interval(found.point, float(share.low), float(share.high))


def share_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """`score_interval` of values [E] from 0 to 1, such as shares of samples that succeeded: its bounds are such too."""
    found = score_interval(values, confidence)
    low, high = np.clip([found.low, found.high], 0.0, 1.0)
    return Interval(found.point, float(low), float(high))


def bounded_interval(values: ArrayLike, outcomes: ArrayLike, confidence: float = 0.95) -> Interval:
    """(mean, low, high) of independent values [E], each of which can be any of `outcomes` [K], such as scores of pairs.

    Student's t after one virtual value is added, which is spread evenly over the outcomes; so equal values too leave
    a width, and one value leaves nearly everything open. The bounds stay between the least and the greatest outcome,
    and the point is the mean of the values alone. Simulated pairs of games with true scores from 0.5 to 0.99: 95 to
    100 % of such intervals hold the score, of 5 to 200 pairs; of those of `mean_interval` 10 to 100 %.

    Raises:
        ValueError: values that are not [E], none, or not finite; no outcomes; a confidence outside (0, 1).
    """
    sample, possible = finite(values), finite(outcomes)
    centre, variance = bounded_moments(sample, possible)
    total = sample.size + 1
    half = float(stats.t.ppf(tails(confidence)[1], total - 1)) * (variance / total) ** 0.5
    low, high = max(centre - half, possible.min()), min(centre + half, possible.max())
    return Interval(float(sample.mean()), float(low), float(high))


def bounded_moments(values: ArrayLike, outcomes: ArrayLike) -> tuple[float, float]:
    """(mean, variance) of values [E] and one virtual value that is spread evenly over the outcomes [K].

    Raises:
        ValueError: values that are not [E], none, or not finite; no outcomes.
    """
    sample, possible = finite(values), finite(outcomes)
    if sample.ndim != 1 or possible.ndim != 1:
        raise ValueError(f"values must have shape [E] and outcomes [K], got {sample.shape} and {possible.shape}")
    centre = (sample.sum() + possible.mean()) / (sample.size + 1)
    variance = (np.square(sample - centre).sum() + np.square(possible - centre).mean()) / sample.size
    return float(centre), float(variance)


def normal_quantile(confidence: float) -> float:
    """Half the width, in standard deviations, of the central interval of a normal distribution: 1.96 for 0.95.

    Raises:
        ValueError: a confidence outside (0, 1).
    """
    return float(stats.norm.ppf(tails(confidence)[1]))


def paired_difference_interval(first: ArrayLike, second: ArrayLike, confidence: float = 0.95) -> Interval:
    """(mean, low, high) of first - second over pairs: the same levels played, or the same seeds trained, by both.

    Pairing removes what the levels share, so the interval is far narrower than that of two separate means. An
    interval that excludes 0 is a difference at this confidence.

    Raises:
        ValueError: shapes that differ or are not [E], or what `mean_interval` refuses.
    """
    left, right = finite(first), finite(second)
    if left.shape != right.shape:
        raise ValueError(f"pairs need equal shapes, got {left.shape} and {right.shape}")
    return mean_interval(left - right, confidence)


def difference_interval(first: ArrayLike, second: ArrayLike, confidence: float = 0.95) -> Interval:
    """(difference of the means, low, high) of two independent samples, such as the seeds of two algorithms.

    By Welch's t: the samples may differ in size and spread.

    Raises:
        ValueError: fewer than two values on a side, or what `mean_interval` refuses.
    """
    left, right = finite(first), finite(second)
    if left.ndim != 1 or right.ndim != 1 or min(left.size, right.size) < 2:
        raise ValueError(f"samples need two values or more each, got shapes {left.shape} and {right.shape}")
    tails(confidence)
    found = stats.ttest_ind(left, right, equal_var=False).confidence_interval(confidence)
    return Interval(float(left.mean() - right.mean()), float(found.low), float(found.high))


def finite(values: ArrayLike) -> NDArray[np.float64]:
    """The values as an array, [..., M].

    Raises:
        ValueError: there are none, or some are not finite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"at least one value along an axis is needed, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("values must be finite; leave out runs and episodes that have no value")
    return array


def tails(confidence: float) -> tuple[float, float]:
    """The shares of a distribution that lie below the two bounds of an interval.

    Raises:
        ValueError: a confidence outside (0, 1).
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    return (1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0
