"""How often a promotion rule is right: simulated matches of two players whose difference in Elo is known.

NumPy in, NumPy out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stoix_like.evaluation.elo import expected_score
from stoix_like.evaluation.promotion import Evidence, MatchSubject, PromotionRule, decide


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
    num_matches: int = 1000,
    draw_rate: float = 0.12,
    opening_spread: float = 200.0,
    first_player_elo: float = 60.0,
    seed: int = 0,
) -> GateRates:
    """What the rule does to candidates who are `elo` stronger, in games of two players from unbalanced openings.

    Args:
        rule: of the gate.
        elo: of the candidate over the champion.
        num_matches: that are simulated.
        draw_rate: share of games that are drawn between equals; fewer where one side is ahead.
        opening_spread: standard deviation, Elo, of what an opening is worth to who moves first from it.
        first_player_elo: mean of that.
        seed: of the simulation.
    """
    generator = np.random.default_rng(seed)
    verdicts, groups = [], 0
    subject = MatchSubject("a", "b", "c", "d")
    for _ in range(num_matches):
        bias = generator.normal(first_player_elo, opening_spread, rule.most_groups)
        differences = np.stack([elo + bias, elo - bias], axis=1)  # [n, 2], by the candidate's seat
        scores = _simulated_scores(differences, draw_rate, generator)
        found = decide(Evidence(subject, scores, np.arange(len(scores))), rule, subject)
        verdicts.append(found.verdict)
        groups += found.num_groups
    promoted, rejected, undecided = (
        verdicts.count(verdict) / num_matches for verdict in ("promote", "reject", "inconclusive")
    )
    return GateRates(elo, promoted, rejected, undecided, groups / num_matches)


def _simulated_scores(differences: np.ndarray, draw_rate: float, generator: np.random.Generator) -> np.ndarray:
    """Scores at differences in Elo, whose mean is the expected score: draws are split evenly between both sides."""
    expected = expected_score(differences)
    draws = draw_rate * 4.0 * expected * (1.0 - expected)  # at most twice the smaller side, for rates up to one half
    drawn = generator.random(differences.shape)
    return np.where(drawn < draws, 0.5, np.where(drawn < draws / 2.0 + expected, 1.0, 0.0))
