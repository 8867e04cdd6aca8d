"""How often a promotion rule is right: simulated matches whose difference in Elo is known.

Games of two have draws. Those of more players are rankings by Plackett and Luce, with the candidate in one seat and
the champion in all others. Their mean score is that of two players, 1 / (1 + 10^(-d / 400)): the candidate is ahead of
each opponent with this probability, whoever else plays (Luce 1959, "Individual Choice Behavior"), and a score is the
share of opponents that came behind. So rules of two players hold for more, with another spread of scores.

NumPy in, NumPy out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stoix_like.evaluation.contests.elo import SCALE, expected_score
from stoix_like.evaluation.contests.promotion import Evidence, MatchSubject, PromotionRule, decide


class GateRates(NamedTuple):
    """How a rule treats candidates of one strength, from simulated matches."""

    elo: float
    promoted: float  # share of matches
    rejected: float
    inconclusive: float
    mean_groups: float  # openings per match


def simulate_rule(
    rule: PromotionRule,
    elo: float,
    *,
    num_players: int = 2,
    num_matches: int = 1000,
    draw_rate: float = 0.12,
    opening_spread: float = 200.0,
    first_player_elo: float = 60.0,
    seed: int = 0,
) -> GateRates:
    """What the rule does to candidates who are `elo` stronger, in games from unbalanced openings.

    Args:
        rule: of the gate.
        elo: of the candidate over the champion.
        num_players: P of the games.
        num_matches: that are simulated.
        draw_rate: share of games of two that are drawn between equals; fewer where one side is ahead.
        opening_spread: standard deviation, Elo, of what an opening is worth to who moves first from it; of more
            players, of what it is worth to each.
        first_player_elo: mean of that, of who moves first.
        seed: of the simulation.
    """
    generator = np.random.default_rng(seed)
    verdicts, groups = [], 0
    subject = MatchSubject("a", "b", "c", "d")
    for _ in range(num_matches):
        if num_players == 2:
            bias = generator.normal(first_player_elo, opening_spread, rule.most_groups)
            scores = _simulated_scores(np.stack([elo + bias, elo - bias], axis=1), draw_rate, generator)  # [n, 2]
        else:
            seats = generator.normal(0.0, opening_spread, (rule.most_groups, num_players))
            scores = _simulated_rankings(seats + first_player_elo * (np.arange(num_players) == 0), elo, generator)
        found = decide(Evidence(subject, scores, np.arange(len(scores))), rule, subject)
        verdicts.append(found.verdict)
        groups += found.num_groups
    promoted, rejected, undecided = (verdicts.count(one) / num_matches for one in ("promote", "reject", "inconclusive"))
    return GateRates(elo, promoted, rejected, undecided, groups / num_matches)


def _simulated_scores(differences: np.ndarray, draw_rate: float, generator: np.random.Generator) -> np.ndarray:
    """Scores at differences in Elo, whose mean is the expected score: draws are split evenly between both sides."""
    expected = expected_score(differences)
    draws = draw_rate * 4.0 * expected * (1.0 - expected)  # at most twice the smaller side, for rates up to one half
    drawn = generator.random(differences.shape)
    return np.where(drawn < draws, 0.5, np.where(drawn < draws / 2.0 + expected, 1.0, 0.0))


def _simulated_rankings(seats: np.ndarray, elo: float, generator: np.random.Generator) -> np.ndarray:
    """Scores [n, P] by the candidate's seat, of games whose seats [n, P] are worth so many Elo. A ranking by Plackett
    and Luce is the order of strengths with Gumbel noise."""
    num_players = seats.shape[1]
    strengths = np.repeat(seats[:, None], num_players, axis=1) + elo * np.eye(num_players)  # [n, seat of it, P]
    results = strengths / SCALE + generator.gumbel(size=strengths.shape)
    own = np.diagonal(results, axis1=1, axis2=2)  # [n, P]
    return (own[..., None] > results).sum(axis=-1) / (num_players - 1)
