"""What AlphaZero's row of the table of algorithms does with its game."""

from __future__ import annotations

from stoix_like.algorithms import alphazero, tasks
from stoix_like.config.checks.alphazero import anchor_names, opponent_names
from stoix_like.config.checks.board_games import is_game
from stoix_like.config.sections.runs import AlphaZeroConfig
from stoix_like.envs.boards.registry import make_game
from stoix_like.types import Environment, Learner, Network


def check_replay(config: AlphaZeroConfig) -> None:
    """Raises ConfigError if the replay is too small for the game. Nothing is computed."""
    if is_game(config.environment.task_id):
        alphazero.check_replay(make_game(config.environment.task_id), config)


def make_alphazero(env: Environment, network: Network, config: AlphaZeroConfig) -> Learner:
    """The learner of the environment's game."""
    return alphazero.make(env.game, network, config)


def anchor_envs(env: Environment, config: AlphaZeroConfig) -> dict[str, Environment]:
    """{"vs_<engine>": the game against it} for the anchors, without the opponent of the main evaluation."""
    environment, names = config.environment, anchor_names(config.alphazero.anchors)
    others = [name for name in names if [name] != opponent_names(environment.opponent or tasks.DEFAULT_OPPONENT)]
    return {f"vs_{name}": tasks.against(env.game, name, environment.opening_plies) for name in others}
