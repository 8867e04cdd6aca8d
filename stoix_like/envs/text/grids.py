"""What the worlds on a grid share: positions, layouts, moves, marks of cells, what can be reached, and text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from stoix_like.types import Array

LAKE_MOVES = np.array([[0, -1], [1, 0], [0, 1], [-1, 0]], np.int32)  # left, down, right, up: Gymnasium's order
ROOM_MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]], np.int32)  # up, down, left, right


class Position(NamedTuple):
    """A cell, or several."""

    row: Any  # [...] int32, of JAX or NumPy
    col: Any  # [...] int32

    @classmethod
    def of_cell(cls, cell: Array, num_columns: int) -> Position:
        """The position of cells that are counted row by row."""
        return cls((cell // num_columns).astype(jnp.int32), (cell % num_columns).astype(jnp.int32))


class Lake(NamedTuple):
    """A level of FrozenLake."""

    holes: Any  # [R, C] bool
    start: Position
    goal: Position


class Room(NamedTuple):
    """A level of Sokoban."""

    walls: Any  # [R, C] bool
    targets: Any  # [R, C] bool
    boxes: Any  # [R, C] bool
    player: Position


def on_cell(position: Position, shape: tuple[int, ...]) -> Array:
    """[R, C] bool: true at a position alone."""
    return (jnp.arange(shape[0]) == position.row)[:, None] & (jnp.arange(shape[1]) == position.col)[None]


def spread(cells: Array) -> Array:
    """[R, C] bool: the cells and their neighbours."""
    padded = jnp.pad(cells, 1)
    return cells | padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]


def can_reach(start: Position, free: Array, num_steps: int) -> Array:
    """[R, C] bool: what is at most so many steps from a cell, through free cells [R, C]."""
    return lax.fori_loop(0, num_steps, lambda _, cells: spread(cells) & free, on_cell(start, free.shape) & free)


def rows_text(symbols: np.ndarray) -> str:
    """A line for each row of symbols [R, C]."""
    return "\n".join("".join(row) for row in symbols)


def position_text(position: Sequence[Any] | np.ndarray) -> str:
    """`(row,column)`, counted from 0."""
    return f"({int(position[0])},{int(position[1])})"
