"""The configuration of self-play in stages: AlphaZero's sections, and those of the pipeline around it.

Imports only the standard library.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from stoix_like.config.checks.selfplay import NETWORK_ENGINE
from stoix_like.config.sections.leaves import leaf
from stoix_like.config.sections.runs import AlphaZeroConfig, OptimizationConfig

MOST_ELO = 4000.0  # of a difference, at which one of two players wins all games but one in 10 billion


@dataclass(frozen=True)
class SelfPlaySectionConfig:
    """How many games an iteration plays, and which of all games are learned from."""

    selfplay_games: int = leaf(1000, "games of self-play per iteration", low=1)
    shard_games: int = leaf(500, "games per shard, the unit that is kept when a stage is killed", low=1)
    engine: str = leaf(NETWORK_ENGINE, "who plays: gumbel-mcts with the network, or mcts-N without one")
    selfplay_model: Literal["champion", "latest"] = leaf("champion", "whose network plays; latest = newest candidate")
    sync_from: str | None = leaf(None, "folders of the same game whose shards are taken in, a,b; null = none")
    min_samples: int = leaf(0, "new positions that an iteration learns from; it plays more until it has them", low=0)
    window_positions: int = leaf(
        32_768, "all positions are learned from up to here; beyond, the window grows more slowly", low=1
    )
    window_exponent: float = leaf(0.75, "exponent of that growth: 1 = linear, 0.5 = square root", above=0.0, high=1.0)
    window_growth: float = leaf(
        0.4, "positions that the window gains for a new one where that growth begins", low=0.0, high=1.0
    )
    validation_share: float = leaf(0.05, "share of games that are only validated on", low=0.0, high=0.5)
    training_epochs: float | None = leaf(
        None, "passes over the window per iteration; null = max_reuse for each new position", above=0.0
    )


@dataclass(frozen=True)
class PromotionSectionConfig:
    """The match of candidate and champion, and when it is enough."""

    auto_promote: bool = leaf(True, "replace the champion when the rule says so; false = only decide")
    verify_evidence: bool = leaf(
        False, "play the match of a candidate again before it is promoted; what does not come out is played anew"
    )
    promotion_rule: Literal["sprt", "non_inferior", "fixed"] = leaf(
        "sprt", "sequential test, the same for solved games, or a fixed number of pairs"
    )
    promotion_elo_0: float = leaf(
        0.0, "Elo difference of the hypothesis that does not promote", low=-MOST_ELO, high=MOST_ELO
    )
    promotion_elo_1: float = leaf(50.0, "Elo difference of the hypothesis that promotes", above=0.0, high=MOST_ELO)
    promotion_alpha: float = leaf(0.05, "share of candidates at promotion_elo_0 that are promoted", above=0.0, high=0.5)
    promotion_beta: float = leaf(0.05, "share of candidates at promotion_elo_1 that are rejected", above=0.0, high=0.5)
    most_pairs: int = leaf(200, "openings that a match plays at most, each from every seat", low=2)
    pairs_per_look: int = leaf(20, "openings between two looks at the evidence", low=1)
    match_simulations: int | None = leaf(None, "simulations per move of a match; null = num_simulations", low=1)
    match_opening_plies: int | None = leaf(None, "plies of a match's openings; null = by game", low=0)
    match_anchors: str | None = leaf(
        "heuristic", "engines that candidates play for the report, such as random, mcts-128; null = none"
    )
    anchor_pairs: int = leaf(16, "openings against each of them", low=1)


@dataclass(frozen=True)
class SelfPlayConfig(AlphaZeroConfig):
    """The configuration of a self-play pipeline."""

    optimization: OptimizationConfig = dataclasses.field(
        default_factory=lambda: OptimizationConfig(decay_learning_rates=False)
    )
    selfplay: SelfPlaySectionConfig = dataclasses.field(default_factory=SelfPlaySectionConfig)
    promotion: PromotionSectionConfig = dataclasses.field(default_factory=PromotionSectionConfig)
