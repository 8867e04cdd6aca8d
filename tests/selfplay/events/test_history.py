"""What past decisions mean for the next iterations, by hand."""

import pytest

from stoix_like.selfplay.events.history import (
    IterationResult,
    WatchRule,
    begins,
    elo_of,
    exploration_boost,
    plateau,
    regression,
)


def results(*words):
    """The newest first: p promoted by 20 Elo, r rejected at -60, i inconclusive at 0, n without a match."""
    elo = {"p": 20.0, "r": -60.0, "i": 0.0, "n": None}
    numbers = range(len(words), 0, -1)
    return [IterationResult(n, w == "p", w == "r", elo[w], 0.0, 0) for n, w in zip(numbers, words, strict=True)]


def test_elo_of_scores():
    assert elo_of(0.5, 100) == 0.0
    assert elo_of(10 / 11, 100) == pytest.approx(400.0)
    assert elo_of(1.0, 10) == pytest.approx(elo_of(0.95, 10))  # half a game away from 1
    assert elo_of(0.0, 10) == pytest.approx(-elo_of(1.0, 10))


@pytest.mark.parametrize(
    ("words", "boost"),
    [
        ("", 1.0),
        ("p", 1.0),
        ("r", 1.3),
        ("rrp", 1.69),
        ("rrrr", 2.0),
        ("i", 1.0),
        ("ir", 1.27),
        ("rirp", 1.3 * 1.27),
        ("nrp", 1.27),
        ("prrr", 1.0),
    ],
)
def test_the_boost_rises_with_rejections_falls_by_itself_and_ends_with_a_promotion(words, boost):
    assert exploration_boost(iter(results(*words))) == pytest.approx(boost)


def test_the_boost_reads_no_more_than_the_decisions_that_count():
    read = []
    rows = (read.append(row) or row for row in results(*"i" * 500 + "r" * 500))
    assert exploration_boost(rows) == 1.0
    assert len(read) == 50
    alternating = results(*"ri" * 500)
    assert exploration_boost(iter(alternating)) == pytest.approx(exploration_boost(iter(alternating[:200])))


RULE = WatchRule(plateau_iterations=3, plateau_elo=15.0, regression_iterations=2, regression_elo=50.0)


@pytest.mark.parametrize(
    ("words", "gain"), [("ri", None), ("rii", 0.0), ("pii", None), ("iiip", 0.0), ("iipi", None), ("nnn", 0.0)]
)
def test_a_plateau_is_a_window_in_which_champions_gain_too_little(words, gain):
    assert plateau(results(*words), RULE) == gain


@pytest.mark.parametrize(
    ("words", "drop"), [("r", None), ("rr", 60.0), ("ri", None), ("rp", None), ("rn", None), ("irr", None)]
)
def test_a_regression_is_a_mean_of_candidates_far_below_the_champion(words, drop):
    assert regression(results(*words), RULE) == drop


def test_what_lasts_is_told_when_it_begins_and_again_after_a_whole_window():
    def told(number, found, before):
        return begins(results(*"i" * number), found, before, 3)

    assert not told(4, None, None)
    assert told(4, 1.0, None)
    assert not told(5, 1.0, 1.0)
    assert told(6, 1.0, 1.0)
