"""Recorded moves of board games, played again by the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.games import BoardGame, GameState
from stoix_like.ops import trees
from stoix_like.types import Array

T = TypeVar("T")


def play_moves(
    game: BoardGame, moves: Array, look: Callable[[GameState], Any] = lambda _: ()
) -> tuple[GameState, Array, Any]:
    """(the state after moves [H] from the start, whether each was legal [H], `look` of the state before each). Pure.

    A negative number is no move: it is legal, and changes nothing. No move is legal once the game is over.
    """

    def step(state: GameState, action: Array) -> tuple[GameState, tuple[Array, Any]]:
        is_move, legal = action >= 0, game.legal_actions(state)
        in_range = (action < game.num_actions) & legal[jnp.clip(action, 0, game.num_actions - 1)]
        is_legal = ~is_move | (in_range & ~game.is_over(state))
        after = trees.where(is_move, game.step(state, action.astype(jnp.int32)), state)
        return after, (is_legal, look(state))

    state, (is_legal, seen) = jax.lax.scan(step, game.init(), moves)
    return state, is_legal, seen


def in_batches(program: Callable[[Array], T], plies: int, size: int) -> Callable[[np.ndarray], T]:
    """The program of moves [plies], for moves [N, at most `plies`] on the host, `size` at once. It compiles once."""
    play_batch = jax.jit(jax.vmap(program))

    def play(moves: np.ndarray) -> T:
        count = len(moves)
        padded = np.full((-(-count // size) * size, plies), -1, np.int32)
        padded[:count, : moves.shape[1]] = moves
        batches = [jax.device_get(play_batch(padded[i : i + size])) for i in range(0, len(padded), size)]
        found: T = jax.tree.map(lambda *rows: np.concatenate(rows)[:count], *batches)
        return found

    return play
