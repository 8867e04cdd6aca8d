"""The gate: the arithmetic by hand, what never promotes, and how often simulated candidates pass."""

import math

import numpy as np
import pytest
from support.marks import full

from stoix_like.evaluation.contests import promotion, promotion_rates
from stoix_like.evaluation.contests.elo import expected_score
from stoix_like.evaluation.contests.promotion import Evidence, MatchSubject, PromotionRule, decide

SUBJECT = MatchSubject("candidate", "champion", "specification", "openings")
RULE = PromotionRule()


def evidence(scores, subject=SUBJECT, **changes):
    scores = np.asarray(scores, float).reshape(-1, 2) if np.size(scores) else np.zeros((0, 2))
    return Evidence(subject, scores, np.arange(len(scores)))._replace(**changes)


def test_the_log_likelihood_ratio_of_four_pairs_is_as_by_hand():
    """Means 1, 1/2, 3/4, 3/4 and a virtual pair over 0, 1/4, ..., 1: mean 0.7, variance (0.135 + 0.165) / 4."""
    groups = np.array([1.0, 0.5, 0.75, 0.75])
    high = 1.0 / (1.0 + 10.0 ** (-50.0 / 400.0))
    by_hand = 4 * (high - 0.5) * (2 * 0.7 - 0.5 - high) / (2 * 0.075)
    assert promotion.log_likelihood_ratio(groups, 2, 0.0, 50.0) == pytest.approx(by_hand, rel=1e-12)
    assert by_hand == pytest.approx(0.62609, abs=1e-4)
    assert promotion.log_likelihood_ratio(groups, 2, 50.0, 0.0) == pytest.approx(-by_hand)
    assert promotion.log_likelihood_ratio(groups[:0], 2, 0.0, 50.0) == 0.0


def test_the_bounds_are_walds():
    assert RULE.bounds == (pytest.approx(math.log(0.05 / 0.95)), pytest.approx(math.log(0.95 / 0.05)))
    other = RULE._replace(alpha=0.01, beta=0.2)
    assert other.bounds == (pytest.approx(math.log(0.2 / 0.99)), pytest.approx(math.log(0.8 / 0.01)))


def test_wins_promote_losses_are_rejected_and_equals_are_inconclusive():
    won = decide(evidence([[1.0, 1.0]] * 20), RULE, SUBJECT)
    assert won.promotes
    assert won.verdict == "promote"
    assert won.score.point == 1.0
    lost = decide(evidence([[0.0, 0.0]] * 20), RULE, SUBJECT)
    assert (lost.promotes, lost.verdict) == (False, "reject")
    even = decide(evidence([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.5, 0.5]] * 5), RULE, SUBJECT)
    assert (even.promotes, even.verdict, even.num_groups) == (False, "inconclusive", 20)


def test_evidence_that_ends_between_two_looks_is_invalid_unless_the_openings_are_used_up():
    found = decide(evidence([[1.0, 1.0]] * 13), RULE, SUBJECT)
    assert (found.promotes, found.reasons[0][:36]) == (False, "13 openings end between two looks, o")
    assert decide(evidence([[1.0, 1.0]] * 13), RULE._replace(most_groups=13), SUBJECT).promotes


def test_where_all_games_are_drawn_the_variance_stays_positive():
    drawn = [[0.5, 0.5]] * 40
    assert math.isfinite(promotion.log_likelihood_ratio(np.full(40, 0.5), 2, 0.0, 50.0))
    assert decide(evidence(drawn), RULE, SUBJECT).verdict == "reject"
    rule = RULE._replace(name="non_inferior")
    assert rule.hypotheses == (-50.0, 0.0)
    assert decide(evidence(drawn), rule, SUBJECT).promotes
    assert decide(evidence([[0.5, 0.0]] * 60), rule, SUBJECT).verdict == "reject"  # what is worse is inferior


def test_the_first_look_that_decides_is_the_last_one():
    """A match cannot be continued until it passes: what comes after a decision is not counted."""
    lost_then_won = [[0.0, 0.0]] * 20 + [[1.0, 1.0]] * 180
    found = decide(evidence(lost_then_won), RULE, SUBJECT)
    assert (found.verdict, found.num_groups) == ("reject", 20)
    groups = np.array(lost_then_won).mean(axis=1)
    assert promotion.log_likelihood_ratio(groups, 2, 0.0, 50.0) > RULE.bounds[1]  # what a look at the end would say


def test_a_match_is_played_until_it_is_decided_or_the_openings_are_used_up():
    assert promotion.is_decided(np.ones((20, 2)), RULE)
    assert not promotion.is_decided(np.zeros((0, 2)), RULE)
    even = np.array([[1.0, 0.0]] * 200)
    assert not promotion.is_decided(even[:20], RULE._replace(elo_1=10.0))
    assert promotion.is_decided(even, RULE._replace(elo_1=10.0))
    assert not promotion.is_decided(np.ones((199, 2)), RULE._replace(name="fixed"))


def test_the_fixed_rule_wants_all_its_openings_and_a_lower_bound_above_one_half():
    rule = RULE._replace(name="fixed", most_groups=30)
    assert decide(evidence([[1.0, 0.5]] * 30), rule, SUBJECT).verdict == "promote"
    assert decide(evidence([[1.0, 0.0]] * 30), rule, SUBJECT).verdict == "reject"
    assert decide(evidence([[1.0, 0.5]] * 20), rule, SUBJECT).verdict == "inconclusive"


WINS = [[1.0, 1.0]] * 20


@pytest.mark.parametrize("name", ["sprt", "non_inferior", "fixed"])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scores": np.zeros((0, 2)), "openings": np.zeros(0)}, "no games were played"),
        ({"error": "out of memory"}, "the match failed: out of memory"),
        ({"num_unfinished": 1}, "1 games were cut short"),
        ({"subject": SUBJECT._replace(candidate="another")}, "another candidate: another, not candidate"),
        ({"subject": SUBJECT._replace(champion="former")}, "another champion: former, not champion"),
        ({"subject": SUBJECT._replace(specification="more")}, "another specification: more, not specification"),
        ({"subject": SUBJECT._replace(openings="few")}, "another openings: few, not openings"),
        ({"openings": np.zeros(20)}, "not the first ones of the list, each once and in its order"),
        ({"openings": np.arange(20) + 20}, "not the first ones of the list"),
        ({"openings": np.arange(20)[::-1]}, "not the first ones of the list"),
        ({"openings": np.arange(3)}, "3 openings for 20 groups"),
        ({"scores": np.full((20, 2), 2.0)}, "a score is not between 0 and 1"),
        ({"scores": np.full((20, 2), np.nan)}, "a score is not between 0 and 1"),
    ],
)
def test_evidence_that_never_promotes(name, changes, reason):
    rule = RULE._replace(name=name, most_groups=20)
    assert decide(evidence(WINS), rule, SUBJECT).promotes  # the games would
    found = decide(evidence(WINS)._replace(**changes), rule, SUBJECT)
    assert (found.promotes, found.verdict, found.num_groups) == (False, "invalid", 0)
    assert any(reason in text for text in found.reasons)


def test_a_candidate_that_is_the_champion_and_too_many_openings_never_promote():
    same = SUBJECT._replace(champion="candidate")
    assert decide(evidence(WINS, same), RULE, same).reasons == ("the candidate is the champion",)
    found = decide(evidence(WINS), RULE._replace(most_groups=19), SUBJECT)
    assert found.reasons == ("20 openings were played, and the rule allows 19",)
    broken = evidence([], SUBJECT._replace(candidate="another"), error="killed", num_unfinished=2)
    assert len(decide(broken, RULE, SUBJECT).reasons) == 4  # every one is named


def test_equal_players_are_promoted_in_at_most_five_percent_and_a_hundred_elo_more_in_at_least_95():
    """From openings that favour the first player, some of them decided."""
    equal, better, much_better = (
        promotion_rates.simulate_rule(RULE, elo, num_matches=2000) for elo in (0.0, 50.0, 100.0)
    )
    assert equal.promoted <= 0.05
    assert equal.rejected >= 0.8
    assert better.promoted >= 0.5
    assert much_better.promoted >= 0.95
    assert much_better.mean_groups < better.mean_groups < RULE.most_groups


@pytest.mark.parametrize("num_players", [3, full(4)])
def test_of_more_players_equals_are_promoted_in_at_most_five_percent_too(num_players):
    equal, better = (
        promotion_rates.simulate_rule(RULE, elo, num_players=num_players, num_matches=1000) for elo in (0.0, 100.0)
    )
    assert equal.promoted <= 0.05
    assert equal.rejected >= 0.8
    assert better.promoted >= 0.95
    assert better.mean_groups < RULE.most_groups


@pytest.mark.parametrize("num_players", [2, 3, 4])
def test_the_mean_score_among_several_is_that_of_two(num_players):
    """By Luce's axiom, whoever else plays; seats that are worth more bring it closer to one half."""
    generator, even = np.random.default_rng(0), np.zeros((100_000, num_players))
    for elo in (0.0, 100.0, 400.0):
        scores = promotion_rates._simulated_rankings(even, elo, generator)
        assert scores.shape == (100_000, num_players)
        assert scores.mean() == pytest.approx(expected_score(elo), abs=0.004)
        assert set(np.unique(scores)) == {place / (num_players - 1) for place in range(num_players)}
    seats = generator.normal(0.0, 200.0, even.shape)
    assert 0.5 < promotion_rates._simulated_rankings(seats, 100.0, generator).mean() < expected_score(100.0) - 0.02


@pytest.mark.full
def test_the_simulation_sees_a_gate_that_is_fooled(monkeypatch):
    """Looking after every pair at an interval of 95 %, as is often done, promotes far too many equals."""

    def by_interval(found, rule, expected):
        for end in range(10, len(found.scores) + 1):
            score = promotion._score(found.scores[:end])
            if score.low > 0.5 or score.high < 0.5:
                verdict = "promote" if score.low > 0.5 else "reject"
                return promotion.Decision(verdict == "promote", verdict, (), end, score, 0.0)
        return promotion.Decision(False, "inconclusive", (), len(found.scores), score, 0.0)

    monkeypatch.setattr(promotion_rates, "decide", by_interval)
    assert promotion_rates.simulate_rule(RULE, 0.0, num_matches=100).promoted > 0.05


def test_simulated_scores_have_the_mean_that_elo_expects():
    generator = np.random.default_rng(0)
    for elo in (0.0, 100.0, 400.0):
        scores = promotion_rates._simulated_scores(np.full(200_000, elo), 0.2, generator)
        assert scores.mean() == pytest.approx(expected_score(elo), abs=0.004)
        assert set(np.unique(scores)) == {0.0, 0.5, 1.0}
