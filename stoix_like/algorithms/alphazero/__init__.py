"""AlphaZero by Gumbel search: `play` makes positions, `learn` learns from them, `make` composes both into a Learner."""

from stoix_like.algorithms.alphazero.learner import make, make_hyper, make_search_policy, settings_of
from stoix_like.algorithms.alphazero.learning import Learning, LearningSetup, learn
from stoix_like.algorithms.alphazero.self_play import play, start
from stoix_like.algorithms.alphazero.state import AlphaZeroParams, AlphaZeroState, Position, Sample

__all__ = [
    "AlphaZeroParams",
    "AlphaZeroState",
    "Learning",
    "LearningSetup",
    "Position",
    "Sample",
    "learn",
    "make",
    "make_hyper",
    "make_search_policy",
    "play",
    "settings_of",
    "start",
]
