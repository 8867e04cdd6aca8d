"""The regions of RingRift by labels of connected components: what the floods of `envs.ringrift.territory` are measured
against."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.ringrift.boards import Board
from stoix_like.envs.ringrift.sets import as_bools
from stoix_like.envs.ringrift.state import Position, Rules
from stoix_like.envs.ringrift.territory import open_by_colour
from stoix_like.types import Array


def region_labels(rules: Rules, position: Position) -> Array:
    """[P + 1, C] int32 by colour: the smallest cell that hangs together with each cell; C where a cell is closed.

    Each cell takes the smallest label of itself and its neighbours until nothing changes. Several such rounds between
    two questions are slower.
    """
    board = rules.board
    num_cells, table = board.num_cells, _beside(board)
    is_open = as_bools(board, open_by_colour(rules, position))  # [P + 1, C]
    start = jnp.where(is_open, jnp.arange(num_cells, dtype=jnp.int32), num_cells)

    def spread(labels: Array) -> Array:
        padded = jnp.pad(labels, ((0, 0), (0, 1)), constant_values=num_cells)  # [P + 1, C + 1]
        around = jnp.min(padded[:, table], axis=-1)  # [P + 1, C]
        return jnp.where(is_open, jnp.minimum(labels, around), num_cells)

    def is_changing(carry: tuple[Any, Any]) -> Array:
        return jnp.any(carry[0] != carry[1])

    return jax.lax.while_loop(is_changing, lambda carry: (carry[1], spread(carry[1])), (start, spread(start)))[1]


def _beside(board: Board) -> np.ndarray:
    """[C, sides] the cells across the sides of each cell; C off the board."""
    found = np.array([[board.neighbor(cell, side) for side in board.sides] for cell in range(board.num_cells)])
    return np.where(found < 0, board.num_cells, found)
