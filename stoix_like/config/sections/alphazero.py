"""The section `alphazero`: self-play, search and replay. Imports only the standard library."""

from __future__ import annotations

from dataclasses import dataclass

from stoix_like.config.sections.leaves import LEARNING, SCORING, SHAPE, leaf


@dataclass(frozen=True)
class AlphaZeroSectionConfig:
    """AlphaZero's self-play, search and replay."""

    self_play: bool = leaf(
        True, "play what is learned from; false = learn from positions that a pipeline has played before", SHAPE
    )
    num_simulations: int = leaf(16, "simulations per move", SHAPE, low=1)
    quick_simulations: int | None = leaf(
        None, "simulations of quick moves, which teach values alone; null = all moves are full", SHAPE, low=1
    )
    full_search_share: float = leaf(
        0.25, "share of moves that are searched in full, where there are quick ones", LEARNING, above=0.0, high=1.0
    )
    max_considered_actions: int = leaf(16, "actions that the search compares at the root", SHAPE, low=1)
    gumbel_scale: float = leaf(1.0, "scale of the Gumbel noise at the root in self-play", LEARNING, low=0.0, high=1e6)
    value_scale: float = leaf(0.1, "scale of search values in the improved policy", LEARNING, low=1e-6, high=1e6)
    maxvisit_init: float = leaf(
        50.0, "visits added to the largest count in the improved policy", LEARNING, low=0.0, high=1e6
    )
    rescale_values: bool = leaf(False, "stretch the values of each search to [0, 1] before they are scaled", LEARNING)
    random_plies: int = leaf(6, "most random plies at the start of a game of self-play", LEARNING, low=0)
    max_game_plies: int | None = leaf(
        None,
        "plies after which a game of self-play is cut, and not learned from; null = as the game says",
        SHAPE,
        low=1,
    )
    temperature_plies: int = leaf(12, "plies in which moves are drawn from the improved policy", LEARNING, low=0)
    play_temperature: float = leaf(1.0, "temperature of these draws", LEARNING, low=1e-6, high=1e6)
    root_value_weight: float = leaf(
        0.2, "share of the search's value in the value target; the rest is the outcome", LEARNING, low=0.0, high=1.0
    )
    replay_buffer_size: int = leaf(65_536, "positions kept", SHAPE, low=1)
    batch_size: int = leaf(1024, "positions per gradient step", SHAPE, low=1)
    max_reuse: float = leaf(4.0, "times that a position is learned from, on average at most", LEARNING, above=0.0)
    weight_decay: float = leaf(
        0.0, "share that kernels lose per gradient step, times the rate (AdamW)", LEARNING, low=0.0
    )
    use_symmetries: bool = leaf(True, "show each drawn position in a random symmetry of the board", LEARNING)
    anchors: str | None = leaf(
        "random", "further opponents of every evaluation, such as random, mcts-128; null = none", SCORING
    )
