"""AlphaZero by Gumbel search: `play` makes positions, `learn` learns from them, `make` composes both into a Learner."""

from stoix_like.algorithms.alphazero.learner import (
    make,
    make_hyper,
    make_search_policy,
    match_search,
    self_play_search,
    settings_of,
)
from stoix_like.algorithms.alphazero.learning import Learning, LearningSetup, add_to_budget, learn
from stoix_like.algorithms.alphazero.self_play import play, start
from stoix_like.algorithms.alphazero.state import (
    AlphaZeroHyper,
    AlphaZeroParams,
    AlphaZeroSettings,
    AlphaZeroState,
    LearningBudget,
    Position,
    Sample,
    SelfPlay,
    example_sample,
)

__all__ = [
    "AlphaZeroHyper",
    "AlphaZeroParams",
    "AlphaZeroSettings",
    "AlphaZeroState",
    "Learning",
    "LearningBudget",
    "LearningSetup",
    "Position",
    "Sample",
    "SelfPlay",
    "add_to_budget",
    "example_sample",
    "learn",
    "make",
    "make_hyper",
    "make_search_policy",
    "match_search",
    "play",
    "self_play_search",
    "settings_of",
    "start",
]
