"""Environments by task id, board games included: a game joined to an opponent and to openings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stoix_like.config.checks.alphazero import opponent_names
from stoix_like.config.checks.board_games import is_game, parse_game
from stoix_like.config.checks.engines import parse_engine
from stoix_like.envs import registry
from stoix_like.envs.boards.registry import make_game
from stoix_like.envs.boards.versus import versus
from stoix_like.errors import ConfigError
from stoix_like.evaluation.contests.openings import OpeningBook, openings
from stoix_like.games import BoardGame
from stoix_like.search.players import engine_player
from stoix_like.types import Environment

DEFAULT_OPPONENT = "heuristic"
NUM_OPENINGS = 256  # most positions of a book that matches and evaluations use
#: Plies of a game's openings unless they are given: enough positions, and few that are decided already.
OPENING_PLIES = {"tic_tac_toe": 2, "connect_four": 4, "othello": 6, "hex_11x11": 3, "go_9x9": 4}
#: The same of games for several numbers of players, for each of them: a placement and a move.
_PLIES_OF_EACH = dict.fromkeys(("hex8", "square8", "hex8_swap", "square8_swap"), 2)


def make(
    task_id: str,
    *,
    opponent: str | None = None,
    opening_plies: int | None = None,
    max_episode_steps: int | None = None,
    max_items: int | None = None,
    max_ems: int | None = None,
    kwargs: Mapping[str, Any] | None = None,
    exact_reference: bool = False,
) -> Environment:
    """The environment of a task id: of `registry.make`, whose other arguments it takes, or of a board game.

    Args:
        task_id: as `registry.make`, or a board game such as `connect_four`, `connect_four:2` or `connect_four_2p`.
        opponent: board games: who plays the other seats, as `against` takes it; heuristic unless given.
        opening_plies: board games: plies of the openings that games begin with; by game unless given.
        max_episode_steps: steps before a truncation (LAST with discount 1), beside the task's own end; not of games.
        max_items: BinPack only, most items per instance.
        max_ems: BinPack only, empty maximal spaces that are kept and shown.
        kwargs: keyword arguments of the environment's constructor or of its generator, such as `num_rows` of Maze.
        exact_reference: Jumanji's own code instead of the faster one for BinPack and Maze, which gives the same bits.

    Raises:
        UnsupportedEnvironmentError: unknown id, levels that need a download, continuous actions, per-agent rewards.
        ConfigError: an unknown or unusable keyword argument, opponent or number of players.
    """
    if task_id not in registry.ENVIRONMENTS and is_game(task_id):
        others = {"max_episode_steps": max_episode_steps, "max_items": max_items, "max_ems": max_ems}
        _refuse_arguments(task_id, others | {"kwargs": kwargs or None})
        return against(make_game(task_id), opponent or DEFAULT_OPPONENT, opening_plies)
    _refuse_arguments(task_id, {"opponent": opponent, "opening_plies": opening_plies})
    return registry.make(
        task_id,
        max_episode_steps=max_episode_steps,
        max_items=max_items,
        max_ems=max_ems,
        kwargs=kwargs,
        exact_reference=exact_reference,
    )


def _refuse_arguments(task_id: str, arguments: Mapping[str, Any]) -> None:
    if given := [f"environment.{name}: {task_id} has none" for name, value in arguments.items() if value is not None]:
        raise ConfigError(given, "leave it out")


def against(game: BoardGame, opponent: str, opening_plies: int | None = None) -> Environment:
    """The environment of playing the game against engines by name, from openings of so many plies.

    One name, such as random or mcts-128, plays all other seats. Of several, `heuristic,random`, each has one, in the
    order of seats after ours.

    Raises:
        ConfigError: no such engine, or openings that the game does not have.
        ValueError: another number of opponents.
    """
    players = [engine_player(game, parse_engine(name)) for name in opponent_names(opponent)]
    return versus(game, players, book(game, opening_plies).moves)


def book(game: BoardGame, opening_plies: int | None = None, most: int = NUM_OPENINGS) -> OpeningBook:
    """The openings of evaluations and matches of a game, at most `most`.

    Raises:
        ConfigError: no position of the game is undecided after so many plies.
    """
    plies = _usual_plies(game) if opening_plies is None else opening_plies
    return openings(game, plies, most)


def _usual_plies(game: BoardGame) -> int:
    if not is_game(game.name):
        return 0
    name, num_players = parse_game(game.name)
    return OPENING_PLIES.get(name, _PLIES_OF_EACH.get(name, 0) * num_players)
