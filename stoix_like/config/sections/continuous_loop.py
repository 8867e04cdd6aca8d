"""The configuration of the continuous loop. Imports only the standard library."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from stoix_like.config.checks.access import check_leaf
from stoix_like.config.checks.board_games import parse_game
from stoix_like.config.checks.selfplay import NETWORK_ENGINE
from stoix_like.config.sections.leaves import leaf
from stoix_like.errors import ConfigError

DEFAULT_GAMES = (("hex8", 2), ("square8", 2))
MIN_SAMPLES = 10_000  # new positions that an iteration of a loop learns from


@dataclass(frozen=True)
class LoopConfig:
    """What the continuous loop does. The names and defaults are those of the original."""

    configs: Sequence[tuple[str, int]] = leaf(
        DEFAULT_GAMES, "(game, number of players) of each game, in the order in which they take turns"
    )
    selfplay_games_per_iteration: int = leaf(
        1000, "games of a batch; an iteration plays another one while it has too few positions", low=1
    )
    selfplay_engine: str = leaf(NETWORK_ENGINE, "who plays: gumbel-mcts with the network, or mcts-N without one")
    parallel_configs: bool = leaf(False, "must be False: one process owns the device, and games take turns")
    pipeline_timeout_seconds: float = leaf(7200.0, "that the stages after self-play may take together", low=1.0)
    max_iterations: int = leaf(0, "of all games together, after which the loop ends; 0 for none", low=0)
    iteration_cooldown_seconds: float = leaf(60.0, "pause after an iteration", low=0.0)
    max_consecutive_failures: int = leaf(3, "of a stage of a game, after which its breaker opens", low=1)
    failure_backoff_seconds: float = leaf(
        300.0, "that it stays open; twice as long after each failed trial, up to an hour", low=0.0
    )
    force: bool = leaf(False, "never defer to a master loop; refused where one runs in the same folder")
    defer_check_interval_seconds: float = leaf(60.0, "between two looks whether a master loop has ended", low=0.1)

    def __post_init__(self) -> None:
        """Raises ConfigError with all values that are of another type or out of range."""
        names = [field.name for field in dataclasses.fields(LoopConfig) if field.name != "configs"]
        checked = {name: check_leaf(LoopConfig, name, getattr(self, name)) for name in names}
        wrong = [f"{name}: {problem}" for name, (_, problem) in checked.items() if problem]
        if problems := [*wrong, *_problems(self)]:
            raise ConfigError(problems, "docs/self-play-loops.md lists the fields of LoopConfig")
        for name, (value, _) in checked.items():
            object.__setattr__(self, name, value)  # 10.0 where 10 is meant


def _problems(config: LoopConfig) -> list[str]:
    problems = []
    if not config.configs:
        problems.append("configs: no games")
    wrong = [game for game in config.configs if not (isinstance(game, (tuple, list)) and len(game) == 2)]
    problems += [f"configs: must be (game, number of players), got {game!r}" for game in wrong]
    keys = [tuple(game) for game in config.configs if game not in wrong]
    if len(set(keys)) < len(keys):
        problems.append("configs: a game stands there twice")
    if config.parallel_configs:
        problems.append("parallel_configs: one process owns the device, and games take turns; leave it False")
    return problems


def check_games(games: Sequence[tuple[str, int]]) -> None:
    """Raises UnsupportedEnvironmentError or ConfigError for a game that cannot be played, or not by so many."""
    for name, num_players in games:
        parse_game(f"{name}:{num_players}")
