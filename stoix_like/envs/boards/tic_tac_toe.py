"""Tic-tac-toe. Actions are the nine cells, row by row from the top left."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from stoix_like.envs.boards import tables
from stoix_like.games import BoardGame, BoardLayout, Lines
from stoix_like.types import Array, Observation

LINES = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]], np.int32)
_PREFERENCE = np.array([2, 1, 2, 1, 3, 1, 2, 1, 2], np.float32)  # the centre, corners, edges


class TicTacToeState(NamedTuple):
    """A position."""

    cells: Array  # [9] int8, the owner of each cell; -1: empty
    player: Array  # [] int8, to move
    winner: Array  # [] int8; -1: none


def make_tic_tac_toe() -> BoardGame:
    """Tic-tac-toe, with the rules of pgx's `tic_tac_toe`."""
    return BoardGame(
        name="tic_tac_toe",
        num_players=2,
        num_actions=9,
        max_plies=9,
        init=_init,
        step=_step,
        observe=_observe,
        legal_actions=lambda state: state.cells < 0,
        player=lambda state: state.player.astype(jnp.int32),
        outcome=_outcome,
        is_over=lambda state: (state.winner >= 0) | jnp.all(state.cells >= 0),
        cells=lambda state: state.cells,
        preference=lambda _: jnp.asarray(_PREFERENCE),
        layout=BoardLayout(
            (3, 3), "square", tables.square_neighbors(3, 3), tables.cell_names(3, 3), Lines(LINES, below=None)
        ),
        symmetries=tables.square_symmetries(3, num_other_actions=0),
    )


def _init() -> TicTacToeState:
    return TicTacToeState(jnp.full((9,), -1, jnp.int8), jnp.int8(0), jnp.int8(-1))


def _step(state: TicTacToeState, action: Array) -> TicTacToeState:
    cells = state.cells.at[action].set(state.player)
    has_won = jnp.any(jnp.all(cells[LINES] == state.player, axis=1))
    return TicTacToeState(cells, 1 - state.player, jnp.where(has_won, state.player, jnp.int8(-1)))


def _observe(state: TicTacToeState) -> Observation:
    planes = jnp.stack([state.cells == state.player, state.cells == 1 - state.player], axis=-1)  # [9, 2]
    return Observation(planes, state.cells < 0)


def _outcome(state: TicTacToeState) -> Array:
    winner = state.winner.astype(jnp.int32)
    return jnp.where(winner < 0, 0.0, jnp.where(jnp.arange(2) == winner, 1.0, -1.0)).astype(jnp.float32)
