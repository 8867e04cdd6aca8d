"""How often the gate of self-play promotes candidates of a given strength, by simulated matches at its defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from stoix_like.bench.timing.measure import Measurement
from stoix_like.evaluation.contests.promotion import PromotionRule, RuleName
from stoix_like.evaluation.contests.promotion_rates import simulate_rule

DIFFERENCES = (-100.0, -50.0, 0.0, 50.0, 100.0, 200.0)  # Elo of the candidate over the champion
NUM_MATCHES = 2000
PLAYERS = (2, 3, 4)


def promotion_suite() -> Iterator[Measurement]:
    """A row per number of players, rule and difference: the share of matches in which the candidate is promoted. It
    needs no device."""
    for num_players in PLAYERS:
        kind = "promotion" if num_players == 2 else f"promotion_{num_players}p"
        for name in get_args(RuleName):
            for elo in DIFFERENCES:
                yield _row(f"{kind}/{name}/{elo:+.0f}_elo", name, elo, num_players)


def _row(row: str, rule: RuleName, elo: float, num_players: int) -> Measurement:
    found = simulate_rule(PromotionRule(rule), elo, num_players=num_players, num_matches=NUM_MATCHES)
    spread = 1.96 * (found.promoted * (1.0 - found.promoted) / NUM_MATCHES) ** 0.5
    share = spread / found.promoted if found.promoted > 0.0 else None
    others = f"rejected {found.rejected:.3f}, inconclusive {found.inconclusive:.3f}"
    note = f"{others}; {found.mean_groups:.0f} openings a match, {num_players} games each"
    return Measurement(row, found.promoted, "promoted", share, note=note)
