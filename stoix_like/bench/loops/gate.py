"""How often the gate of self-play promotes candidates of a given strength, by simulated matches at its defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from stoix_like.bench.timing.measure import Measurement
from stoix_like.evaluation.promotion import PromotionRule, RuleName
from stoix_like.evaluation.promotion_rates import simulate_rule

DIFFERENCES = (-100.0, -50.0, 0.0, 50.0, 100.0, 200.0)  # Elo of the candidate over the champion
NUM_MATCHES = 2000


def promotion_suite() -> Iterator[Measurement]:
    """A row per rule and difference: the share of matches in which the candidate is promoted. It needs no device."""
    for name in get_args(RuleName):
        for elo in DIFFERENCES:
            found = simulate_rule(PromotionRule(name), elo, num_matches=NUM_MATCHES)
            spread = 1.96 * (found.promoted * (1.0 - found.promoted) / NUM_MATCHES) ** 0.5
            share = spread / found.promoted if found.promoted > 0.0 else None
            others = f"rejected {found.rejected:.3f}, inconclusive {found.inconclusive:.3f}"
            note = f"{others}; {found.mean_groups:.0f} openings a match"
            yield Measurement(f"promotion/{name}/{elo:+.0f}_elo", found.promoted, "promoted", share, note=note)
