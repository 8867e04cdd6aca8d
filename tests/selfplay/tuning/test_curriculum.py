"""Weights of games, by hand; and the next pair of a tournament."""

import math

import pytest

from stoix_like.config.sections.master_loop import CurriculumConfig
from stoix_like.evaluation.contests import ratings
from stoix_like.evaluation.contests.match_records import MatchRecord
from stoix_like.selfplay.ratings.tournament import next_pair
from stoix_like.selfplay.tuning.curriculum import GameProgress, next_game, rebalanced

CONFIG = CurriculumConfig(progress_weight=0.5, age_weight=0.5, age_hours=6.0, weight_smoothing=1.0)
NOW = 100_000.0


def weights(before, config=CONFIG, **games):
    progress = {name: GameProgress(gained, NOW - 3600.0 * hours) for name, (gained, hours) in games.items()}
    return rebalanced(before, progress, config, NOW)


def test_a_game_that_lags_behind_or_has_waited_gets_more():
    assert weights({}, a=(100.0, 0.0), b=(100.0, 0.0)) == {"a": 1.0, "b": 1.0}
    found = weights({}, a=(200.0, 0.0), b=(0.0, 3.0))  # mean 100: b lies behind by all of it, and is half aged
    assert found == {"a": 0.5, "b": 1.0 + 0.5 * 1.0 + 0.5 * 0.5}
    assert weights({}, a=(10.0, 0.0), b=(0.0, 0.0)) == {"a": 0.95, "b": 1.05}  # small differences count for little


def test_a_game_on_a_plateau_gets_least_and_counts_for_no_mean():
    rows = {"solved": GameProgress(0.0, NOW, True), "a": GameProgress(300.0, NOW), "b": GameProgress(100.0, NOW)}
    # the mean of the others is 200, which a is above by half of it and b below
    assert rebalanced({}, rows, CONFIG, NOW) == {"solved": 0.5, "a": 1.0 - 0.5 * 0.5, "b": 1.0 + 0.5 * 0.5}
    assert rebalanced({}, {"solved": GameProgress(0.0, NOW - 6.0 * 3600.0, True)}, CONFIG, NOW) == {"solved": 1.0}


def test_weights_stay_between_a_half_and_two_and_move_smoothly():
    extreme = CurriculumConfig(progress_weight=10.0, age_weight=10.0, weight_smoothing=1.0)
    assert weights({}, extreme, a=(1000.0, 0.0), b=(0.0, 99.0)) == {"a": 0.5, "b": 2.0}
    smooth = CurriculumConfig(progress_weight=0.5, age_weight=0.5, weight_smoothing=0.3)
    assert weights({"b": 1.0}, smooth, a=(200.0, 0.0), b=(0.0, 0.0))["b"] == pytest.approx(0.7 + 0.3 * 1.5)


def test_a_game_without_an_iteration_counts_as_aged():
    assert rebalanced({}, {"a": GameProgress(0.0, None)}, CONFIG, NOW) == {"a": 1.5}


def test_turns_follow_the_time_used_for_the_weight():
    assert next_game({"a": 0.0, "b": 0.0}, {}) == "a"
    assert next_game({"a": 10.0, "b": 15.0}, {"a": 0.5, "b": 1.0}) == "b"
    used = {"a": 0.0, "b": 0.0}
    for _ in range(300):
        used[next_game(used, {"a": 2.0, "b": 1.0})] += 1.0
    assert used == {"a": 200.0, "b": 100.0}


def test_a_tournament_plays_where_ratings_are_least_certain():
    names = ["a", "b", "c"]
    assert next_pair(names, [], 100.0) == ("a", "b")
    assert next_pair(names, [MatchRecord("a", "b", 10.0, 20.0)], 100.0) == ("a", "c")  # c has not played
    sure = [MatchRecord("a", "b", 200.0, 400.0), MatchRecord("a", "c", 10.0, 20.0), MatchRecord("b", "c", 10.0, 20.0)]
    assert next_pair(names, sure, 1000.0) in (("a", "c"), ("b", "c"))
    lost = [MatchRecord("a", "b", 10.0, 20.0), MatchRecord("a", "c", 19.5, 20.0), MatchRecord("b", "c", 19.5, 20.0)]
    assert next_pair(names, lost, 1000.0) == ("a", "b")  # the others' result is known beforehand
    assert next_pair(names, lost, 20.0) is None


def test_a_tournament_of_many_rates_all_of_them():
    """Whoever has not played meets someone who has, so that nobody stays without a rating."""
    names = [f"iteration {number}" for number in range(16)]
    played = {}
    for _ in range(40):
        pair = next_pair(names, list(played.values()), 400.0)
        games = played[pair].games + 20.0 if pair in played else 20.0
        played[pair] = MatchRecord(*pair, 0.45 * games, games)
    rows = ratings.rate(list(played.values()), mean=1000.0).rows
    assert {row.name for row in rows} == set(names)
    assert all(math.isfinite(row.rating) for row in rows)
    assert len(played) > 20  # what is left of the budget goes to many pairs
