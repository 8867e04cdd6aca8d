"""Leaves whose range a game sets, checked with the game's own numbers before anything is begun."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from stoix_like.algorithms import alphazero
from stoix_like.algorithms.alphazero.state import cuts_games, longest_game
from stoix_like.config.checks.access import get_leaf, leaf_sections
from stoix_like.config.sections.selfplay import SelfPlayConfig
from stoix_like.errors import ConfigError
from stoix_like.games import BoardGame


class _Bound(NamedTuple):
    most: Callable[[BoardGame, int | None], int]  # by the game and max_game_plies
    reason: str  # of what the number is


#: {leaf: the most that it may be}. Plies that are only compared with those of a game need no bound.
_BOUNDS: Mapping[str, _Bound] = {
    "random_plies": _Bound(
        lambda game, cut: longest_game(game, cut) - cuts_games(game, cut), "plies of its longest game"
    ),
    "match_opening_plies": _Bound(lambda game, _: game.max_plies - 1, "plies of its longest game before the last"),
}


def check_bounds(game: BoardGame, config: SelfPlayConfig) -> None:
    """Raises ConfigError with all leaves that the game cannot be played with."""
    homes, problems, hints = leaf_sections(SelfPlayConfig), list[str](), list[str]()
    for leaf, bound in _BOUNDS.items():
        value, most = get_leaf(config, leaf), bound.most(game, config.alphazero.max_game_plies)
        if value is not None and value > most:
            problems.append(f"{homes[leaf]}.{leaf}: {value:,} is more than the {most} {bound.reason} of {game.name}")
            hints.append(f"use at most {most}")
    try:
        alphazero.check_replay(game, config)
    except ConfigError as error:
        problems += error.problems
        hints.append(error.hint)
    if problems:
        raise ConfigError(problems, "; ".join(dict.fromkeys(hints)))
