"""The checks of an AlphaZero configuration, and of engines by name. Imports only the standard library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stoix_like.config.checks.board_games import GAMES, is_game
from stoix_like.config.checks.engines import parse_engine
from stoix_like.config.checks.replay_sizes import num_logical_shards
from stoix_like.config.checks.values import nearest_and
from stoix_like.errors import ConfigError


def anchor_names(anchors: str | None) -> list[str]:
    """The engines of the leaf `anchors`, such as `random, mcts-128`, each once and in its one spelling."""
    return list(dict.fromkeys(engine_name(name) for name in (anchors or "").split(",") if name.strip()))


def engine_name(text: str) -> str:
    """The one spelling of an engine: `mcts-128` of ` MCTS-0128`. What names none is unchanged."""
    try:
        return str(parse_engine(text))
    except ConfigError:
        return text.strip()


def opponent_names(opponent: str) -> list[str]:
    """The engines of the leaf `opponent`, such as `heuristic` or, one for each other seat, `heuristic, mcts-8`."""
    return [engine_name(name) for name in opponent.split(",")]


def engine_problems(leaf: str, names: Sequence[str]) -> list[str]:
    """One line for each name that is no engine's."""
    problems = []
    for name in names:
        try:
            parse_engine(name)
        except ConfigError as error:
            problems.append(f"{leaf}: {error.problems[0]}; {error.hint}")
    return problems


def alphazero_problems(config: Any) -> list[str]:
    """One line for each reason why self-play and replay of these sizes cannot work."""
    section, num_games = config.alphazero, config.environment.num_envs
    name, size = "alphazero.replay_buffer_size", section.replay_buffer_size
    problems = engine_problems("alphazero.anchors", anchor_names(section.anchors))
    if not is_game(task := config.environment.task_id):
        further = nearest_and(task, GAMES, f"choose one of {', '.join(GAMES)}")
        problems.append(f"environment.task_id: AlphaZero plays board games, not {task}{further}")
    if size < section.batch_size:
        problems.append(f"{name}: {size:,} is less than batch_size = {section.batch_size:,}; use more")
    played = num_games * config.training_core.rollout_length
    if section.max_reuse * played < section.batch_size:
        least = math.ceil(section.batch_size / played)
        problems.append(
            f"alphazero.batch_size: {section.batch_size:,} is more than max_reuse * num_envs * rollout_length ="
            f" {section.max_reuse * played:,.0f} positions that an update may use; use less, or max_reuse {least}"
        )
    if section.max_game_plies is not None and section.max_game_plies <= section.random_plies:
        problems.append(
            f"alphazero.max_game_plies: {section.max_game_plies:,} plies may all be random, as random_plies ="
            f" {section.random_plies:,} says; use more"
        )
    if section.quick_simulations is not None and config.training_core.num_seeds > 1:
        problems.append(
            "alphazero.quick_simulations: seeds side by side search every move both in full and quickly, which saves"
            f" nothing; use num_seeds 1 instead of {config.training_core.num_seeds}, or null"
        )
    if section.quick_simulations is not None and section.quick_simulations >= section.num_simulations:
        problems.append(
            f"alphazero.quick_simulations: {section.quick_simulations} is not below num_simulations ="
            f" {section.num_simulations}; use less, or null"
        )
    return problems


def num_replay_shards(num_games: int, batch_size: int, capacity: int) -> int:
    """Logical shards of the ring: the largest of 8, 4, 2, 1 that divides games, batch and capacity."""
    return num_logical_shards(num_games, math.gcd(batch_size, capacity))
