"""Ratings: a gradient of zero, the mean of clipped inversions that they replace, and matches of known players."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from stoix_like.evaluation.contests.match_records import variance_share
from stoix_like.evaluation.contests.ratings import SCALE, MatchRecord, Ranking, rate, rate_rankings

ANCHORS = {"random": 400.0, "heuristic": 1200.0, "mcts_light": 1500.0, "mcts_medium": 1700.0}
SHARES = (1.0, 0.95, 0.8, 0.6)
GAUNTLET = [MatchRecord("us", name, 50 * share, 50) for name, share in zip(ANCHORS, SHARES, strict=True)]
RING = [MatchRecord("a", "b", 7.5, 10), MatchRecord("b", "c", 4, 10), MatchRecord("c", "a", 6.5, 20)]


def rows_of(table):
    return {row.name: row for row in table.rows}


def expected(difference):
    return 1.0 / (1.0 + 10.0 ** (-difference / 400.0))


def test_one_likelihood_of_all_games_is_not_the_mean_of_inversions():
    """A perfect score against the weakest says next to nothing, and still pulls the mean of inversions down."""
    inversions = [400.0 if p == 1 else 400.0 * np.log10(p / (1 - p)) for p in SHARES]  # what is infinite is cut to 400
    wrong = np.mean([rating + gain for rating, gain in zip(ANCHORS.values(), inversions, strict=True)])
    assert round(wrong) == 1506
    us = rows_of(rate(GAUNTLET, ANCHORS, prior=0.0))["us"]
    assert round(us.rating) == 1754
    information = sum(50 * p * (1 - p) for p in expected(us.rating - np.array(list(ANCHORS.values())))) / SCALE**2
    assert us.high - us.rating == pytest.approx(norm.ppf(0.975) / information**0.5)
    assert us.rating - us.low == pytest.approx(us.high - us.rating)


def test_two_players_have_the_closed_form():
    """30 of 40 points: the difference is 400 log10 3, and both stand as far from the mean."""
    found = rows_of(rate([MatchRecord("a", "b", 30, 40)], prior=0.0, mean=1000.0))
    assert found["a"].rating == pytest.approx(1000 + 200 * np.log10(3))
    assert found["b"].rating == pytest.approx(1000 - 200 * np.log10(3))
    assert (found["a"].games, found["a"].score, found["b"].score) == (40, 0.75, 0.25)
    # the difference has the variance 1 / (40 p q), and a rating is half of it from the mean
    assert found["a"].high - found["a"].rating == pytest.approx(norm.ppf(0.975) * SCALE / (40 * 0.75 * 0.25) ** 0.5 / 2)


def test_a_player_who_won_everything_needs_a_prior():
    records = [MatchRecord("champion", "a", 10, 10), MatchRecord("a", "b", 5, 10), MatchRecord("b", "champion", 0, 4)]
    with pytest.raises(ValueError, match=r"only won or only lost: .*champion"):
        rate(records, prior=0.0)
    with pytest.raises(ValueError, match="only won or only lost: champion"):
        rate(records, {"a": 0.0}, prior=0.0)
    found = rate(records)
    assert found.rows[0].name == "champion"
    assert np.isfinite([row[1:4] for row in found.rows]).all()


@pytest.mark.parametrize("wins", [1, 6, 100, 10**9])
@pytest.mark.parametrize("by_rankings", [False, True])
def test_a_player_who_won_all_games_against_an_anchor_has_the_closed_form(wins, by_rankings):
    """n wins and one virtual draw against the anchor: odds of (n + 1/2) to 1/2, so 400 log10(2 n + 1) above it."""
    anchor = {"engine": 3000.0}
    if by_rankings:
        wins = min(wins, 100)
        table = rate_rankings([Ranking(("us", "engine"), (1.0, 0.0))] * wins, anchor)
    else:
        table = rate([MatchRecord("us", "engine", wins, wins)], anchor)
    us = rows_of(table)["us"]
    assert us.rating == pytest.approx(3000.0 + 400.0 * np.log10(2 * wins + 1))
    information = (wins + 1) * (wins + 0.5) * 0.5 / (wins + 1) ** 2 / SCALE**2  # n + 1 games, each p (1 - p)
    assert us.high - us.rating == pytest.approx(norm.ppf(0.975) / information**0.5)


@pytest.mark.parametrize("num_anchors", [0, 1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_ratings_are_finite_and_the_maximum_whatever_was_played(seed, num_anchors):
    """Perfect scores, anchors far from each other and from the mean, weak priors: the gradient is zero at the end, but
    for what would move all players together where none is an anchor."""
    random = np.random.default_rng(seed)
    anchors = {name: random.uniform(-9e3, 9e3) for name in "ab"[:num_anchors]}
    games = {pair: 10 ** int(random.integers(0, 7)) for pair in itertools.combinations("abcdef", 2)}
    share = random.choice([0.0, 0.5, 1.0], len(games))
    records = [
        MatchRecord(*pair, part * number, number) for (pair, number), part in zip(games.items(), share, strict=True)
    ]
    prior = float(10.0 ** -random.integers(0, 9))
    found = rows_of(rate(records, anchors, prior=prior, mean=1000.0))
    assert np.isfinite([row[1:4] for row in found.values()]).all()
    for name, rating in anchors.items():
        assert found[name].low == found[name].rating == found[name].high == pytest.approx(rating, rel=1e-14)  # by SCALE
    center = np.mean(list(anchors.values())) if anchors else np.mean([row.rating for row in found.values()])
    assert anchors or center == pytest.approx(1000.0)
    slopes, total = {}, prior
    for name in set("abcdef") - anchors.keys():
        slopes[name] = prior * (0.5 - expected(found[name].rating - center))
        for record in records:
            if name in record[:2]:
                other = record.second if name == record.first else record.first
                score = record.score if name == record.first else record.games - record.score
                slopes[name] += score - record.games * expected(found[name].rating - found[other].rating)
                total += record.games
    together = 0.0 if anchors else np.mean(list(slopes.values()))
    assert max(abs(slope - together) for slope in slopes.values()) < 1e-9 * total


def test_players_without_a_way_to_the_others_get_no_rating():
    records = [*RING, MatchRecord("x", "y", 2, 4)]
    found = rate(records)
    assert found.disconnected == ("x", "y")
    assert [row.name for row in found.rows[-2:]] == ["x", "y"]
    assert np.isnan([row[1:4] for row in found.rows[-2:]]).all()
    assert found.rows[-1].games == 4
    plain = rows_of(rate(RING))
    assert all(rows_of(found)[name] == plain[name] for name in "abc")
    anchored = rate(records, {"y": 1000.0})
    assert anchored.disconnected == ("a", "b", "c")
    assert rows_of(anchored)["x"].rating == pytest.approx(1000.0)
    assert rate([*records, MatchRecord("a", "x", 1, 2)]).disconnected == ()
    assert rate([*records, MatchRecord("a", "x", 0, 0)]).disconnected == ("x", "y")  # not played


@pytest.mark.parametrize(
    "record", [MatchRecord("a", "b", 5, 4), MatchRecord("a", "b", -1, 4), MatchRecord("a", "a", 1, 2)]
)
def test_impossible_records_are_refused(record):
    with pytest.raises(ValueError, match="two players, with a score from 0 to its games"):
        rate([record])
    with pytest.raises(ValueError, match="no games"):
        rate([MatchRecord("a", "b", 0, 0)])


def test_the_share_of_variance_scales_widths_and_moves_nothing():
    narrow = rows_of(rate([r._replace(variance_share=0.25) for r in RING], prior=0.0))
    for name, row in rows_of(rate(RING, prior=0.0)).items():
        assert narrow[name].rating == row.rating
        assert narrow[name].high - narrow[name].low == pytest.approx((row.high - row.low) / 2)


def simulated(generator, truth, num_pairs, decided=0.0):
    """Records of a round robin; a share of the openings is decided, so that each of two games goes to the same seat.
    Players of equal strength then keep their expected scores."""
    records = []
    for first, second in itertools.combinations(truth, 2):
        games = generator.random((num_pairs, 2)) < expected(truth[first] - truth[second])
        pairs = np.where(generator.random(num_pairs) < decided, 0.5, games.mean(axis=1))
        share = variance_share(pairs, 2)
        records.append(MatchRecord(first, second, 2 * float(np.sum(pairs)), 2 * num_pairs, share))
    return records


def league_of(generator, truth, num_pairs, decided):
    """Records of a round robin in which every match has the same openings, a share of them decided."""
    is_decided, records = generator.random(num_pairs) < decided, []
    for first, second in itertools.combinations(truth, 2):
        games = generator.random((num_pairs, 2)) < expected(truth[first] - truth[second])
        points = np.where(is_decided, 1.0, games.sum(axis=1))
        share = variance_share(points / 2, 2)
        records.append(MatchRecord(first, second, points.sum(), 2 * num_pairs, share, tuple(points)))
    return records


def test_intervals_know_that_matches_share_their_openings():
    truth = {"a": 0.0, "b": 350.0, "c": 30.0, "d": -20.0, "e": 10.0}
    fitted = rows_of(rate(league_of(np.random.default_rng(1), truth, 40_000, 0.5), {"a": 0.0}))["b"].rating
    generator, held, held_alone = np.random.default_rng(2), 0, 0
    for _ in range(300):
        records = league_of(generator, truth, num_pairs=64, decided=0.5)
        found = rows_of(rate(records, {"a": 0.0}))["b"]
        alone = rows_of(rate([record._replace(by_opening=()) for record in records], {"a": 0.0}))["b"]
        assert found.rating == alone.rating
        held += found.low <= fitted <= found.high
        held_alone += alone.low <= fitted <= alone.high
    assert held / 300 > 0.95 - 3.3 * (0.95 * 0.05 / 300) ** 0.5
    assert held_alone < held - 15


def test_known_ratings_are_recovered_at_the_nominal_rate():
    """The interval of a player holds its rating in 95 of 100 round robins, within what 300 may miss at 1 in 1000. Also
    where openings decide most games, which narrows it."""
    leagues = ({"a": 1000.0, "b": 1100.0, "c": 1350.0, "d": 1500.0}, 20, 0.0), (dict.fromkeys("abc", 0.0), 50, 0.6)
    for truth, num_pairs, decided in leagues:
        generator, held, widths = np.random.default_rng(3), dict.fromkeys(list(truth)[1:], 0), np.zeros(2)
        for _ in range(300):
            records = simulated(generator, truth, num_pairs, decided)
            found = rows_of(rate(records, {"a": truth["a"]}))
            plain = rows_of(rate([r._replace(variance_share=1.0) for r in records], {"a": truth["a"]}))
            widths += [rows["b"].high - rows["b"].low for rows in (found, plain)]
            for name in held:
                held[name] += found[name].low <= truth[name] <= found[name].high
        for count in held.values():
            assert abs(count / 300 - 0.95) < 3.3 * (0.95 * 0.05 / 300) ** 0.5
        assert not decided or widths[0] < 0.8 * widths[1]


def test_rankings_of_two_are_bradley_terry_with_draws_as_half_a_win():
    records, rankings = [], []
    for first, second, wins, draws, losses in (("a", "b", 5, 2, 1), ("b", "c", 3, 3, 4), ("c", "a", 2, 0, 6)):
        records.append(MatchRecord(first, second, wins + draws / 2, wins + draws + losses))
        for count, outcome in ((wins, (1, -1)), (draws, (0, 0)), (losses, (-1, 1))):
            rankings += [Ranking((first, second), outcome)] * count
    for anchors in ({}, {"c": 700.0}):
        for row, other in zip(rate(records, anchors).rows, rate_rankings(rankings, anchors).rows, strict=True):
            assert row.name == other.name
            np.testing.assert_allclose(row[1:], other[1:])


def plackett_luce(strength, order):
    """The log-probability of one order, by its definition."""
    return sum(strength[who] - np.logaddexp.reduce([strength[w] for w in order[i:]]) for i, who in enumerate(order))


def test_rankings_of_three_are_the_maximum_that_scipy_finds():
    """With ties: the mean of the log-probabilities of the orders that they leave open, as the definition says."""
    rankings = [
        Ranking(("a", "b", "c"), (1.0, 0.0, -1.0)),
        Ranking(("b", "c", "a"), (1.0, 0.0, -1.0)),
        Ranking(("c", "a", "b"), (0.5, 0.5, -1.0)),
        Ranking(("a", "c", "b"), (1.0, -0.5, -0.5)),
        Ranking(("a", "b", "c"), (0.0, 0.0, 0.0)),
        Ranking(("a", "b", "b"), (1.0, 0.0, -1.0)),
    ]
    orders = [
        [("a", "b", "c")],
        [("b", "c", "a")],
        [("c", "a", "b"), ("a", "c", "b")],
        [("a", "c", "b"), ("a", "b", "c")],
        list(itertools.permutations("abc")),
        [("a", "b", "b")],
    ]

    def cost(values):
        strength = {"a": 0.0, "b": values[0], "c": values[1]}
        return -sum(np.mean([plackett_luce(strength, order) for order in some]) for some in orders)

    best = minimize(cost, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-13})
    found = rows_of(rate_rankings(rankings, {"a": 0.0}, prior=0.0))
    np.testing.assert_allclose([found["b"].rating / SCALE, found["c"].rating / SCALE], best.x, atol=1e-5)
    # of a: 1, 0, 0.75, 1, 0.5, 1 of its opponents in six games
    assert found["a"].score == pytest.approx(4.25 / 6)


@pytest.mark.parametrize("ranking", [Ranking(("a",), (1.0,)), Ranking(("a", "b"), (1.0,))])
def test_impossible_rankings_are_refused(ranking):
    with pytest.raises(ValueError, match="two players or more"):
        rate_rankings([ranking])
