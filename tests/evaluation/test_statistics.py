"""Statistics and comparisons against numbers by hand, scipy, and every resample counted."""

import itertools

import numpy as np
import pytest
from scipy import stats

from stoix_like.evaluation import comparison, statistics


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
    low, high = statistics.mean_interval(fractions)[1:]
    assert (low < 0.0, high > 1.0) == (True, True)
    assert statistics.share_interval(fractions) == (0.625, 0.0, 1.0)
    assert statistics.share_interval([0.0, 1.0] * 8) == statistics.score_interval([0.0, 1.0] * 8)
    assert 0.0 < statistics.score_interval([1.0]).low < statistics.score_interval([1.0]).high == 1.0


def test_mean_intervals_and_differences_of_samples_apart_and_paired_by_hand_and_by_scipy():
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
    levels = np.linspace(0.0, 10.0, 50)
    first, second = levels + 0.1 + 0.01 * np.sin(np.arange(50.0)), levels
    point, low, high = statistics.paired_difference_interval(first, second)
    assert low > 0.0
    theirs = stats.ttest_rel(first, second).confidence_interval(0.95)
    np.testing.assert_allclose((low, high), theirs, rtol=1e-9)
    assert point == pytest.approx(np.mean(first - second), rel=1e-12)
    assert statistics.mean_interval(first).low < statistics.mean_interval(second).high  # unpaired they overlap


def resampled(strata):
    """Every resample of some runs per task, each as likely as any other: the strata of each."""
    per_task = [list(itertools.product(values, repeat=len(values))) for values in strata]
    return [[np.array(values) for values in chosen] for chosen in itertools.product(*per_task)]


def quantiles(values, confidence):
    """The bounds over all resamples: the smallest value that enough of them do not exceed.

    40,000 drawn resamples find the same value, because no step of the distribution is within three standard errors.
    """
    tails = [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0]
    steps = [np.mean(np.asarray(values) <= value + 1e-9) for value in values]
    assert min(abs(step - tail) for step in steps for tail in tails) > 3.0 * (0.025 * 0.975 / 40_000) ** 0.5
    return np.quantile(values, tails, method="inverted_cdf")


def test_aggregates_by_hand_weigh_tasks_the_same_with_intervals_over_several_runs():
    # Task means 2 and 5, medians of the runs 1 and 5; all eight sorted: 0 0 | 1 1 4 6 | 7 9.
    strata = [np.array([0.0, 7.0, 1.0, 0.0]), np.array([1.0, 4.0, 9.0, 6.0])]
    assert comparison.mean(strata) == 3.5
    assert comparison.median(strata) == 3.5  # of two task means
    assert comparison.median(strata[:1]) == 0.5  # of one task's runs: 0 0 1 7
    assert comparison.iqm(strata) == 3.0
    # Shortfalls of 2: 2 0 1 2 and 1 0 0 0, so 5/4 and 1/4.
    assert comparison.optimality_gap(strata, target=2.0) == 0.75
    # tasks weigh the same, whatever their numbers of runs
    strata = [np.array([1.0]), np.array([4.0, 5.0, 6.0])]
    assert comparison.mean(strata) == 3.0
    assert comparison.optimality_gap(strata, target=5.0) == pytest.approx((4.0 + 1.0 / 3.0) / 2.0)
    np.testing.assert_allclose(comparison.normalised([2.0, 3.0, 8.0], 2.0, 4.0), [0.0, 0.5, 3.0])
    values = np.random.default_rng(1).normal(size=7)
    ours = comparison.stratified_interval([values], comparison.iqm)
    np.testing.assert_array_equal(ours, statistics.bootstrap_interval(values))
    # Tasks that differ by 100 and do not vary: drawn within tasks there is nothing to vary, drawn across there is.
    strata = [np.zeros(5), np.full(3, 100.0)]
    assert comparison.stratified_interval(strata, comparison.mean) == (50.0, 50.0, 50.0)
    # one run of one task leaves no interval
    strata = [np.array([0.2, 0.4, 0.6]), np.array([0.5])]
    point, low, high = comparison.stratified_interval(strata, comparison.mean)
    assert point == pytest.approx(0.45)
    assert np.isnan([low, high]).all()


@pytest.mark.parametrize("statistic", [comparison.mean, comparison.median, comparison.iqm, comparison.optimality_gap])
@pytest.mark.parametrize("confidence", [0.95, 0.7])
def test_a_stratified_interval_against_every_resample(statistic, confidence):
    """27 resamples of three runs times 4 of two. The bounds lie on values with many resamples beside them."""
    strata = [np.array([0.0, 0.25, 0.7]), np.array([0.4, 0.9])]
    every = [float(statistic(chosen)) for chosen in resampled(strata)]
    low, high = quantiles(every, confidence)
    found = comparison.stratified_interval(strata, statistic, confidence, repetitions=40_000)
    assert found.point == pytest.approx(float(statistic(strata)), rel=1e-12)
    np.testing.assert_allclose([found.low, found.high], [low, high], rtol=1e-12)


def test_a_profile_by_counting_over_tasks_and_its_interval_against_every_resample():
    strata = [np.array([0.1, 0.5, 0.5, 0.9])]
    profile = comparison.performance_profile(strata, [0.0, 0.1, 0.3, 0.5, 0.8, 0.9])
    np.testing.assert_array_equal(profile.point, [1.0, 0.75, 0.75, 0.25, 0.25, 0.0])  # above, not at
    strata = [np.array([0.0, 1.0]), np.array([1.0, 1.0, 1.0, 0.0])]
    np.testing.assert_array_equal(comparison.performance_profile(strata, [0.5]).point, [0.625])  # (1/2 + 3/4) / 2
    # its interval against every resample
    strata = [np.array([0.1, 0.5, 0.9]), np.array([0.2, 0.6])]
    thresholds = np.array([0.05, 0.3, 0.55, 0.7, 1.0])
    every = [np.mean([(values[:, None] > thresholds).mean(0) for values in c], axis=0) for c in resampled(strata)]
    low, high = np.quantile(every, [0.15, 0.85], axis=0, method="inverted_cdf")
    found = comparison.performance_profile(strata, thresholds, confidence=0.7, repetitions=40_000)
    np.testing.assert_allclose([found.low, found.high], [low, high], rtol=1e-12)


def by_pairs(first, second):
    """Each run of the first against each of the second."""
    wins = [(x > y) + 0.5 * (x == y) for x, y in itertools.product(first, second)]
    return sum(wins) / len(wins)


def test_an_improvement_by_hand():
    # 1 against 2 and 3: 0, 0. 3: 1, one half. 5: 1, 1. Together 3.5 of 6.
    first, second = [np.array([1.0, 3.0, 5.0])], [np.array([2.0, 3.0])]
    assert comparison.probability_of_improvement(first, second) == pytest.approx(3.5 / 6.0, rel=1e-15)
    assert comparison.probability_of_improvement(second, first) == pytest.approx(2.5 / 6.0, rel=1e-15)
    # equal scores are no improvement
    same = [np.full(4, 0.5)]
    assert comparison.improvement_interval(same, [np.full(3, 0.5)]) == (0.5, 0.5, 0.5)
    # over tasks it is the mean of theirs
    first = [np.array([1.0, 2.0]), np.array([0.0, 0.0, 0.0])]
    second = [np.array([0.0]), np.array([1.0, 0.0])]
    assert comparison.probability_of_improvement(first, second) == 0.5 * (1.0 + 0.25)
    # over a single run it has no interval
    point, low, high = comparison.improvement_interval([np.array([1.0, 0.0])], [np.array([0.5])])
    assert point == 0.5
    assert np.isnan([low, high]).all()


@pytest.mark.parametrize("confidence", [0.9, 0.8])
def test_the_interval_of_an_improvement_against_every_resample(confidence):
    """Both sides are drawn anew, independently: 27 times 4 for the first task, 4 times 4 for the second."""
    first = [np.array([0.1, 0.5, 0.8]), np.array([0.3, 0.6])]
    second = [np.array([0.2, 0.5]), np.array([0.4, 0.4])]
    every = [
        np.mean([by_pairs(x, y) for x, y in zip(one, other, strict=True)])
        for one in resampled(first)
        for other in resampled(second)
    ]
    low, high = quantiles(every, confidence)
    found = comparison.improvement_interval(first, second, confidence, repetitions=40_000)
    np.testing.assert_allclose([found.low, found.high], [low, high], rtol=1e-12)
    mirrored = comparison.improvement_interval(second, first, confidence, repetitions=40_000)
    np.testing.assert_allclose([1.0 - mirrored.high, 1.0 - mirrored.low], [low, high], rtol=1e-12)


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
        (lambda: comparison.mean([]), "at least one task"),
        (lambda: comparison.iqm([np.array([])]), "at least one"),
        (lambda: comparison.stratified_interval([[0.1, np.nan]], comparison.mean), "finite"),
        (lambda: comparison.performance_profile([[[0.1]]], [0.5]), r"\[R\]"),
        (lambda: comparison.performance_profile([[0.1]], []), "threshold"),
        (lambda: comparison.probability_of_improvement([[0.1]], [[0.1], [0.2]]), "same tasks"),
        (lambda: comparison.stratified_interval([[0.1, 0.2]], comparison.mean, 95.0), "confidence"),
        (lambda: comparison.normalised([0.1], 1.0, 1.0), "above"),
    ],
)
def test_refusals_say_why(call, reason):
    with pytest.raises(ValueError, match=reason):
        call()
