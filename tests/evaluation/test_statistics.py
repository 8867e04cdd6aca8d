"""Statistics against numbers worked out by hand, against scipy, and against what an interval promises."""

import functools

import numpy as np
import pytest
from scipy import stats

from stoix_like.evaluation import statistics


def test_iqm_by_hand():
    # Sorted: -100 0 | 1 2 3 6 | 50 900; (1 + 2 + 3 + 6) / 4 = 3. The plain mean would be 107.75.
    assert statistics.iqm([900.0, 1.0, 0.0, 2.0, -100.0, 3.0, 50.0, 6.0]) == 3.0
    assert statistics.iqm([10.0, 1.0, 2.0, 3.0, 4.0, -90.0]) == 2.5  # floor(6 / 4) = 1
    for values in ([7.0], [1.0, 3.0], [0.0, 0.0, 30.0]):  # fewer than four: nothing is cut
        assert statistics.iqm(values) == pytest.approx(np.mean(values), rel=1e-15), values
    table = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(statistics.iqm(table), table[..., 1:3].mean(-1))


def test_bootstrap_intervals_of_two_runs_and_of_tasks_by_hand_and_of_one_run_none():
    # The mean of a resample of {0, 1} is 0 or 1 with probability 1/4 each: both lie outside the middle 40 %, inside 95.
    assert statistics.bootstrap_interval([0.0, 1.0], statistics.mean) == (0.5, 0.0, 1.0)
    assert statistics.bootstrap_interval([0.0, 1.0], statistics.mean, confidence=0.4) == (0.5, 0.5, 0.5)
    # Tasks that differ by 100 and do not vary: drawn within tasks there is nothing to vary, drawn across there is.
    assert statistics.bootstrap_interval(np.tile([0.0, 100.0], (5, 1)), statistics.mean) == (50.0, 50.0, 50.0)
    # one run has no interval
    assert statistics.bootstrap_interval([4.0]).point == 4.0
    for interval in (statistics.bootstrap_interval([4.0]), statistics.mean_interval([4.0])):
        assert np.isnan([interval.low, interval.high]).all()
    curve = statistics.bootstrap_curve([[1.0, 2.0]])
    np.testing.assert_array_equal(curve.point, [1.0, 2.0])
    assert np.isnan(curve.low).all()
    assert np.isnan(curve.high).all()


def test_bootstrap_interval_agrees_with_scipy_and_contains_the_truth_as_often_as_it_says():
    values = np.random.default_rng(3).normal(size=40)
    ours = statistics.bootstrap_interval(values, repetitions=20_000)
    interquartile_mean = functools.partial(stats.trim_mean, proportiontocut=0.25)
    theirs = stats.bootstrap(
        (values,), interquartile_mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    # 20,000 resamples place a 2.5 % quantile to about 0.01 of the width, which is about 0.8 here.
    assert ours.point == pytest.approx(stats.trim_mean(values, 0.25), rel=1e-15)
    np.testing.assert_allclose([ours.low, ours.high], [theirs.low, theirs.high], atol=0.02)
    draws = np.random.default_rng(0).normal(size=(300, 30))
    intervals = [statistics.bootstrap_interval(draw, statistics.mean, 0.9, repetitions=500) for draw in draws]
    coverage = np.mean([interval.low <= 0.0 <= interval.high for interval in intervals])
    # 0.9 less the known shortfall of the percentile bootstrap at 30 values; 300 trials have a standard error of 0.018.
    assert 0.82 < coverage < 0.95


def test_bootstrap_curve_equals_one_interval_per_moment(monkeypatch):
    values = np.random.default_rng(5).normal(size=(6, 11))
    whole = statistics.bootstrap_curve(values)
    monkeypatch.setattr(statistics, "_BLOCK_ELEMENTS", 6 * 2000 * 4)  # blocks of four columns: 4 + 4 + 3
    blocked = statistics.bootstrap_curve(values)
    for one, other in zip(whole, blocked, strict=True):
        np.testing.assert_array_equal(one, other)
    for moment in range(11):
        single = statistics.bootstrap_interval(values[:, moment])
        got = [float(part[moment]) for part in whole]
        np.testing.assert_array_equal(got, single)  # one task draws the same indices


def test_shares_have_wilsons_interval_by_hand():
    """With z = 1.96, none of 32 solved has the upper bound z^2 / (32 + z^2), not 0."""
    z = 1.959963984540054
    none, every = statistics.score_interval(np.zeros(32)), statistics.score_interval(np.ones(32))
    np.testing.assert_allclose(none, (0.0, 0.0, z**2 / (32 + z**2)), atol=1e-12)
    np.testing.assert_allclose(every, (1.0, 32 / (32 + z**2), 1.0), atol=1e-12)
    share, size = 0.25, 8
    centre, half = share + z**2 / (2 * size), z * np.sqrt(share * (1 - share) / size + z**2 / (4 * size**2))
    found = statistics.score_interval([1.0, 0.0, 0.0, 0.0] * 2)
    np.testing.assert_allclose(found, (share, *((centre + s * half) / (1 + z**2 / size) for s in (-1, 1))), rtol=1e-12)
    fractions = [0.0, 0.5, 1.0, 1.0]
    assert statistics.score_interval(fractions) == statistics.mean_interval(fractions)
    assert 0.0 < statistics.score_interval([1.0]).low < statistics.score_interval([1.0]).high == 1.0


def test_mean_interval_and_difference_of_two_samples_by_hand_and_by_scipy():
    values = [1.0, 2.0, 3.0, 4.0, 5.0]  # s = sqrt(2.5), s / sqrt(5) = sqrt(0.5); t(0.975, 4) = 2.7764451052
    interval = statistics.mean_interval(values)
    half = 2.7764451052 * 0.5**0.5
    np.testing.assert_allclose(interval, (3.0, 3.0 - half, 3.0 + half), rtol=1e-9)
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval(0.8)
    np.testing.assert_allclose(statistics.mean_interval(values, 0.8)[1:], theirs, rtol=1e-12)
    # Means 2 and 1, variances of the means 1/3 and 4/3: by Welch and Satterthwaite 2.94 degrees of freedom.
    point, low, high = statistics.difference_interval([1.0, 2.0, 3.0], [-1.0, 1.0, 3.0])
    freedom = (1 / 3 + 4 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2)
    half = stats.t.ppf(0.975, freedom) * (1 / 3 + 4 / 3) ** 0.5
    np.testing.assert_allclose((point, low, high), (1.0, 1.0 - half, 1.0 + half), rtol=1e-12)


def test_paired_difference_sees_what_separate_means_cannot():
    levels = np.linspace(0.0, 10.0, 50)
    first, second = levels + 0.1 + 0.01 * np.sin(np.arange(50.0)), levels
    point, low, high = statistics.paired_difference_interval(first, second)
    assert low > 0.0
    theirs = stats.ttest_rel(first, second).confidence_interval(0.95)
    np.testing.assert_allclose((low, high), theirs, rtol=1e-9)
    assert point == pytest.approx(np.mean(first - second), rel=1e-12)
    assert statistics.mean_interval(first).low < statistics.mean_interval(second).high  # unpaired they overlap


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: statistics.iqm([]), "at least one"),
        (lambda: statistics.iqm([1.0, float("nan")]), "finite"),
        (lambda: statistics.bootstrap_interval(np.zeros((2, 2, 2))), r"\[R\] or \[R, K\]"),
        (lambda: statistics.bootstrap_interval([1.0, 2.0], confidence=95.0), "confidence"),
        (lambda: statistics.bootstrap_curve([1.0, 2.0]), r"\[R, K\]"),
        (lambda: statistics.mean_interval([[1.0]]), r"\[E\]"),
        (lambda: statistics.paired_difference_interval([1.0, 2.0], [1.0]), "equal shapes"),
        (lambda: statistics.difference_interval([1.0, 2.0], [1.0]), "two values or more"),
    ],
)
def test_refusals_say_why(call, reason):
    with pytest.raises(ValueError, match=reason):
        call()
