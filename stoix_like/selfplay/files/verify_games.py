"""Recorded games played again by the rules: what a file claims of its games is true, or the file is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from stoix_like.evaluation.contests.moves import in_batches, play_moves
from stoix_like.games import BoardGame, GameState
from stoix_like.ops import masked
from stoix_like.selfplay.files.policies import as_written
from stoix_like.types import Array

_BATCH = 256  # games replayed at once
Replay = Callable[[np.ndarray], dict[str, np.ndarray]]


def make_play_moves(game: BoardGame, *, with_positions: bool = True) -> Replay:
    """The function moves [N, H] -> arrays of what the rules say of them, by name. It compiles once for games of usual
    length (`self_play_plies`), and once for longer ones.

    `is_legal` [N]: every move was, and none came after the end; `is_over` [N]: the game ended with the last one;
    `outcome` [N, P]; and of positions, `packed_planes` [N, H, B], `legal` and `player` [N, H] before each move, as
    shards have them.
    """

    def look(state: GameState) -> dict[str, Array]:
        if not with_positions:
            return {}
        seen = game.observe(state)
        most, mask = game.max_legal, seen.action_mask
        legal = mask if most is None else masked.places(mask, most).astype(jnp.int16)
        return {"packed_planes": jnp.packbits(seen.agent_view), "legal": legal, "player": game.player(state)}

    def play(moves: Array) -> dict[str, Any]:
        state, is_legal, rows = play_moves(game, moves, look)
        return rows | {
            "is_legal": jnp.all(is_legal),
            "is_over": game.is_over(state),
            "outcome": game.outcome(state),
        }

    usual = game.self_play_plies or game.max_plies
    of_usual, of_long = (in_batches(play, plies, _BATCH) for plies in (usual, game.max_plies))

    def replay(moves: np.ndarray) -> dict[str, np.ndarray]:
        is_usual = not (moves[:, usual:] >= 0).any()
        return of_usual(moves[:, :usual]) if is_usual else of_long(moves)

    return replay


def rule_problem(replay: Replay, game: BoardGame, arrays: dict[str, np.ndarray]) -> str | None:
    """What the rules do not confirm of a shard; None if they confirm all. Games are replayed some at a time."""
    number = arrays["num_plies"].astype(int)
    if ((arrays["moves"] >= 0) != (np.arange(arrays["moves"].shape[1])[None] < number[:, None])).any():
        return "a game does not have as many moves as it says"
    arrays = as_written(game, arrays)
    for first in range(0, len(number), _BATCH):
        games = np.arange(first, min(first + _BATCH, len(number)))
        if problem := _problem_of(replay(arrays["moves"][games]), arrays, games):
            return problem
    return None


def _problem_of(replayed: dict[str, np.ndarray], arrays: dict[str, np.ndarray], games: np.ndarray) -> str | None:
    """What the rules do not confirm of some games of a shard."""
    if not replayed["is_legal"].all():
        return f"game {games[np.argmin(replayed['is_legal'])]} has a move that is not legal"
    if not replayed["is_over"].all():
        return f"game {games[np.argmin(replayed['is_over'])]} is not played to its end"
    if (np.abs(replayed["outcome"] - arrays["outcome"][games]) > 1e-6).any():
        return "an outcome is not that of the moves"
    plies = np.arange(replayed["player"].shape[1])[None]
    number, first = (arrays[name][games].astype(int)[:, None] for name in ("num_plies", "num_random"))
    is_position = (plies >= first) & (plies < number)  # [N, H]
    own = slice(*np.searchsorted(arrays["game"], [games[0], games[-1] + 1]))
    for name in ("packed_planes", "legal", "player"):
        if (replayed[name][is_position] != arrays[name][own]).any():
            return f"{name} of a position is not that of the moves"
    return None
