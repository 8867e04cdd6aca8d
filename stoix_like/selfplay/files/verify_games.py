"""Recorded games played again by the rules: what a file claims of its games is true, or the file is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from stoix_like.evaluation.moves import in_batches, play_moves
from stoix_like.games import BoardGame, GameState
from stoix_like.selfplay.files.shards import pack_planes
from stoix_like.types import Array

_BATCH = 256  # games replayed at once


def make_play_moves(game: BoardGame) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    """The function moves [N, H] -> arrays of what the rules say of them, by name. It compiles once.

    `is_legal` [N]: every move was, and none came after the end; `is_over` [N]: the game ended with the last one;
    `outcome` [N, P]; `planes` [N, H, C, F], `legal` [N, H, A] and `player` [N, H] before each move.
    """

    def look(state: GameState) -> dict[str, Array]:
        seen = game.observe(state)
        return {"planes": seen.agent_view, "legal": seen.action_mask, "player": game.player(state)}

    def play(moves: Array) -> dict[str, Any]:
        state, is_legal, rows = play_moves(game, moves, look)
        return rows | {
            "is_legal": jnp.all(is_legal),
            "is_over": game.is_over(state),
            "outcome": game.outcome(state),
        }

    return in_batches(play, game.max_plies, _BATCH)


def rule_problem(replayed: dict[str, np.ndarray], arrays: dict[str, np.ndarray]) -> str | None:
    """What the rules do not confirm of a shard; None if they confirm all."""
    number, first = arrays["num_plies"].astype(int), arrays["num_random"].astype(int)
    plies = np.arange(arrays["moves"].shape[1])[None]
    if ((arrays["moves"] >= 0) != (plies < number[:, None])).any():
        return "a game does not have as many moves as it says"
    if not replayed["is_legal"].all():
        return f"game {int(np.argmin(replayed['is_legal']))} has a move that is not legal"
    if not replayed["is_over"].all():
        return f"game {int(np.argmin(replayed['is_over']))} is not played to its end"
    if (np.abs(replayed["outcome"] - arrays["outcome"]) > 1e-6).any():
        return "an outcome is not that of the moves"
    rows = np.nonzero((plies >= first[:, None]) & (plies < number[:, None]))
    found = {"packed_planes": pack_planes(replayed["planes"][rows])}
    found |= {name: replayed[name][rows] for name in ("legal", "player")}
    for name, values in found.items():
        if (values != arrays[name]).any():
            return f"{name} of a position is not that of the moves"
    return None
