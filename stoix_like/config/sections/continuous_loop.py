"""The configuration of the continuous loop. Imports only the standard library."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stoix_like.config.checks.board_games import parse_game
from stoix_like.config.checks.selfplay import NETWORK_ENGINE
from stoix_like.errors import ConfigError

DEFAULT_GAMES = (("connect_four", 2), ("othello", 2))
MIN_SAMPLES = 10_000  # new positions that an iteration of a loop learns from


@dataclass(frozen=True)
class LoopConfig:
    """What the continuous loop does. The names and defaults are those of the original, but for the games.

    Attributes:
        configs: (game, number of players) of each game, in the order in which they take turns.
        selfplay_games_per_iteration: games of a batch; an iteration plays another one while it has too few positions.
        selfplay_engine: who plays: gumbel-mcts with the network, or mcts-N without one.
        parallel_configs: must be False: one process owns the device, and games take turns.
        pipeline_timeout_seconds: that the stages after self-play may take together.
        max_iterations: of all games together, after which the loop ends; 0 for none.
        iteration_cooldown_seconds: pause after an iteration.
        max_consecutive_failures: of a stage of a game, after which its breaker opens.
        failure_backoff_seconds: that it stays open; twice as long after each failed trial, up to an hour.
        force: never defer to a master loop; refused where one runs in the same folder.
        defer_check_interval_seconds: between two looks whether a master loop has ended.
    """

    configs: Sequence[tuple[str, int]] = DEFAULT_GAMES
    selfplay_games_per_iteration: int = 1000
    selfplay_engine: str = NETWORK_ENGINE
    parallel_configs: bool = False
    pipeline_timeout_seconds: float = 7200.0
    max_iterations: int = 0
    iteration_cooldown_seconds: float = 60.0
    max_consecutive_failures: int = 3
    failure_backoff_seconds: float = 300.0
    force: bool = False
    defer_check_interval_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Raises ConfigError with all values that are out of range."""
        if problems := _problems(self):
            raise ConfigError(problems, "docs/self-play-loops.md lists the fields of LoopConfig")


_LEAST: dict[str, float] = {
    "selfplay_games_per_iteration": 1,
    "pipeline_timeout_seconds": 1.0,
    "max_iterations": 0,
    "iteration_cooldown_seconds": 0.0,
    "max_consecutive_failures": 1,
    "failure_backoff_seconds": 0.0,
    "defer_check_interval_seconds": 0.1,
}


def _problems(config: LoopConfig) -> list[str]:
    types = {field.name: type(field.default) for field in dataclasses.fields(LoopConfig)}
    problems = [
        f"{name}: must be {'a whole number' if types[name] is int else 'a number'} of at least {least:g}, got {value!r}"
        for name, least in _LEAST.items()
        if not _is_number(value := getattr(config, name), types[name], least)
    ]
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


def _is_number(value: Any, kind: type, least: float) -> bool:
    is_right = isinstance(value, int) if kind is int else isinstance(value, (int, float))
    return is_right and not isinstance(value, bool) and math.isfinite(value) and value >= least


def check_games(games: Sequence[tuple[str, int]]) -> None:
    """Raises UnsupportedEnvironmentError or ConfigError for a game that cannot be played, or not by so many."""
    for name, num_players in games:
        parse_game(f"{name}:{num_players}")
