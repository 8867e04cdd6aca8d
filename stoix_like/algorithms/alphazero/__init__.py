"""AlphaZero by Gumbel search: `play` makes positions, `learn` learns from them, `make` composes both into a Learner."""

from stoix_like.algorithms.alphazero.learner import (
    check_replay,
    make,
    make_hyper,
    make_search_policy,
    match_search,
    self_play_search,
    settings_of,
)
from stoix_like.algorithms.alphazero.learning import Learning, LearningSetup, add_to_budget, learn
from stoix_like.algorithms.alphazero.self_play import PlaySetup, play, start
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
from stoix_like.algorithms.alphazero.whole_games import GameBatch, GameRecords, mcts_search
from stoix_like.algorithms.alphazero.whole_games import advance as advance_games
from stoix_like.algorithms.alphazero.whole_games import begin as begin_games
from stoix_like.algorithms.alphazero.window_learner import window_of

__all__ = [
    "AlphaZeroHyper",
    "AlphaZeroParams",
    "AlphaZeroSettings",
    "AlphaZeroState",
    "GameBatch",
    "GameRecords",
    "Learning",
    "LearningBudget",
    "LearningSetup",
    "PlaySetup",
    "Position",
    "Sample",
    "SelfPlay",
    "add_to_budget",
    "advance_games",
    "begin_games",
    "check_replay",
    "example_sample",
    "learn",
    "make",
    "make_hyper",
    "make_search_policy",
    "match_search",
    "mcts_search",
    "play",
    "self_play_search",
    "settings_of",
    "start",
    "window_of",
]
